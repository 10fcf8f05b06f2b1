"""LambdaLift: functions within functions become functions of the module.

What a closure takes from outside becomes its first parameters. Where a closure is only ever called by the variable it
is bound to, the calls hand over the captured values and the closure is gone; where it is a value, a function remains
that does nothing but call the lifted one, and where nothing is captured, the name of the lifted one remains.

    let %f = fn (%y) { %y + %x }; %f(%z)    ->  @main_f(%x, %z)       def @main_f(%x, %y) { %y + %x }
    fn (%y) { log(%y) }                     ->  @main_lambda          def @main_lambda(%y) { log(%y) }

Values that functions need from outside are bound to variables first, as ToBasicBlockNormalForm does. Functions that
have been cut out for a kernel or a backend stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, TypeGuard

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Let, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, is_atom, scope_tree
from relaybuild.ir.types import Type, TypeVar, type_children
from relaybuild.ir.visitor import post_order, substitute
from relaybuild.passes._blocks import is_sealed, uses_in
from relaybuild.passes._effects import Effects, find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone
from relaybuild.passes.to_basic_block_normal_form import to_basic_blocks


@dataclass(frozen=True, repr=False)
class LambdaLift(ModulePass):
    """Lifted functions are named after the function and the variable they came from."""

    info: ClassVar[PassInfo] = PassInfo("LambdaLift", 1, ("InferType",))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        names = _Names(mod)
        effects = find_effects(mod)
        done = dict(mod.functions)
        for name, function in mod.functions.items():
            if not is_left_alone(function) and not is_sealed(function) and _has_closures(function):
                done.update(_lifted(name, function, effects[name], names))
        result = mod.with_functions(done)
        return infer_types(result) if result is not mod else mod


class _Names:
    """Names for new functions that no function of the module has."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, base: str) -> str:
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


@dataclass(eq=False)
class _Closure:
    """A function within a function, and what becomes of it."""

    node: Function
    scope: Scope
    name: str
    let: Let | None = None
    free: dict[int, Var] = field(default_factory=dict)
    """Variables from outside, used otherwise than by calls of known closures."""
    calls: dict[int, _Closure] = field(default_factory=dict)
    """Closures that are bound outside and called within."""
    captures: list[Var] = field(default_factory=list)
    used_inside: bool = False
    """Whether its own variable is a value within it."""
    used_outside: bool = False
    """Whether its variable is a value where it is bound."""


def _has_closures(function: Function) -> bool:
    return any(node is not function and _is_closure(node) for node in post_order(function))


def _is_closure(node: Expr) -> TypeGuard[Function]:
    """Whether a function is to be lifted: not one that is sealed or only calls one of the module."""
    if not isinstance(node, Function) or is_sealed(node):
        return False
    body = node.body
    is_call = isinstance(body, Call) and isinstance(body.op, GlobalVar) and all(is_atom(arg) for arg in body.args)
    count = len(node.params)
    return not (is_call and isinstance(body, Call) and (not count or body.args[-count:] == node.params))


def _lifted(name: str, function: Function, effects: Effects, names: _Names) -> dict[str, Function]:
    """The function without closures, and those that were lifted out of it, by name."""
    function = to_basic_blocks(function, effects)
    tree = scope_tree(function)
    closures = _find_closures(name, function, tree, names)
    known = {id(each.let.var): each for each in closures.values() if each.let is not None}
    _find_captures(closures, known, tree)
    return {name: function, **_Lifter(closures, known, _type_params(tree)).run(name, function, tree)}


def _find_closures(name: str, function: Function, tree: ScopeTree, names: _Names) -> dict[int, _Closure]:
    """By the id of its node: every closure, one that is bound by a let before those in the let's body, outer first."""
    lets: dict[int, Let] = {}
    for node in tree.order:
        if isinstance(node, Let):
            lets.setdefault(id(node.value), node)
    found: dict[int, _Closure] = {}
    seen: set[int] = set()
    stack: list[Expr] = [function]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if is_sealed(node) and node is not function:
            continue
        if _is_closure(node) and node is not function:
            let = lets.get(id(node))
            fresh = names.fresh(f"{name}_{(let.var.name_hint if let is not None else '') or 'lambda'}")
            found[id(node)] = _Closure(node, tree.inner[id(node)][0], fresh, let)
        stack.extend(reversed(node.children()))
    return found


def _find_captures(closures: Mapping[int, _Closure], known: Mapping[int, _Closure], tree: ScopeTree) -> None:
    by_scope = {id(each.scope): each for each in closures.values()}
    homes = _homes(tree)
    for node in tree.order:
        for position, (child, scope) in enumerate(uses_in(tree, node)):
            if isinstance(child, Var) and id(child) in homes:
                called = position == 0 and isinstance(node, Call) and node.op is child
                _note_use(child, scope, known.get(id(child)), called, homes[id(child)], by_scope)
    for each in closures.values():
        found = dict(each.free)
        for callee in each.calls.values():
            if callee is not each:
                found.update((id(var), var) for var in callee.captures)
        each.captures = [var for key, var in found.items() if not _is_gone(known.get(key), each)]


def _is_gone(bound: _Closure | None, user: _Closure) -> bool:
    """Whether a variable of a closure is none any more where `user` needs its value."""
    return bound is not None and (bound is user or not bound.captures)


def _note_use(
    var: Var, scope: Scope, known: _Closure | None, called: bool, home: Scope, by_scope: Mapping[int, _Closure]
) -> None:
    if known is not None and not called:
        if common_scope(scope, known.scope) is known.scope:
            known.used_inside = True
        else:
            known.used_outside = True
    where = scope.function
    while where is not home:
        closure = by_scope.get(id(where))
        if closure is not None:
            if id(var) in (closure.calls if called and known else closure.free):
                return
            if called and known is not None:
                closure.calls[id(var)] = known
            else:
                closure.free[id(var)] = var
        assert where.parent is not None
        where = where.parent.function


def _homes(tree: ScopeTree) -> dict[int, Scope]:
    """By variable: the body of the function that binds it, or in which it is bound."""
    found: dict[int, Scope] = {}
    for node in tree.order:
        if isinstance(node, Function):
            found.update((id(var), tree.inner[id(node)][0]) for var in node.params)
        else:
            found.update((id(var), tree.placed[id(node)].function) for var in node.binders())
    return found


def _type_params(tree: ScopeTree) -> dict[TypeVar, None]:
    """Every type parameter of a function and of those within it."""
    return {each: None for node in tree.order if isinstance(node, Function) for each in node.type_params}


@dataclass
class _Lifter:
    closures: Mapping[int, _Closure]
    known: Mapping[int, _Closure]
    type_params: Mapping[TypeVar, None]
    done: dict[int, Expr] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    def run(self, name: str, root: Function, tree: ScopeTree) -> dict[str, Function]:
        for key, each in self.known.items():
            if not each.captures:
                self.done[key] = GlobalVar(each.name)
        for node in tree.order:
            if id(node) not in self.done:
                self.done[id(node)] = self._rewritten(node)
        result = self.done[id(root)]
        assert isinstance(result, Function)
        return {name: result, **self.functions}

    def _rewritten(self, node: Expr) -> Expr:
        closure = self.closures.get(id(node))
        if closure is not None:
            self.functions[closure.name] = self._function(closure)
            return self._value(closure)
        if isinstance(node, Let) and (bound := self.known.get(id(node.var))) is not None and bound.let is node:
            keep = bound.captures and bound.used_outside
            return (
                node.with_children([self.done[id(child)] for child in node.children()])
                if keep
                else self.done[id(node.body)]
            )
        if isinstance(node, Call) and isinstance(node.op, Expr):
            callee = self.known.get(id(node.op)) or self.closures.get(id(node.op))
            if callee is not None:
                args = [*self._captured(callee), *(self.done[id(arg)] for arg in node.args)]
                return Call(GlobalVar(callee.name), args, node.attrs, node.span)
        return node.with_children([self.done[id(child)] for child in node.children()])

    def _captured(self, closure: _Closure) -> list[Expr]:
        return [self.done.get(id(var), var) for var in closure.captures]

    def _value(self, closure: _Closure, inside: bool = False) -> Expr:
        """What stands for a closure as a value; within itself, where its type parameters are bound, it has none."""
        callee = GlobalVar(closure.name)
        if not closure.captures:
            return callee
        node = closure.node
        params = [_fresh(param) for param in node.params]
        body = Call(callee, [*self._captured(closure), *params])
        if inside or not node.type_params:
            return Function(params, body, span=node.span)
        return Function(params, body, node.ret_type, node.type_params, span=node.span)

    def _function(self, closure: _Closure) -> Function:
        node = closure.node
        renamed: dict[Expr, Expr] = {var: _declared(var) for var in closure.captures}
        body = self.done[id(node.body)]
        if closure.let is not None and closure.captures and closure.used_inside:
            own = Var(closure.let.var.name_hint, span=closure.let.var.span)
            body = Let(
                own, self._value(closure, inside=True), substitute(body, {closure.let.var: own}), closure.let.span
            )
        params = [*(var for var in renamed.values() if isinstance(var, Var)), *node.params]
        body = substitute(body, renamed)
        return Function(params, body, node.ret_type, self._generic(params, node), node.attrs, node.span)

    def _generic(self, params: Sequence[Var], node: Function) -> list[TypeVar]:
        """The type parameters on which a lifted function's parameters depend."""
        used = {kind for param in params if param.has_type for kind in _type_vars(param.checked_type)}
        return [each for each in self.type_params if each in used or each in node.type_params]


def _type_vars(kind: Type) -> Iterator[TypeVar]:
    stack = [kind]
    while stack:
        top = stack.pop()
        if isinstance(top, TypeVar):
            yield top
        stack.extend(type_children(top))


def _declared(var: Var) -> Var:
    return Var(var.name_hint, var.checked_type if var.has_type else var.type_annotation, var.span)


def _fresh(var: Var) -> Var:
    copy = Var(var.name_hint, var.type_annotation, var.span)
    if not copy.has_type and var.has_type:
        copy.set_checked_type(var.checked_type)
    return copy
