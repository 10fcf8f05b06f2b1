"""Reductions, ArgMax, ArgMin, TopK and CumSum."""

from __future__ import annotations

from collections.abc import Callable

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_Reduce = Callable[[str, Expr], Expr]
_REDUCTIONS = {
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
}


@converter(*_REDUCTIONS)
def reduce_plain(node: Node) -> Expr:
    data, name = node.get(0), _REDUCTIONS[node.op_type]
    if data.tensor_type.dtype == "bool":
        name = {"max": "any", "min": "all"}.get(name, name)
    return _reduction(node)(name, data)


@converter("ReduceL1")
def reduce_l1(node: Node) -> Expr:
    return _reduction(node)("sum", node.call("abs", node.get(0)))


@converter("ReduceL2")
def reduce_l2(node: Node) -> Expr:
    return node.call("sqrt", _reduction(node)("sum", _square(node, node.get(0))))


@converter("ReduceSumSquare")
def reduce_sum_square(node: Node) -> Expr:
    return _reduction(node)("sum", _square(node, node.get(0)))


@converter("ReduceLogSum")
def reduce_log_sum(node: Node) -> Expr:
    return node.call("log", _reduction(node)("sum", node.get(0)))


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Expr:
    """log(sum(exp(x - m))) + m, which does not overflow, with m the maximum, or 0 where that is no finite number."""
    data = node.get(0)
    axes, keepdims = _axes(node), node.flag("keepdims", True)
    if axes == ():
        return data
    largest = node.call("max", data, axis=axes, keepdims=True)
    largest = node.call("where", node.call("isinf", largest), node.like(0, largest), largest)
    powers = node.call("exp", node.call("subtract", data, largest))
    total = node.call("log", node.call("sum", powers, axis=axes, keepdims=True))
    result = node.call("add", total, largest)
    if keepdims:
        return result
    return node.squeeze(result, *(range(node.rank(0)) if axes is None else axes))


def _square(node: Node, data: Expr) -> Expr:
    return node.call("multiply", data, data)


def _reduction(node: Node) -> _Reduce:
    axes, keepdims = _axes(node), node.flag("keepdims", True)

    def reduce(name: str, data: Expr) -> Expr:
        return data if axes == () else node.call(name, data, axis=axes, keepdims=keepdims)

    return reduce


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes to reduce, None for all, () for none; an attribute, or an input from opset 13 (ReduceSum) or 18 on."""
    axes = node.find_ints_attr("axes") or node.find_ints(1, "axes") or ()
    if not axes:
        return () if node.flag("noop_with_empty_axes") or not node.rank(0) else None
    return tuple(node.axis(axis, node.rank(0)) for axis in axes)


@converter("ArgMax", "ArgMin")
def arg_extremum(node: Node) -> Expr:
    return node.call(
        node.op_type.lower(),
        node.get(0),
        axis=node.axis(node.int_attr("axis", 0), node.rank(0)),
        keepdims=node.flag("keepdims", True),
        select_last_index=node.flag("select_last_index"),
    )


@converter("TopK", since=10)
def top_k(node: Node) -> list[Expr]:
    """Values and indices; they come sorted whether or not that is asked for."""
    result = node.call(
        "topk",
        node.get(0),
        k=int(node.scalar(1, "K")),
        axis=node.axis(node.int_attr("axis", -1), node.rank(0)),
        is_ascend=not node.flag("largest", True),
        ret_type="both",
        dtype="int64",
    )
    return node.fields(result, 2)


@converter("CumSum")
def cumulative_sum(node: Node) -> Expr:
    axis = node.axis(int(node.scalar(1, "axis")), node.rank(0))
    return node.call("cumsum", node.get(0), axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))
