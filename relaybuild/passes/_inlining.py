"""Copies of functions, and calls replaced by what they call; does not know which calls to replace.

A call becomes lets of the parameters around the body. `without_lets` then takes away those that fix nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar as PyTypeVar

from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.scopes import ScopeTree, is_atom, scope_tree
from relaybuild.ir.types import ANY, Dim, Extent, TensorType, Type, TypeVar, type_children, type_with_children
from relaybuild.ir.visitor import post_order
from relaybuild.passes._blocks import recursive_lets
from relaybuild.passes._effects import Effects

E = PyTypeVar("E", bound=Expr)


class Introduced:
    """Variables of lets that only take arguments: none of them is something the user asked to fix."""

    def __init__(self) -> None:
        # the variables are kept, so that the id of one is not given to another
        self._variables: dict[int, Var] = {}

    def add(self, var: Var) -> None:
        self._variables[id(var)] = var

    def __contains__(self, var: Var) -> bool:
        return id(var) in self._variables

    def __bool__(self) -> bool:
        return bool(self._variables)


def fresh_copy(
    root: E,
    introduced: Introduced,
    replacements: Mapping[int, Expr] | None = None,
    bindings: Mapping[object, object] | None = None,
) -> E:
    """An expression built anew, with variables of its own for those it binds.

    Nothing but variables, constants and globals is shared with the original, so that both may stand in one function
    and an effect in it happens for each. A copy of an introduced variable is introduced. `replacements`, by id, stand
    for nodes; `bindings` are of type variables and named dimensions.
    """
    order = list(post_order(root))
    done = dict(replacements or {})
    for node in order:
        for var in node.binders():
            if id(var) not in done:
                done[id(var)] = fresh = _fresh_var(var, bindings or {})
                if var in introduced:
                    introduced.add(fresh)
    for node in order:
        if id(node) not in done:
            done[id(node)] = node if is_atom(node) else _copied(node, done, bindings or {})
    result = done[id(root)]
    assert isinstance(result, type(root))
    return result


def applied(
    function: Function,
    args: Sequence[Expr],
    introduced: Introduced,
    from_outside: Callable[[], Mapping[int, Expr]] = dict,
    copy: bool = True,
) -> Expr:
    """What a call of the function comes to: its body, in lets of its parameters, which are introduced.

    With `copy=False` the body itself is used, which must then stand nowhere else; it is copied all the same where the
    arguments have other types than the parameters. `from_outside` gives the nodes, by id, that the body uses and that
    are computed outside the function.
    """
    if not copy and all(param._type == arg._type for param, arg in zip(function.params, args)):
        return _in_lets(function.params, args, function.body, introduced)
    bindings: dict[object, object] = {}
    for param, arg in zip(function.params, args):
        if param.has_type and arg.has_type:
            _bind_type(param.checked_type, arg.checked_type, bindings)
    params = [_var_for(param, arg) for param, arg in zip(function.params, args)]
    replacements = {**from_outside(), **{id(old): new for old, new in zip(function.params, params)}}
    return _in_lets(params, args, fresh_copy(function.body, introduced, replacements, bindings), introduced)


def without_lets(function: Function, effects: Effects, wanted: Callable[[Let], bool]) -> Function:
    """The function without the lets of `wanted` that fix nothing: their values stand where the variables did.

    A let stays where its value has an effect, where it is a recursive function, and where a function in its body alone
    needs a value that would then be computed at each call.
    """
    tree = scope_tree(function)
    recursive = recursive_lets(tree)
    gone = {
        id(node.var): node.value
        for node in tree.order
        if isinstance(node, Let) and id(node) not in recursive and wanted(node) and _fixes_nothing(node, tree, effects)
    }
    return replace_bound(function, tree.order, gone)


def replace_bound(function: Function, order: Sequence[Expr], values: Mapping[int, Expr]) -> Function:
    """The function without the lets of some variables, given by id, their values in the variables' places."""
    if not values:
        return function
    done: dict[int, Expr] = {}
    for node in order:
        if isinstance(node, Var) and id(node) in values:
            done[id(node)] = done[id(values[id(node)])]
        elif isinstance(node, Let) and id(node.var) in values:
            done[id(node)] = done[id(node.body)]
        else:
            done[id(node)] = node.with_children([done[id(child)] for child in node.children()])
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


def _fixes_nothing(let: Let, tree: ScopeTree, effects: Effects) -> bool:
    if id(let.value) in effects.any:
        return False
    if is_atom(let.value) or isinstance(let.value, Function) or id(let.var) not in tree.placed:
        return True
    return tree.placed[id(let.var)].function is tree.inner[id(let)][0].function


def _in_lets(params: Sequence[Var], args: Sequence[Expr], body: Expr, introduced: Introduced) -> Expr:
    for param, arg in zip(reversed(params), reversed(args)):
        introduced.add(param)
        body = Let(param, arg, body, arg.span)
    return body


def _var_for(param: Var, arg: Expr) -> Var:
    var = Var(param.name_hint, span=param.span)
    if arg.has_type:
        var.set_checked_type(arg.checked_type)
    return var


def _fresh_var(var: Var, bindings: Mapping[object, object]) -> Var:
    annotation = var.type_annotation
    copy = Var(var.name_hint, _substituted(annotation, bindings) if annotation is not None else None, var.span)
    if not copy.has_type and var.has_type:
        copy.set_checked_type(_substituted(var.checked_type, bindings))
    return copy


def _copied(node: Expr, done: Mapping[int, Expr], bindings: Mapping[object, object]) -> Expr:
    copy = node.with_children([done[id(child)] for child in node.children()])
    binders = [done[id(var)] for var in node.binders()]
    copy = copy.with_binders([var for var in binders if isinstance(var, Var)])
    if isinstance(copy, Function) and copy.ret_type is not None and bindings:
        result = _substituted(copy.ret_type, bindings)
        copy = Function(copy.params, copy.body, result, copy.type_params, copy.attrs, copy.span)
    return shallow_copy(copy) if copy is node else copy


def shallow_copy(node: E) -> E:
    """Another node of the same fields and type."""
    copy = object.__new__(type(node))
    for base in type(node).__mro__:
        for slot in getattr(base, "__slots__", ()):
            if slot != "__weakref__":
                object.__setattr__(copy, slot, getattr(node, slot))
    return copy


def _bind_type(pattern: Type, found: Type, bindings: dict[object, object]) -> None:
    """Note what the type variables and named dimensions of a parameter's type are in that of an argument."""
    stack = [(pattern, found)]
    while stack:
        wanted, given = stack.pop()
        if isinstance(wanted, TypeVar):
            bindings.setdefault(wanted, given)
        elif isinstance(wanted, TensorType) and isinstance(given, TensorType):
            for name, extent in zip(wanted.shape, given.shape):
                if isinstance(name, Dim) and name != ANY:
                    bindings.setdefault(name, extent)
        elif type(wanted) is type(given):
            stack.extend(zip(type_children(wanted), type_children(given)))


def _substituted(kind: Type, bindings: Mapping[object, object]) -> Type:
    if not bindings:
        return kind
    if isinstance(kind, TypeVar):
        bound = bindings.get(kind, kind)
        return bound if isinstance(bound, Type) else kind
    if isinstance(kind, TensorType):
        return TensorType(tuple(_extent(extent, bindings) for extent in kind.shape), kind.dtype)
    children = type_children(kind)
    return type_with_children(kind, [_substituted(child, bindings) for child in children]) if children else kind


def _extent(extent: Extent, bindings: Mapping[object, object]) -> Extent:
    bound = bindings.get(extent, extent) if isinstance(extent, Dim) else extent
    return bound if isinstance(bound, (int, Dim)) else extent
