"""Holes in types and what they stand for: unification by union-find; knows nothing of expressions.

A hole is an `IncompleteType`; a hole for an extent is a `Dim` that `Holes` made. A type object is *open* when a hole
was in it when it was made; the openness of the types at hand is remembered by object, so that closed types, nearly
all of them, are never looked into.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.types import (
    ANY,
    Dim,
    Extent,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    type_children,
    type_parts,
    type_with_children,
)


class Mode(Enum):
    """What an unknown extent `?` agrees with."""

    ACCEPT = "accept"
    """A wanted `?` takes every extent found; a wanted number or name does not take `?`."""
    JOIN = "join"
    """`?` on either side agrees with every extent."""
    EXACT = "exact"
    """`?` agrees with `?` alone."""


@dataclass(frozen=True, slots=True)
class _Rigid(TypeVar):
    """What a parameter of a polymorphic type stands for while the type is compared: itself alone."""

    scope: int


@dataclass(frozen=True)
class _Scope:
    """The end of a polymorphic type that is compared: what its parameters stand for, and the holes outside of it."""

    parameters: Sequence[_Rigid]
    outside: Sequence[IncompleteType]


_Pair: TypeAlias = "tuple[Type, Type, Mode] | _Scope"

POISON = IncompleteType()
"""The type of what has been reported as wrong: agrees with every type, so that nothing is reported twice."""


class Holes:
    """The holes of one inference. `ready` are the items whose hole has been filled since they were handed to `wait`."""

    def __init__(self) -> None:
        self.ready: deque[Any] = deque()
        self._bound: dict[IncompleteType, Type] = {}
        self._waiting: dict[IncompleteType, list[Any]] = {}
        self._rank: dict[IncompleteType, int] = {}
        self._dims: dict[str, Extent | None] = {}
        self._open: dict[int, Type] = {}
        self._closed: dict[int, Type] = {}
        self._left = 0
        self._scopes = 0

    def fresh(self, rank: int = 0) -> IncompleteType:
        """A new hole; of two that become one, that of the higher rank remains."""
        hole = IncompleteType()
        self._left += 1
        if rank:
            self._rank[hole] = rank
        return hole

    @property
    def any_left(self) -> bool:
        """Whether a hole has not been filled."""
        return self._left > 0

    def note(self, kind: Type) -> Type:
        """The type itself, after remembering which parts of it, made elsewhere, are open."""
        for part in type_parts(kind):
            self._left += isinstance(part, IncompleteType)
            self.compose(part)
        return kind

    def compose(self, kind: Type) -> Type:
        """The type itself, just made of parts at hand, remembered as open where one of them is."""
        if isinstance(kind, TensorType):
            is_open = any(isinstance(extent, Dim) and extent.name in self._dims for extent in kind.shape)
        else:
            is_open = any(self.is_open(child) for child in type_children(kind))
        if is_open:
            self._open[id(kind)] = kind
        return kind

    def is_open(self, kind: Type) -> bool:
        """Whether a hole was in the type when it was made."""
        return id(kind) in self._open or isinstance(kind, IncompleteType)

    def head(self, kind: Type) -> Type:
        """The type, or what fills it where it is a hole; holes further inside stay."""
        if not isinstance(kind, IncompleteType) or kind not in self._bound:
            return kind
        path = []
        top: Type = kind
        while isinstance(top, IncompleteType) and top in self._bound:
            path.append(top)
            top = self._bound[top]
        for hole in path:
            self._bound[hole] = top
        return top

    def resolve(self, kind: Type) -> Type:
        """The type with every filled hole replaced; the same object where there is none."""
        if not isinstance(kind, IncompleteType):
            return self._resolve_open(kind) if id(kind) in self._open else kind
        found = self.head(kind)
        if id(found) in self._open:
            found = self._bound[kind] = self._resolve_open(found)
        return found

    def _resolve_open(self, kind: Type) -> Type:
        done: dict[int, Type] = {}
        stack = [(kind, False)]
        while stack:
            part, expanded = stack.pop()
            top = self.head(part)
            known = self._closed.get(id(top), None if id(top) in self._open else top)
            if known is not None:
                done[id(part)] = known
            elif expanded or isinstance(top, TensorType):
                done[id(part)] = self._rebuilt(top, done)
            else:
                stack.append((part, True))
                stack.extend((child, False) for child in type_children(top) if id(child) not in done)
        return done[id(kind)]

    def _rebuilt(self, kind: Type, parts: Mapping[int, Type]) -> Type:
        """An open type over its resolved parts."""
        if isinstance(kind, TensorType):
            shape = tuple(self._extent(extent) for extent in kind.shape)
            result: Type = kind if shape == kind.shape else self.compose(TensorType(shape, kind.dtype))
        else:
            result = self._with_parts(kind, [parts[id(child)] for child in type_children(kind)])
        if not self.is_open(result):
            self._closed[id(kind)] = result
        return result

    def unsolved(self, *kinds: Type) -> Iterator[IncompleteType]:
        """The holes left in types, from left to right; what types share is looked into once."""
        seen: set[int] = set()
        stack = list(reversed(kinds))
        while stack:
            top = self.head(stack.pop())
            if isinstance(top, IncompleteType):
                yield top
            elif id(top) in self._open and id(top) not in self._closed and id(top) not in seen:
                seen.add(id(top))
                stack.extend(reversed(type_children(top)))

    def wait(self, hole: IncompleteType, item: Any) -> None:
        """Put `item` into `ready` once the hole is filled."""
        self._waiting.setdefault(hole, []).append(item)

    def has_open_extents(self, kind: Type) -> bool:
        """Whether a resolved type has extents that are not known yet."""
        stack = [kind]
        while stack:
            top = stack.pop()
            if self.is_open(top):
                if isinstance(top, TensorType):
                    return True
                stack.extend(type_children(top))
        return False

    def settle_extents(self) -> None:
        """Take every extent that is still not known for `?`."""
        for name, found in self._dims.items():
            if found is None:
                self._dims[name] = ANY

    def settle(self, hole: IncompleteType, kind: Type) -> None:
        """Fill a hole of no rank for which nothing waits, if it has not been filled."""
        found = self.head(hole)
        is_free = isinstance(found, IncompleteType) and found not in self._waiting and found not in self._rank
        if is_free and found is not POISON:
            self.unify(found, kind)

    def poison(self, *kinds: Type) -> None:
        """Fill the holes left in types with what agrees with everything."""
        for kind in kinds:
            for hole in list(self.unsolved(kind)):
                if hole is not POISON and hole not in self._bound:
                    self._fill(hole, POISON)

    def unify(self, wanted: Type, found: Type, mode: Mode = Mode.ACCEPT) -> bool:
        """Whether a value of type `found` can stand where `wanted` is asked for, filling holes so that it can.

        What the type parameters of a polymorphic type stand for must not fill a hole that lies outside of it.
        """
        stack: list[_Pair] = [(wanted, found, mode)]
        while stack:
            top = stack.pop()
            if isinstance(top, _Scope):
                if self._escapes(top):
                    return False
                continue
            a, b, how = top
            if a is b:
                continue
            a, b = self.head(a), self.head(b)
            if a is b:
                continue
            if a is POISON or b is POISON:
                self.poison(a, b)
            elif isinstance(a, IncompleteType) or isinstance(b, IncompleteType):
                if not self._join_hole(a, b):
                    return False
            elif isinstance(a, TensorType) and isinstance(b, TensorType):
                if not self._unify_tensors(a, b, how):
                    return False
            else:
                parts = self._parts(a, b, how)
                if parts is None:
                    return False
                stack.extend(reversed(parts))
        return True

    def joined(self, a: Type, b: Type) -> Type:
        """The type of a value that has one of two types that unify under `Mode.JOIN`: `?` where either is unknown."""
        root = (self.resolve(a), self.resolve(b))
        done: dict[tuple[int, int], Type] = {}
        stack = [(*root, False)]
        while stack:
            a, b, expanded = stack.pop()
            pairs = list(zip(type_children(a), type_children(b)))
            if expanded:
                done[id(a), id(b)] = self._with_parts(a, [done[id(x), id(y)] for x, y in pairs])
            elif isinstance(a, (TupleType, TypeCall)) and a is not b and pairs:
                stack.append((a, b, True))
                stack.extend((x, y, False) for x, y in pairs if (id(x), id(y)) not in done)
            else:
                done[id(a), id(b)] = self._joined_leaf(a, b)
        return done[id(root[0]), id(root[1])]

    def _joined_leaf(self, a: Type, b: Type) -> Type:
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            shape = tuple(x if x == y else ANY for x, y in zip(a.shape, b.shape))
            return a if shape == a.shape else self.compose(TensorType(shape, a.dtype))
        return b if isinstance(a, IncompleteType) else a

    def _with_parts(self, kind: Type, parts: Sequence[Type]) -> Type:
        """The type over other parts, itself where they are the same objects."""
        if all(new is old for new, old in zip(parts, type_children(kind))):
            return kind
        return self.compose(type_with_children(kind, parts))

    def instantiate(self, kind: FuncType, fixed: Collection[str] = ()) -> FuncType:
        """The function type with holes for its type parameters and for the names of its arguments' extents.

        Names in `fixed` stand for extents that are known outside, and stay.
        """
        names = {name for arg in kind.arg_types for name in extent_names(arg)} - set(fixed)
        if not names and not kind.type_params:
            return kind
        variables = {parameter: self.fresh() for parameter in kind.type_params}
        dims = {name: self._fresh_dim() for name in names if name not in self._dims}
        args = tuple(self.substitute(arg, variables, dims) for arg in kind.arg_types)
        result = FuncType(args, self.substitute(kind.ret_type, variables, dims))
        self.compose(result)
        return result

    def substitute(self, kind: Type, variables: Mapping[TypeVar, Type], dims: Mapping[str, Dim]) -> Type:
        """The type with its variables and its extents' names replaced."""
        done: dict[tuple[int, int], Type] = {}
        scopes = [variables]
        stack: list[tuple[Type, int, int | None]] = [(kind, 0, None)]
        while stack:
            top, scope, inner = stack.pop()
            children = type_children(top)
            if inner is not None:
                done[id(top), scope] = self._with_parts(top, [done[id(child), inner] for child in children])
            elif children:
                inner = _enter(top, scope, scopes)
                stack.append((top, scope, inner))
                stack.extend((child, inner, None) for child in children if (id(child), inner) not in done)
            else:
                done[id(top), scope] = self._substituted_leaf(top, scopes[scope], dims)
        return done[id(kind), 0]

    def _substituted_leaf(self, kind: Type, variables: Mapping[TypeVar, Type], dims: Mapping[str, Dim]) -> Type:
        if isinstance(kind, TypeVar):
            return variables.get(kind, kind)
        if not isinstance(kind, TensorType):
            return kind
        shape = tuple(dims.get(extent.name, extent) if isinstance(extent, Dim) else extent for extent in kind.shape)
        return kind if shape == kind.shape else self.compose(TensorType(shape, kind.dtype))

    def _fresh_dim(self) -> Dim:
        dim = Dim(f"?{len(self._dims)}")
        self._dims[dim.name] = None
        return dim

    def _extent(self, extent: Extent) -> Extent:
        while isinstance(extent, Dim):
            found = self._dims.get(extent.name)
            if found is None:
                return extent
            extent = found
        return extent

    def _join_hole(self, a: Type, b: Type) -> bool:
        """Fill whichever of two is a hole with the other."""
        if isinstance(a, IncompleteType) and isinstance(b, IncompleteType):
            if self._rank.get(a, 0) > self._rank.get(b, 0):
                a, b = b, a
            self._fill(a, b)
            return True
        hole, kind = (a, b) if isinstance(a, IncompleteType) else (b, a)
        assert isinstance(hole, IncompleteType)
        if any(inner is hole for inner in self.unsolved(kind)):
            return False
        self._fill(hole, kind)
        return True

    def _fill(self, hole: IncompleteType, kind: Type) -> None:
        self._bound[hole] = kind
        self._left -= 1
        waiting = self._waiting.pop(hole, None)
        if waiting and isinstance(kind, IncompleteType) and kind is not POISON:
            self._waiting.setdefault(kind, []).extend(waiting)
        elif waiting:
            self.ready.extend(waiting)

    def _unify_tensors(self, wanted: TensorType, found: TensorType, mode: Mode) -> bool:
        if wanted.dtype != found.dtype or len(wanted.shape) != len(found.shape):
            return False
        if wanted.shape == found.shape:
            return True
        return all(self._unify_extents(a, b, mode) for a, b in zip(wanted.shape, found.shape))

    def _unify_extents(self, wanted: Extent, found: Extent, mode: Mode) -> bool:
        wanted, found = self._extent(wanted), self._extent(found)
        if wanted == found:
            return True
        for one, other in ((wanted, found), (found, wanted)):
            if isinstance(one, Dim) and one.name in self._dims:
                self._dims[one.name] = other
                return True
        return (wanted == ANY and mode is not Mode.EXACT) or (found == ANY and mode is Mode.JOIN)

    def _parts(self, a: Type, b: Type, mode: Mode) -> list[_Pair] | None:
        """The pairs of inner types that must agree for the outer ones to agree; None where they cannot."""
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            return self._function_parts(a, b, mode)
        a = TypeCall(a) if isinstance(a, GlobalTypeVar) else a
        b = TypeCall(b) if isinstance(b, GlobalTypeVar) else b
        if type(a) is not type(b):
            return None
        if isinstance(a, TypeCall) and isinstance(b, TypeCall) and a.head != b.head:
            return None
        inner_a, inner_b = type_children(a), type_children(b)
        if len(inner_a) != len(inner_b) or (not inner_a and a != b):
            return None
        inner_mode = Mode.EXACT if isinstance(a, RefType) else mode
        return [(x, y, inner_mode) for x, y in zip(inner_a, inner_b)]

    def _function_parts(self, a: FuncType, b: FuncType, mode: Mode) -> list[_Pair] | None:
        if len(a.arg_types) != len(b.arg_types):
            return None
        scopes: list[_Pair] = []
        if a.type_params:
            if len(a.type_params) != len(b.type_params):
                return None
            self._scopes += 1
            rigid = [_Rigid(parameter.name, self._scopes) for parameter in a.type_params]
            scopes = [_Scope(rigid, list(self.unsolved(a, b)))]
            a, b = self._renamed(a, rigid), self._renamed(b, rigid)
        elif b.type_params:
            b = self.instantiate(b)
        arguments: list[_Pair] = [(y, x, mode) for x, y in zip(a.arg_types, b.arg_types)]
        return [*arguments, (a.ret_type, b.ret_type, mode), *scopes]

    def _renamed(self, kind: FuncType, names: Sequence[TypeVar]) -> FuncType:
        variables: dict[TypeVar, Type] = dict(zip(kind.type_params, names))
        args = tuple(self.substitute(arg, variables, {}) for arg in kind.arg_types)
        return FuncType(args, self.substitute(kind.ret_type, variables, {}))

    def _escapes(self, scope: _Scope) -> bool:
        """Whether a hole outside of a polymorphic type has been filled with what its parameters stand for."""
        filled = (self.resolve(hole) for hole in scope.outside)
        return any(part in scope.parameters for kind in filled for part in type_parts(kind) if isinstance(part, _Rigid))


def _enter(kind: Type, scope: int, scopes: list[Mapping[TypeVar, Type]]) -> int:
    """The number of the variables that are known within a type: a function's own parameters hide those outside."""
    hidden = kind.type_params if isinstance(kind, FuncType) else ()
    if scopes[scope].keys().isdisjoint(hidden):
        return scope
    scopes.append({old: new for old, new in scopes[scope].items() if old not in hidden})
    return len(scopes) - 1


def extent_names(kind: Type) -> set[str]:
    """The names of the symbolic extents in a type, `?` not among them."""
    if isinstance(kind, TensorType) and all(type(extent) is int for extent in kind.shape):
        return set()
    tensors = (part for part in type_parts(kind) if isinstance(part, TensorType))
    return {extent.name for part in tensors for extent in part.shape if isinstance(extent, Dim) and extent != ANY}
