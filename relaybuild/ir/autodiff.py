"""Reverse-mode differentiation of typed dataflow with tuples and `If`; knows operators by their gradient rules only.

The walk goes from the result to the arguments, adding up for each node what its users hand back (Griewank and Walther,
"Evaluating Derivatives", chapter 3.2). Nodes of the expression are used again, not computed again, save what stands in
a branch: that is computed anew in the branch of the `If` that hands its gradients back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError
from relaybuild.ir import trampoline
from relaybuild.ir.expr import Call, Constant, Expr, If, Tuple, TupleGetItem, Var
from relaybuild.ir.gradients import GradientRule, gradient_rule
from relaybuild.ir.gradients._build import field_of, filled
from relaybuild.ir.op import Op, call_op
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, scope_tree
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.visitor import post_order_over


def pullback(root: Expr, grad: Expr, wrt: Sequence[Expr]) -> list[Expr | None]:
    """What reaches each of `wrt` when `grad`, of the type of `root`, reaches `root`; None where nothing does.

    `root` has types, and neither lets nor calls of functions. `wrt` are taken as independent: what they are computed
    from is not looked at. Raises UnsupportedError for operators without a gradient.
    """
    leaves = _distinct(wrt)
    stop = {id(leaf) for leaf in leaves}
    branching = any(isinstance(node, If) for node in _between(root, stop, _children))
    return trampoline.run(_pullback(root, grad, leaves, _Branches(scope_tree(root) if branching else None)))


def zeros_of(kind: Type) -> Expr:
    """Zeros of a type of static tensors and tuples of them."""
    if isinstance(kind, TupleType):
        return Tuple([zeros_of(item) for item in kind.fields])
    return _filled(kind, 0)


def ones_of(kind: Type) -> Expr:
    """Ones of a type of static tensors and tuples of them."""
    if isinstance(kind, TupleType):
        return Tuple([ones_of(item) for item in kind.fields])
    return _filled(kind, 1)


def is_differentiable(kind: Type) -> bool:
    """Whether values of the type can change by little: floating-point tensors, and tuples with one among them."""
    if isinstance(kind, TupleType):
        return any(is_differentiable(item) for item in kind.fields)
    return isinstance(kind, TensorType) and "float" in kind.dtype


def _filled(kind: Type, value: int) -> Expr:
    if not isinstance(kind, TensorType):
        raise UnsupportedError(f"there is no gradient of a value of type {kind}: expected tensors and tuples of them")
    return filled(kind, value)


@dataclass
class _Cotangents:
    """What has reached each node, by its id; of a tuple, what has reached each field."""

    totals: dict[int, Expr] = field(default_factory=dict)
    fields: dict[int, dict[int, Expr]] = field(default_factory=dict)

    def add(self, node: Expr, part: Expr | None) -> None:
        if part is None or not is_differentiable(node.checked_type):
            return
        if isinstance(node.checked_type, TupleType):
            for index in range(len(node.checked_type.fields)):
                self.add_field(node, index, field_of(part, index))
            return
        known = self.totals.get(id(node))
        self.totals[id(node)] = part if known is None else _sum(known, part)

    def add_field(self, node: Expr, index: int, part: Expr) -> None:
        known = self.fields.setdefault(id(node), {})
        known[index] = _sum(known[index], part) if index in known else part

    def of(self, node: Expr) -> Expr | None:
        """The sum; fields that nothing reached are zeros."""
        kind = node.checked_type
        if not isinstance(kind, TupleType):
            return self.totals.get(id(node))
        known = self.fields.get(id(node))
        if known is None:
            return None
        return Tuple([known.get(index) or zeros_of(item) for index, item in enumerate(kind.fields)])


@dataclass
class _Branches:
    """What the branches of each `If` use of what is computed around them; `tree` is None where there is no `If`."""

    tree: ScopeTree | None
    known: dict[int, list[Expr]] = field(default_factory=dict)

    def inputs(self, node: Expr) -> Sequence[Expr]:
        """A node's children; of an `If`, its condition and what its branches capture."""
        if not isinstance(node, If) or self.tree is None:
            return node.children()
        return (node.cond, *self.captured(node, self.tree))

    def captured(self, node: If, tree: ScopeTree) -> list[Expr]:
        """In order of first use."""
        if id(node) not in self.known:
            branches = zip((node.true_branch, node.false_branch), tree.inner[id(node)])
            both = {id(used): used for root, scope in branches for used in _captured(root, scope, tree)}
            self.known[id(node)] = list(both.values())
        return self.known[id(node)]


def _pullback(
    root: Expr, grad: Expr, leaves: Sequence[Expr], branches: _Branches
) -> trampoline.Step[list[Expr | None]]:
    stop = {id(leaf) for leaf in leaves}
    order = list(_between(root, stop, branches.inputs))
    reached = _dependent(order, stop, branches)
    found = _Cotangents()
    found.add(root, grad)
    for node in reversed(order):
        total = found.of(node) if id(node) in reached and id(node) not in stop else None
        if total is None:
            continue
        if isinstance(node, TupleGetItem):
            found.add_field(node.tuple_value, node.index, total)
            continue
        if isinstance(node, If):
            parts = yield _branch_parts(node, total, reached, branches)
        else:
            parts = _parts(node, total)
        for child, part in parts:
            if id(child) in reached:
                found.add(child, part)
    return [found.of(leaf) for leaf in leaves]


def _parts(node: Expr, total: Expr) -> list[tuple[Expr, Expr | None]]:
    """What a node hands back to each of its inputs."""
    if isinstance(node, Tuple):
        return [(child, field_of(total, index)) for index, child in enumerate(node.fields)]
    if isinstance(node, Call) and isinstance(node.op, Op):
        rule = gradient_rule(node.op.name) or _rule_by_decomposition(node)
        if rule is None:
            raise UnsupportedError(f"{_where(node)}operator '{node.op.name}' has no gradient")
        return list(zip(node.args, rule(node, total)))
    kind = "a call of a function" if isinstance(node, Call) else f"a {type(node).__name__}"
    raise UnsupportedError(f"{_where(node)}found {kind}, expected operators, tuples and If between results and inputs")


def _rule_by_decomposition(call: Call) -> GradientRule | None:
    """For an operator that says how it is written with others: the chain rule over these."""
    assert isinstance(call.op, Op)
    decompose = call.op.decompose
    if decompose is None:
        return None
    return lambda call, grad: pullback_of(decompose, call, grad)


def pullback_of(definition: Callable[[Call], Expr], call: Call, grad: Expr) -> list[Expr | None]:
    """What reaches the arguments of a call that means the same as `definition(call)`."""
    apart = with_distinct_args(call)
    return pullback(definition(apart), grad, apart.args)


def with_distinct_args(call: Call) -> Call:
    """The call with a copy of each argument that came before, so that each has a gradient of its own."""
    seen: set[int] = set()
    args: list[Expr] = []
    for arg in call.args:
        args.append(call_op("copy", [arg]) if id(arg) in seen else arg)
        seen.add(id(arg))
    return Call(call.op, args, call.attrs, call.span)


def _branch_parts(
    node: If, total: Expr, reached: set[int], branches: _Branches
) -> trampoline.Step[list[tuple[Expr, Expr | None]]]:
    """Another `If` on the same condition hands back what its branches' pullbacks find."""
    captured = branches.inputs(node)[1:]
    inputs = [used for used in captured if id(used) in reached and is_differentiable(used.checked_type)]
    found: list[list[Expr | None]] = []
    for root in (node.true_branch, node.false_branch):
        grads = yield _pullback(root, total, inputs, branches)
        found.append(grads)
    kept = [index for index in range(len(inputs)) if any(grads[index] is not None for grads in found)]
    if not kept:
        return []
    leaves = [*captured, total]
    sides = [_computed_anew(_filled_in(grads, inputs, kept), leaves) for grads in found]
    back = If(node.cond, sides[0], sides[1], node.span)
    return [(inputs[index], TupleGetItem(back, position)) for position, index in enumerate(kept)]


def _filled_in(grads: Sequence[Expr | None], inputs: Sequence[Expr], kept: Sequence[int]) -> Tuple:
    return Tuple([grads[index] or zeros_of(inputs[index].checked_type) for index in kept])


def _captured(root: Expr, scope: Scope, tree: ScopeTree) -> list[Expr]:
    """What a branch uses of what is computed around it, in order of first use."""

    def outside(node: Expr) -> bool:
        placed = tree.placed.get(id(node))
        return placed is None or common_scope(placed, scope) is not scope

    found: list[Expr] = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Constant):
            continue
        if isinstance(node, Var) or outside(node):
            found.append(node)
        else:
            stack.extend(reversed(node.children()))
    return found


def _computed_anew(root: Expr, leaves: Sequence[Expr]) -> Expr:
    """The expression over the same leaves, but over nodes of its own."""
    formal = {id(leaf): Var("captured", leaf.checked_type) for leaf in leaves}
    over_formal = _replaced(root, formal)
    return _replaced(over_formal, {id(formal[id(leaf)]): leaf for leaf in leaves})


def _replaced(root: Expr, replacements: Mapping[int, Expr]) -> Expr:
    done: dict[int, Expr] = dict(replacements)
    for node in _between(root, set(replacements), _children):
        if id(node) not in done:
            done[id(node)] = node.with_children([done[id(child)] for child in node.children()])
    return done[id(root)]


def _between(root: Expr, stop: set[int], inputs: Callable[[Expr], Sequence[Expr]]) -> Iterator[Expr]:
    """Nodes from which `root` is computed, inputs first, nothing below those in `stop`."""
    return post_order_over([root], lambda node: () if id(node) in stop else inputs(node))


def _children(node: Expr) -> Sequence[Expr]:
    return node.children()


def _dependent(order: Sequence[Expr], stop: set[int], branches: _Branches) -> set[int]:
    """Ids of the nodes of `order` whose values depend on those in `stop`."""
    found = set(stop)
    for node in order:
        if any(id(child) in found for child in branches.inputs(node)):
            found.add(id(node))
    return found


def _distinct(nodes: Sequence[Expr]) -> Sequence[Expr]:
    if len({id(node) for node in nodes}) != len(nodes):
        raise ValueError("expected distinct nodes to differentiate by")
    return nodes


def _sum(a: Expr, b: Expr) -> Expr:
    kind = a.checked_type
    if isinstance(kind, TupleType):
        return Tuple([_sum(field_of(a, index), field_of(b, index)) for index in range(len(kind.fields))])
    return a + b


def _where(node: Expr) -> str:
    return f"{node.span}: " if node.span else ""
