"""What one call of a region is to oneDNN: an operation, its operands as it sees them, its post-ops; knows no C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod

from relaybuild.contrib.dnnl.pooling import Pooling, pooling_of
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.ops.activation import LeakyReluAttrs
from relaybuild.ir.ops.clip import ClipAttrs
from relaybuild.ir.ops.conv2d import Conv2DAttrs
from relaybuild.ir.ops.matmul import MatmulAttrs
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.pattern_parts import added, is_vector_along


@dataclass(frozen=True)
class Operand:
    """A tensor under the axes of an operation; where transposed, the last two lie exchanged in memory."""

    node: Expr
    shape: tuple[int, ...]
    is_transposed: bool = False


@dataclass(frozen=True)
class PostOp:
    """What is done to each element of a result: `kind` is the name in the runtime's header, after RB_DNNL_."""

    kind: str
    alpha: float = 0.0
    beta: float = 0.0
    node: Expr | None = None


@dataclass(frozen=True)
class Operation:
    """A primitive of oneDNN; `kind` is the name in the runtime's header, after RB_DNNL_. Padding: top, left, bottom,
    right."""

    kind: str
    src: Operand
    dst_shape: tuple[int, ...]
    weights: Operand | None = None
    bias: Operand | None = None
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    window: tuple[int, ...] = ()
    post_ops: tuple[PostOp, ...] = ()


def operation_of(result: Call) -> Operation:
    """The operation that computes a call of an operator, or the body of a composite function of this backend."""
    steps: list[_Addition | tuple[PostOp, ...]] = []
    node = result
    while node.op_name not in _ANCHORS:
        step, node = _step(node)
        steps.append(step)
    operation = _ANCHORS[node.op_name](node)
    for number, step in enumerate(reversed(steps)):
        operation = _with_step(operation, step, is_first=number == 0)
    return operation


@dataclass(frozen=True)
class _Addition:
    """What is added to a result, and its type."""

    node: Expr
    result: TensorType


def _with_step(operation: Operation, step: _Addition | tuple[PostOp, ...], *, is_first: bool) -> Operation:
    if not isinstance(step, _Addition):
        return replace(operation, post_ops=(*operation.post_ops, *step))
    axis, shape = (1, operation.dst_shape[1:2]) if operation.kind == "CONVOLUTION" else (-1, _last(operation.dst_shape))
    kind = step.node.checked_type
    assert isinstance(kind, TensorType)
    if is_first and (kind.rank == 1 or is_vector_along(kind, step.result, axis)):
        return replace(operation, bias=Operand(step.node, shape))
    return replace(operation, post_ops=(*operation.post_ops, PostOp("SUM", node=step.node)))


def _last(shape: Sequence[int]) -> tuple[int, ...]:
    return (*(1 for _ in shape[1:]), shape[-1])


def _step(node: Call) -> tuple[_Addition | tuple[PostOp, ...], Call]:
    """What the last operators below a result do, and to what."""
    if node.op_name in ("add", "nn.bias_add"):
        value = next(each for each in node.args if isinstance(each, Call))
        return _Addition(added(node, value), node.tensor_type), value
    post_ops, operand = _gate(node) if node.op_name == "multiply" else (_activation(node), node.args[0])
    assert isinstance(operand, Call)
    return post_ops, operand


def _activation(node: Call) -> tuple[PostOp, ...]:
    attrs = node.attrs
    if isinstance(attrs, LeakyReluAttrs):
        return (PostOp("RELU", attrs.alpha),)
    if isinstance(attrs, ClipAttrs):
        low = -inf if attrs.a_min is None else attrs.a_min
        return (PostOp("CLIP", low, inf if attrs.a_max is None else attrs.a_max),)
    return (PostOp({"nn.relu": "RELU", "sigmoid": "SIGMOID", "tanh": "TANH"}[node.op_name]),)


def _gate(node: Call) -> tuple[tuple[PostOp, ...], Expr]:
    """A product of a value with a function of it: a swish, or a gelu perhaps without its half."""
    calls = [each for each in post_order(node) if isinstance(each, Call)]
    scaled = next((each.args[0] for each in calls if each.op_name == "erf"), None)
    if not isinstance(scaled, Call):
        return (PostOp("SWISH", 1.0),), next(each for each in node.args if _has_sigmoid(node, each))
    value = next(each for each in scaled.args if not isinstance(each, Constant))
    factors = (each for each in calls if each.op_name == "multiply" and each is not scaled)
    is_halved = any(isinstance(operand, Constant) for each in factors for operand in each.args)
    return (PostOp("GELU"), *(() if is_halved else (PostOp("LINEAR", 2.0),))), value


def _has_sigmoid(product: Call, value: Expr) -> bool:
    """Whether a product is one of a value with its sigmoid."""
    gates = (each for each in product.args if isinstance(each, Call) and each.op_name == "sigmoid")
    return any(gate.args[0] is value for gate in gates)


def _convolution(call: Call) -> Operation:
    data, weight = call.args
    attrs = call.attrs
    assert isinstance(attrs, Conv2DAttrs)
    shape = weight.tensor_type.static_shape
    if attrs.groups > 1:
        shape = (attrs.groups, shape[0] // attrs.groups, *shape[1:])
    return Operation(
        "CONVOLUTION",
        Operand(data, data.tensor_type.static_shape),
        call.tensor_type.static_shape,
        Operand(weight, shape),
        strides=attrs.strides,
        dilation=attrs.dilation,
        padding=attrs.padding,
    )


def _dense(call: Call) -> Operation:
    data, weight = call.args
    units, inner = weight.tensor_type.static_shape
    rows = prod(data.tensor_type.static_shape[:-1])
    return Operation(
        "PRODUCT", Operand(data, (rows, inner)), (rows, units), Operand(weight, (inner, units), is_transposed=True)
    )


def _matmul(call: Call) -> Operation:
    attrs = call.attrs
    assert isinstance(attrs, MatmulAttrs)
    *leading, rows, columns = call.tensor_type.static_shape
    a, b = (each.tensor_type.static_shape for each in call.args)
    inner = a[-2 if attrs.transpose_a else -1]
    count_a, count_b = prod(a[:-2]), prod(b[:-2])
    before_a: tuple[int, ...]
    before_b: tuple[int, ...]
    before: tuple[int, ...]
    if count_b == 1 and (count_a == 1 or not attrs.transpose_a):
        # one matrix for all rows
        before_a, before_b, before, rows = (), (), (), rows * count_a
    elif count_a == count_b:
        before_a = before_b = before = (count_a,)
    else:
        before = tuple(leading)
        before_a, before_b = ((*(1 for _ in leading[len(each) - 2 :]), *each[:-2]) for each in (a, b))
    return Operation(
        "PRODUCT",
        Operand(call.args[0], (*before_a, rows, inner), attrs.transpose_a),
        (*before, rows, columns),
        Operand(call.args[1], (*before_b, inner, columns), attrs.transpose_b),
    )


def _pooling(call: Call) -> Operation:
    pooling = pooling_of(call)
    assert isinstance(pooling, Pooling)
    data = call.args[0]
    return Operation(
        "MAX_POOLING" if call.op_name == "nn.max_pool2d" else "MEAN_POOLING",
        Operand(data, data.tensor_type.static_shape),
        call.tensor_type.static_shape,
        strides=pooling.strides,
        padding=pooling.padding,
        window=pooling.window,
    )


_ANCHORS: Mapping[str, Callable[[Call], Operation]] = {
    "nn.conv2d": _convolution,
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.max_pool2d": _pooling,
    "nn.avg_pool2d": _pooling,
    "nn.global_avg_pool2d": _pooling,
}
