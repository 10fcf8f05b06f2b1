"""Equality and digests of programs up to the names of local variables; knows nothing of text or types inferred.

A program is taken as a canonical sequence of records, one per node, children before parents, each naming its children
by their place in the sequence. Sharing is therefore part of the structure: a node used twice is one record, two equal
nodes are two. Constants that are structure are compared by content wherever they stand; weights are slots, numbered in
the order of first use, and shared where they are one object.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from relaybuild.digest import Hasher, Value
from relaybuild.errors import InternalError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Attrs, Op
from relaybuild.ir.types import Dim, FuncType, TensorType, TupleType, Type, TypeVar
from relaybuild.ir.visitor import post_order

_memo: weakref.WeakKeyDictionary[Expr, str] = weakref.WeakKeyDictionary()


def structural_equal(a: Expr | IRModule, b: Expr | IRModule) -> bool:
    """Whether two programs are the same up to names of local variables; weights must have equal contents.

    NaN equals NaN, and -0.0 differs from 0.0.
    """
    if a is b:
        return True
    if isinstance(a, IRModule) != isinstance(b, IRModule):
        return False
    return structural_digest(a, include_weights=True) == structural_digest(b, include_weights=True)


def structural_digest(program: Expr | IRModule, include_weights: bool = False) -> str:
    """The SHA-256, in hexadecimal, of a program's structure.

    A weight counts as its slot and type, so that a retrained model keeps its digest; with `include_weights` its
    contents count too.
    """
    if isinstance(program, IRModule):
        return _module_digest(program, include_weights)
    found = None if include_weights else _memo.get(program)
    if found is None:
        found = _expr_digest(program, include_weights)
        if not include_weights and isinstance(program, Function):
            _memo[program] = found
    return found


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
    if data.dtype.kind == "f":
        data = np.where(np.isnan(data), np.array(np.nan, dtype=data.dtype), data)
    state = hashlib.sha256(f"{data.dtype.newbyteorder('<').str} {data.shape} ".encode())
    little = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<"))
    state.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
    return state.hexdigest()


def attr_value(value: object) -> Value:
    """An attribute as a hashable value: lists are tuples, numpy scalars Python's; other types are an error."""
    if isinstance(value, (tuple, list)):
        return tuple(attr_value(item) for item in value)
    if isinstance(value, np.generic):
        return attr_value(value.item())
    if isinstance(value, float):
        return float("nan") if value != value else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise InternalError(f"an attribute of type '{type(value).__name__}' has no text and no digest")


def _module_digest(mod: IRModule, include_weights: bool) -> str:
    slots = {id(weight): index for index, weight in enumerate(weight_slots(mod))}
    hasher = Hasher("relay.module.1").field("attrs", _attrs(mod.attrs))
    for name, function in mod.functions.items():
        hasher.field("name", name)
        hasher.field("function", structural_digest(function, include_weights))
        hasher.field("slots", tuple(slots[id(weight)] for weight in weight_slots(function)))
    return hasher.digest().hex


def _expr_digest(root: Expr, include_weights: bool) -> str:
    hasher = Hasher("relay.expr.1")
    for record in _Canonical(root, include_weights).records():
        hasher.field("node", record)
    return hasher.digest().hex


class _Canonical:
    """The canonical sequence of one expression."""

    def __init__(self, root: Expr, include_weights: bool) -> None:
        self.root = root
        self.include_weights = include_weights
        self.places: dict[int, int] = {}
        self.variables: dict[int, int] = {}
        self.values: dict[Value, int] = {}
        self.length = 0
        self.slots = 0

    def records(self) -> Iterator[Value]:
        for node in post_order(self.root):
            record = self._record(node)
            if _is_value(node):
                place = self.values.setdefault(record, self.length)
                if place < self.length:
                    self.places[id(node)] = place
                    continue
            yield record
            self.places[id(node)] = self.length
            self.length += 1

    def _record(self, node: Expr) -> Value:
        children = tuple(self.places[id(child)] for child in node.children())
        if isinstance(node, Var):
            return ("var", self._variable(node))
        if isinstance(node, GlobalVar):
            return ("global", node.name_hint)
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, Call):
            return ("call", node.op_name, children, _call_attrs(node))
        if isinstance(node, Tuple):
            return ("tuple", children)
        if isinstance(node, TupleGetItem):
            return ("field", node.index, children)
        if isinstance(node, If):
            return ("if", children)
        if isinstance(node, Let):
            return ("let", self._variable(node.var), children)
        if isinstance(node, Function):
            return self._function(node, children)
        raise InternalError(f"no digest of a {type(node).__name__}")

    def _variable(self, var: Var) -> Value:
        place = self.variables.setdefault(id(var), len(self.variables))
        return (place, _type(var.type_annotation))

    def _constant(self, node: Constant) -> Value:
        if not node.is_weight:
            return ("constant", constant_digest(node))
        self.slots += 1
        kind = _type(TensorType(tuple(node.data.shape), node.dtype))
        return ("weight", self.slots - 1, kind, constant_digest(node) if self.include_weights else None)

    def _function(self, node: Function, children: tuple[int, ...]) -> Value:
        return (
            "function",
            tuple(self._variable(param) for param in node.params),
            tuple(parameter.name for parameter in node.type_params),
            _type(node.ret_type),
            _attrs(node.attrs),
            children,
        )


def _is_value(node: Expr) -> bool:
    """Whether a node is known by its content, so that two of them are one record."""
    return isinstance(node, GlobalVar) or (isinstance(node, Constant) and not node.is_weight)


def _call_attrs(node: Call) -> Value:
    if isinstance(node.op, Op):
        attrs: Attrs | None = node.attrs if node.attrs is not None else _default_attrs(node.op)
        return _attrs(dict(attrs.items())) if attrs is not None else None
    return _attrs(dict(node.attrs.items())) if node.attrs is not None else None


def _default_attrs(op: Op) -> Attrs | None:
    try:
        return op.make_attrs({})
    except TypeError:
        return None


def _attrs(attrs: Mapping[str, Any]) -> Value:
    return tuple((name, attr_value(attrs[name])) for name in sorted(attrs))


def _type(kind: Type | None) -> Value:
    if kind is None:
        return None
    if isinstance(kind, TensorType):
        return ("tensor", kind.dtype, *(_extent(extent) for extent in kind.shape))
    if isinstance(kind, TupleType):
        return ("tuple", *(_type(item) for item in kind.fields))
    if isinstance(kind, FuncType):
        parameters = tuple(parameter.name for parameter in kind.type_params)
        return ("fn", parameters, tuple(_type(item) for item in kind.arg_types), _type(kind.ret_type))
    if isinstance(kind, TypeVar):
        return ("typevar", kind.name)
    raise InternalError(f"no digest of the type {kind}")


def _extent(extent: object) -> Value:
    return ("dim", extent.name) if isinstance(extent, Dim) else int(str(extent))
