"""Equality and digests of programs up to the names of what is bound in them; knows nothing of text or inferred types.

A program is taken as a canonical sequence of records, one per node, children before parents, each naming its children
by their place in the sequence. Sharing is therefore part of the structure: a node used twice is one record, two equal
nodes are two. Constants that are structure, globals and constructors are compared by content wherever they stand;
weights are slots, numbered in the order of first use, and shared where they are one object. Variables are numbered in
the order of first use, type parameters by how many are bound around them, holes in the order of first use.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from struct import pack
from typing import Any, TypeAlias

import numpy as np

from relaybuild.digest import Hasher, Value, encode_value
from relaybuild.errors import InternalError, UserError
from relaybuild.ir.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
    subpatterns,
)
from relaybuild.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Attrs, Op
from relaybuild.ir.types import (
    Dim,
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
)
from relaybuild.ir.visitor import free_vars, post_order

Program: TypeAlias = "Expr | IRModule | Type | TypeData"
MAX_ATTR_DEPTH = 64
"""How deep the lists in an attribute may be nested."""

_function_digests: weakref.WeakKeyDictionary[Function, tuple[str, tuple[Constant, ...]]] = weakref.WeakKeyDictionary()
_names: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
_module_digests: weakref.WeakKeyDictionary[IRModule, str] = weakref.WeakKeyDictionary()


def structural_equal(a: Program, b: Program, map_free_vars: bool = True) -> bool:
    """Whether two programs are the same up to the names of what they bind; weights must have equal contents.

    NaN equals NaN, and -0.0 differs from 0.0. Free variables are taken for each other in the order of first use,
    unless `map_free_vars` is false: then each must be the same variable. A hole in a type that stands alone is equal
    to itself only.
    """
    if a is b:
        return True
    if isinstance(a, Expr) and isinstance(b, Expr) and not map_free_vars:
        mine, theirs = free_vars(a), free_vars(b)
        if len(mine) != len(theirs) or any(x is not y for x, y in zip(mine, theirs)):
            return False
    if isinstance(a, Type) and isinstance(b, Type) and _holes(a) != _holes(b):
        return False
    return all(x == y for x, y in zip_longest(_records(a), _records(b)))


def structural_hash(program: Program) -> int:
    """A number that structurally equal programs share, the same in every process."""
    return int(structural_digest(program, include_weights=True)[:16], 16)


def structural_digest(program: Program, include_weights: bool = False) -> str:
    """The SHA-256, in hexadecimal, of a program's structure.

    A weight counts as its slot and type, so that a retrained model keeps its digest; with `include_weights` its
    contents count too.
    """
    if include_weights:
        return _digest(_records(program))
    if isinstance(program, Function):
        return _function_digest(program)[0]
    if isinstance(program, IRModule):
        return _module_digest(program)
    return _digest(_records(program, include_weights=False))


def weight_slots(program: Expr | IRModule) -> list[Constant]:
    """The weights of a program, each object once: the index of one in this list is its slot."""
    roots = list(program.functions.values()) if isinstance(program, IRModule) else [program]
    found: dict[int, Constant] = {}
    for root in roots:
        for node in post_order(root):
            if isinstance(node, Constant) and node.is_weight:
                found.setdefault(id(node), node)
    return list(found.values())


def constant_digest(constant: Constant) -> str:
    """The SHA-256 of a constant's type and elements in row-major order, every NaN taken as one."""
    data = constant.data
    if data.dtype.byteorder == ">":
        data = data.astype(data.dtype.newbyteorder("<"))
    if data.dtype.kind in "fV" and np.isnan(data).any():
        data = np.where(np.isnan(data), np.array(np.nan, dtype=data.dtype), data)
    state = hashlib.sha256(f"{data.dtype.name} {data.shape} ".encode())
    state.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if data.size else b"")
    return state.hexdigest()


def attr_value(value: object, depth: int = 0) -> Value:
    """An attribute as a hashable value: lists are tuples, numpy scalars Python's.

    Raises UserError for other types, and for lists nested deeper than `MAX_ATTR_DEPTH`.
    """
    if isinstance(value, (tuple, list)):
        if depth >= MAX_ATTR_DEPTH:
            raise UserError(f"an attribute of lists nested deeper than {MAX_ATTR_DEPTH}")
        return tuple(attr_value(item, depth + 1) for item in value)
    if isinstance(value, np.generic):
        return attr_value(value.item(), depth)
    if isinstance(value, float):
        return float("nan") if value != value else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise UserError(
        f"found an attribute of type '{type(value).__name__}', "
        "expected a number, a string, True, False, None or a list of such"
    )


def _function_digest(function: Function) -> tuple[str, tuple[Constant, ...]]:
    """A function's digest and its weights by slot."""
    found = _function_digests.get(function)
    if found is None:
        canonical = _Canonical(function, include_weights=False)
        found = _function_digests[function] = (_digest(canonical.records()), tuple(canonical.weights))
    return found


def _module_digest(mod: IRModule) -> str:
    # a subclass may change in place
    known = _module_digests.get(mod) if type(mod) is IRModule else None
    if known is not None:
        return known
    hasher = Hasher("relay.module.2")
    for record in _module_head(mod):
        hasher.field("head", record)
    slots: dict[int, int] = {}
    for name, function in mod.functions.items():
        digest, weights = _function_digest(function)
        hasher.field("name", name).field("function", digest)
        hasher.field("slots", tuple(slots.setdefault(id(weight), len(slots)) for weight in weights))
    found = hasher.digest().hex
    if type(mod) is IRModule:
        _module_digests[mod] = found
    return found


def _digest(records: Iterator[bytes]) -> str:
    hasher = Hasher("relay.expr.2")
    for record in records:
        hasher.field("node", record)
    return hasher.digest().hex


def _records(program: Program, include_weights: bool = True) -> Iterator[bytes]:
    """The canonical sequence; the first record of one kind of program occurs in no other."""
    if isinstance(program, IRModule):
        yield from _module_records(program, include_weights)
    elif isinstance(program, Expr):
        yield from _Canonical(program, include_weights).records()
    elif isinstance(program, TypeData):
        yield encode_value(("definition", _definition(program)))
    else:
        yield encode_value(("type", _Types().encoded(program)))


def _module_head(mod: IRModule) -> Iterator[bytes]:
    yield encode_value(("module", _attrs(mod.attrs)))
    for data in mod.type_definitions.values():
        yield encode_value(("definition", _definition(data)))


def _module_records(mod: IRModule, include_weights: bool) -> Iterator[bytes]:
    yield from _module_head(mod)
    slots: dict[int, int] = {}
    for name, function in mod.functions.items():
        canonical = _Canonical(function, include_weights)
        yield encode_value(("name", name))
        yield from canonical.records()
        yield encode_value(("slots", *(slots.setdefault(id(each), len(slots)) for each in canonical.weights)))


def _definition(data: TypeData) -> Value:
    types = _Types()
    types.bind(data.type_vars)
    constructors = [(each.name, *(types.encoded(kind) for kind in each.inputs)) for each in data.constructors]
    return (data.name, len(data.type_vars), *constructors)


class _Types:
    """Types as values, their parameters named by the number of parameters bound around them."""

    def __init__(self) -> None:
        self._levels: dict[str, list[int]] = {}
        self._bound = 0
        self._holes: dict[int, int] = {}

    def bind(self, params: Sequence[TypeVar]) -> None:
        """Enter the scope of type parameters."""
        for param in params:
            self._levels.setdefault(param.name, []).append(self._bound)
            self._bound += 1

    def release(self, params: Sequence[TypeVar]) -> None:
        """Leave the scope of type parameters."""
        for param in params:
            self._levels[param.name].pop()
            self._bound -= 1

    def encoded(self, kind: Type | None) -> Value:
        """A type as a value: a tensor's, or one for each type within, outer before inner, with the number of its parts.

        So it is no deeper for a deep type.
        """
        if kind is None:
            return None
        if isinstance(kind, TensorType):
            return self._head(kind)
        found: list[Value] = []
        stack: list[Type | tuple[TypeVar, ...]] = [kind]
        while stack:
            top = stack.pop()
            if isinstance(top, tuple):
                self.release(top)
                continue
            found.append(self._head(top))
            if isinstance(top, FuncType):
                self.bind(top.type_params)
                stack.append(top.type_params)
            stack.extend(reversed(type_children(top)))
        return tuple(found)

    def _head(self, kind: Type) -> Value:
        """A type without the types within it."""
        if isinstance(kind, TensorType):
            return ("tensor", kind.dtype, *(_extent(extent) for extent in kind.shape))
        if isinstance(kind, TypeVar):
            levels = self._levels.get(kind.name)
            return ("param", levels[-1]) if levels else ("typevar", kind.name)
        if isinstance(kind, FuncType):
            return ("fn", len(kind.type_params), len(kind.arg_types))
        if isinstance(kind, IncompleteType):
            return ("hole", self._holes.setdefault(id(kind), len(self._holes)))
        if isinstance(kind, GlobalTypeVar):
            return ("adt", kind.name, 0)
        if isinstance(kind, TypeCall):
            return ("adt", kind.head.name, len(kind.args))
        if isinstance(kind, TupleType):
            return ("tuple", len(kind.fields))
        if isinstance(kind, RefType):
            return ("ref",)
        raise InternalError(f"no digest of the type {kind}")


class _Canonical:
    """The canonical sequence of one expression."""

    def __init__(self, root: Expr, include_weights: bool) -> None:
        self._root = root
        self._include_weights = include_weights
        self._places: dict[int, int] = {}
        self._variables: dict[int, int] = {}
        self._values: dict[bytes, int] = {}
        self._types = _Types()
        self._length = 0
        self._calls: dict[str, bytes] = {}
        self.weights: list[Constant] = []
        """The weights met so far, by slot."""

    def records(self) -> Iterator[bytes]:
        entered: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(self._root, False)]
        while stack:
            node, expanded = stack.pop()
            if not expanded:
                if id(node) in entered:
                    continue
                entered.add(id(node))
                children = node.children()
                if isinstance(node, Function):
                    self._types.bind(node.type_params)
                stack.append((node, True))
                stack.extend([(child, False) for child in reversed(children) if id(child) not in entered])
                continue
            record = self._record(node)
            if isinstance(node, (Constant, GlobalVar, Constructor)) and self._is_known(node, record):
                continue
            yield record
            self._places[id(node)] = self._length
            self._length += 1

    def _is_known(self, node: Expr, record: bytes) -> bool:
        """Whether a node that is known by its content has a record already."""
        if isinstance(node, Constant) and node.is_weight:
            return False
        place = self._values.setdefault(record, self._length)
        self._places[id(node)] = place
        return place < self._length

    def _record(self, node: Expr) -> bytes:
        places = self._places
        children = [places[id(child)] for child in node.children()]
        head = self._call(node) if isinstance(node, Call) else encode_value(self._head(node))
        return pack(f"<q{len(children)}q", len(head), *children) + head

    def _call(self, node: Call) -> bytes:
        if node.attrs is None or _attr_names(node.attrs):
            return encode_value(("call", node.op_name, _call_attrs(node)))
        name = node.op_name
        if name not in self._calls:
            self._calls[name] = encode_value(("call", name, ()))
        return self._calls[name]

    def _head(self, node: Expr) -> tuple[Value, ...]:
        if isinstance(node, Var):
            return ("var", self._variable(node))
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, TupleGetItem):
            return ("field", node.index)
        if isinstance(node, Function):
            return self._function(node)
        if isinstance(node, Let):
            return ("let", self._variable(node.var))
        if isinstance(node, Match):
            return ("match", node.complete, *(self._pattern(clause.pattern) for clause in node.clauses))
        if isinstance(node, GlobalVar):
            return ("global", node.name_hint)
        if isinstance(node, Constructor):
            return ("constructor", *self._constructor(node))
        kind = _PLAIN.get(type(node))
        if kind is None:
            raise InternalError(f"no digest of a {type(node).__name__}")
        return (kind,)

    def _variable(self, var: Var) -> Value:
        place = self._variables.setdefault(id(var), len(self._variables))
        return (place, self._types.encoded(var.type_annotation))

    def _constant(self, node: Constant) -> tuple[Value, ...]:
        if not node.is_weight:
            return ("constant", constant_digest(node))
        self.weights.append(node)
        kind = self._types.encoded(node.checked_type)
        return ("weight", len(self.weights) - 1, kind, constant_digest(node) if self._include_weights else None)

    def _function(self, node: Function) -> tuple[Value, ...]:
        params = tuple(self._variable(param) for param in node.params)
        result = self._types.encoded(node.ret_type)
        self._types.release(node.type_params)
        return ("function", params, len(node.type_params), result, _attrs(node.attrs))

    def _constructor(self, constructor: Constructor) -> tuple[Value, ...]:
        inputs: Value
        if constructor.has_type:
            inputs = _Types().encoded(constructor.checked_type)
        else:
            inputs = tuple(self._types.encoded(kind) for kind in constructor.inputs)
        return (constructor.belongs_to.name, constructor.name, inputs)

    def _pattern(self, pattern: Pattern) -> Value:
        """A pattern as a value: one for each pattern within, outer before inner, with the number of its parts."""
        return tuple(self._pattern_head(inner) for inner in subpatterns(pattern))

    def _pattern_head(self, pattern: Pattern) -> Value:
        if isinstance(pattern, PatternVar):
            return ("var", self._variable(pattern.var))
        if isinstance(pattern, PatternConstructor):
            return ("constructor", self._constructor(pattern.constructor), len(pattern.patterns))
        if isinstance(pattern, PatternTuple):
            return ("tuple", len(pattern.patterns))
        return ("wildcard",)


_PLAIN: Mapping[type[Expr], str] = {
    Tuple: "tuple",
    If: "if",
    RefCreate: "ref",
    RefRead: "ref_read",
    RefWrite: "ref_write",
}


def _holes(kind: Type) -> list[int]:
    """The identities of the holes in a type, from left to right."""
    found = []
    stack = [kind]
    while stack:
        top = stack.pop()
        if isinstance(top, IncompleteType):
            found.append(id(top))
        stack.extend(reversed(type_children(top)))
    return found


def _call_attrs(node: Call) -> Value:
    attrs = node.attrs
    if attrs is None and isinstance(node.op, Op):
        attrs = _default_attrs(node.op)
    if attrs is None:
        return None
    return tuple([(name, attr_value(getattr(attrs, name))) for name in _attr_names(attrs)])


def _attr_names(attrs: Attrs) -> tuple[str, ...]:
    """The names of the fields of a record of attributes, sorted."""
    kind = type(attrs)
    found = _names.get(kind)
    if found is None:
        found = _names[kind] = tuple(sorted(item.name for item in fields(attrs)))
    return found


def _default_attrs(op: Op) -> Attrs | None:
    try:
        return op.make_attrs({})
    except TypeError:
        return None


def _attrs(attrs: Mapping[str, Any]) -> Value:
    return tuple((name, attr_value(attrs[name])) for name in sorted(attrs))


def _extent(extent: object) -> Value:
    return ("dim", extent.name) if isinstance(extent, Dim) else int(str(extent))
