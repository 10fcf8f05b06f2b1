"""Cuts out what matches: every group becomes a call of a function of its own; knows no kind of pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.ir.expr import Call, Expr, Function, TupleGetItem, Var
from relaybuild.ir.pattern.groups import Check, Group, find_groups
from relaybuild.ir.pattern.matcher import Graph, MatchNode, rebuilt
from relaybuild.ir.scopes import is_atom


def partition_expr(
    pattern: MatchNode, expr: Expr, attrs: Mapping[str, object] | None = None, check: Check | None = None
) -> Expr:
    """The expression in which each match is a call of a function with the attributes; itself where nothing matches."""
    graph = Graph(expr)
    return cut_out(graph, find_groups(pattern, graph, check), attrs or {})


def cut_out(graph: Graph, groups: Sequence[Group], attrs: Mapping[str, object]) -> Expr:
    """The graph's expression with each group as a call; `groups` are in the order in which they are numbered."""
    if not groups:
        return graph.root
    functions = {id(group.root): (group, _function(group, number, attrs)) for number, group in enumerate(groups)}
    done: dict[int, Expr] = {}
    for node in graph.order:
        found = functions.get(id(node))
        if found is None:
            done[id(node)] = rebuilt(node, done)
        else:
            group, function = found
            done[id(node)] = _call(function, [done[id(given)] for given in group.inputs], node)
    return done[id(graph.root)]


def partitioned_from(inner: Sequence[Expr]) -> str:
    """What `PartitionedFromPattern` says of nodes in evaluation order: `nn.conv2d_nn.relu_`."""
    return "".join(_name(node) for node in inner)


def _name(node: Expr) -> str:
    if isinstance(node, Function):
        return "Function"
    if isinstance(node, TupleGetItem):
        return f"TupleGetItem{node.index}_"
    if isinstance(node, Call):
        return f"{node.op_name or 'Call'}_"
    return "" if is_atom(node) else f"{type(node).__name__}_"


def _function(group: Group, number: int, attrs: Mapping[str, object]) -> Function:
    params = [
        Var(f"FunctionVar_{number}_{index}", given.checked_type if given.has_type else None)
        for index, given in enumerate(group.inputs)
    ]
    done: dict[int, Expr] = {id(given): param for given, param in zip(group.inputs, params)}
    for node in group.inner:
        children = node.children()
        done[id(node)] = node.with_children([done[id(child)] for child in children]) if children else node
    all_attrs = {**attrs, "PartitionedFromPattern": partitioned_from(group.inner)}
    return Function(params, done[id(group.root)], attrs=all_attrs, span=group.root.span)


def _call(function: Function, args: Sequence[Expr], root: Expr) -> Call:
    call = Call(function, args, span=root.span)
    if not call.has_type and root.has_type:
        call.set_checked_type(root.checked_type)
    return call


__all__ = ["Check", "cut_out", "partition_expr", "partitioned_from"]
