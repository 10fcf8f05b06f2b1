"""The expressions of Relay: immutable nodes with identity; knows nothing of printing, inference rules or passes.

Every node has `children()`, the sub-expressions in evaluation order, and `with_children(new)`, which returns the node
itself when every child is the same object. Walkers are built on these two, so none of them recurses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relaybuild.dataclass import dataclass
from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.asking import listeners, tell
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.operators import Operators
from relaybuild.ir.types import DTYPES, FuncType, RefType, TensorType, TupleType, Type, is_complete
from relaybuild.ir.types import TypeVar as RelayTypeVar

if TYPE_CHECKING:
    from relaybuild.ir.op import Attrs, Op

_set = object.__setattr__
E = TypeVar("E", bound="Expr")


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node came from: an ONNX node (`source` the file, `name` the node) or a position in a text."""

    source: str
    name: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.line:
            return f"{self.source}:{self.line}:{self.column}"
        return f"{self.source}: node '{self.name}'" if self.name else self.source


class Expr(Operators):
    """Base of all expressions: compared by identity, immutable, with a write-once type outside equality and digest."""

    __slots__ = ("__weakref__", "_type", "span")
    span: Span | None
    _type: Type | None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: build a new node instead of setting '{name}'")

    def __str__(self) -> str:
        """The expression as text, without the metadata of its weights; types are not shown."""
        from relaybuild.ir.printer import expr_text

        return expr_text(self)

    @property
    def checked_type(self) -> Type:
        """The type of this expression; raises TypeCheckError while it has not been inferred."""
        if self._type is None:
            raise TypeCheckError(
                f"the type of this {type(self).__name__} is not known yet: run InferType first",
                where=str(self.span) if self.span else None,
            )
        return self._type

    @property
    def has_type(self) -> bool:
        return self._type is not None

    @property
    def tensor_type(self) -> TensorType:
        """`checked_type`, which must be a tensor's."""
        found = self.checked_type
        if not isinstance(found, TensorType):
            raise TypeCheckError(f"found {found}, expected a tensor", where=str(self.span) if self.span else None)
        return found

    def set_checked_type(self, found: Type) -> None:
        """Fill the write-once type slot; a second, different type is an error."""
        if self._type is not None and self._type != found:
            raise TypeCheckError(
                f"type {self._type} cannot become {found}", where=str(self.span) if self.span else None
            )
        _set(self, "_type", found)

    def children(self) -> tuple[Expr, ...]:
        """Sub-expressions in evaluation order; binders (parameters, a let's variable) are not among them."""
        return ()

    def with_children(self: E, children: Sequence[Expr]) -> E:
        """The same node over other children; `self` when all are the same objects."""
        return self

    def binders(self) -> tuple[Var, ...]:
        """The variables this node itself binds: parameters, a let's variable, those of a match's patterns in order."""
        return ()

    def with_binders(self: E, binders: Sequence[Var]) -> E:
        """The same node binding other variables in the places of its own; `self` when all are the same objects."""
        return self


def typed_alike(old: E, new: E) -> E:
    """The new node, with the type of the old one where it has none and its parts have the types of the old parts.

    So that a pass keeps types that construction does not find: of polymorphic calls, of branches that differ in `?`.
    """
    if new._type is None and old._type is not None and _have_types_of(new.children(), old.children()):
        _set(new, "_type", old._type)
    return new


class Var(Expr):
    """A local variable, bound by a function or a let; two variables of one name are two variables."""

    __slots__ = ("name_hint", "type_annotation")
    name_hint: str
    type_annotation: Type | None

    def __init__(self, name_hint: str, type_annotation: Type | None = None, span: Span | None = None) -> None:
        _set(self, "name_hint", name_hint)
        _set(self, "type_annotation", type_annotation)
        _set(self, "_type", type_annotation if is_complete(type_annotation) else None)
        _set(self, "span", span)


class GlobalVar(Expr):
    """The name of a function of a module; compared by name."""

    __slots__ = ("name_hint",)
    name_hint: str

    def __init__(self, name_hint: str, span: Span | None = None) -> None:
        _set(self, "name_hint", name_hint)
        _set(self, "_type", None)
        _set(self, "span", span)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalVar) and other.name_hint == self.name_hint

    def __hash__(self) -> int:
        return hash(("GlobalVar", self.name_hint))


class Constant(Expr):
    """A tensor value. `data` is read-only; large floating-point ones are weights: slots in keys and cached modules."""

    __slots__ = ("array", "dtype")
    array: NDArray[Any]
    """The value, for who hands it on without a look at it, or looks at what its type says anyway."""
    dtype: str

    def __init__(self, data: NDArray[Any], span: Span | None = None) -> None:
        if data.flags.writeable:
            data = data.view()
            data.flags.writeable = False
        _set(self, "array", data)
        _set(self, "dtype", data.dtype.name)
        _set(self, "_type", TensorType(tuple(int(extent) for extent in data.shape), data.dtype.name))
        _set(self, "span", span)

    @property
    def data(self) -> NDArray[Any]:
        """The value. Who asks for that of a weight depends on it, and is heard (`asking`)."""
        if listeners.all and self.is_weight:
            tell(self)
        return self.array

    @property
    def is_weight(self) -> bool:
        """Whether this is data rather than structure.

        Structure (shapes, axes, scalars, clip bounds) stays inline and may be folded; a floating-point tensor of more
        than one element, or any tensor of more than 64 elements, is a weight, so that a retrained model has the same
        structure.
        """
        if self.array.dtype.kind in "fV":
            return self.array.size > 1
        return self.array.size > 64


class Tuple(Expr):
    """A product of expressions."""

    __slots__ = ("fields",)
    fields: tuple[Expr, ...]

    def __init__(self, fields: Sequence[Expr], span: Span | None = None) -> None:
        _set(self, "fields", tuple(fields))
        types = _types_of(self.fields, "the fields of a tuple")
        known = [t for t in types if t is not None]
        _set(self, "_type", TupleType(tuple(known)) if len(known) == len(types) else None)
        _set(self, "span", span)

    def children(self) -> tuple[Expr, ...]:
        return self.fields

    def with_children(self, children: Sequence[Expr]) -> Tuple:
        if all(new is old for new, old in zip(children, self.fields)):
            return self
        return Tuple(children, self.span)


class TupleGetItem(Expr):
    """One field of a tuple."""

    __slots__ = ("index", "tuple_value")
    tuple_value: Expr
    index: int

    def __init__(self, tuple_value: Expr, index: int, span: Span | None = None) -> None:
        _set(self, "tuple_value", tuple_value)
        _set(self, "index", index)
        _set(self, "span", span)
        found = tuple_value._type
        if isinstance(found, TupleType):
            if not 0 <= index < len(found.fields):
                raise TypeCheckError(
                    f"field {index} of a tuple of {len(found.fields)} fields", where=str(span) if span else None
                )
            _set(self, "_type", found.fields[index])
        else:
            _set(self, "_type", None)

    def children(self) -> tuple[Expr, ...]:
        return (self.tuple_value,)

    def with_children(self, children: Sequence[Expr]) -> TupleGetItem:
        return self if children[0] is self.tuple_value else TupleGetItem(children[0], self.index, self.span)


class Call(Expr):
    """An operator, global function, closure or variable applied to arguments; `attrs` belong to the operator."""

    __slots__ = ("args", "attrs", "op")
    op: Op | Expr
    args: tuple[Expr, ...]
    attrs: Attrs | None

    def __init__(
        self, op: Op | Expr, args: Sequence[Expr], attrs: Attrs | None = None, span: Span | None = None
    ) -> None:
        _set(self, "op", op)
        _set(self, "args", tuple(args))
        _set(self, "attrs", attrs)
        _set(self, "span", span)
        _set(self, "_type", None)
        types = _types_of(self.args, "the arguments of a call")
        known = [t for t in types if t is not None]
        if len(known) == len(types):
            _set(self, "_type", _call_type(op, known, attrs, span))

    @property
    def op_name(self) -> str:
        """The operator's name, or "" where the callee is not an operator."""
        return "" if isinstance(self.op, Expr) else self.op.name

    def children(self) -> tuple[Expr, ...]:
        return (self.op, *self.args) if isinstance(self.op, Expr) else self.args

    def with_children(self, children: Sequence[Expr]) -> Call:
        if all(new is old for new, old in zip(children, self.children())):
            return self
        if isinstance(self.op, Expr):
            return typed_alike(self, Call(children[0], children[1:], self.attrs, self.span))
        if not _have_types_of(children, self.args):
            return Call(self.op, children, self.attrs, self.span)
        # the operator's relation would say the same again
        call = object.__new__(Call)
        values = (self.op, tuple(children), self.attrs, self.span, self._type)
        for slot, value in zip(("op", "args", "attrs", "span", "_type"), values):
            _set(call, slot, value)
        return call


def _types_of(parts: Sequence[Expr], what: str) -> list[Type | None]:
    """The types of expressions; raises UserError where one of them is none."""
    try:
        return [part._type for part in parts]
    except AttributeError:
        wrong = next(part for part in parts if not isinstance(part, Expr))
        raise UserError(f"found {wrong!r} among {what}, expected an expression: 'const' makes one of numbers") from None


def _have_types_of(new: Sequence[Expr], old: Sequence[Expr]) -> bool:
    """Whether all expressions have types, and they are those of the others."""
    if len(new) != len(old):
        return False
    pairs = [(a._type, b._type) for a, b in zip(new, old)]
    return all(a is not None and (a is b or a == b) for a, b in pairs)


def _call_type(op: Op | Expr, types: list[Type], attrs: Attrs | None, span: Span | None) -> Type | None:
    if not isinstance(op, Expr):
        try:
            return op.check(types, attrs, span)
        except AttributeError:
            if hasattr(op, "check"):
                raise
            raise UserError(
                f"{op!r} is called, expected an operator, such as get_op('add'), or an expression"
            ) from None
    found = op._type
    if isinstance(found, FuncType) and not found.type_params and found.arg_types == tuple(types):
        return found.ret_type
    return None


class Function(Expr):
    """Parameters and a body: a global function of a module, or a closure. `attrs` is a sorted mapping by name."""

    __slots__ = ("attrs", "body", "params", "ret_type", "type_params")
    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None
    type_params: tuple[RelayTypeVar, ...]
    attrs: Mapping[str, object]

    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_type: Type | None = None,
        type_params: Sequence[RelayTypeVar] = (),
        attrs: Mapping[str, object] | None = None,
        span: Span | None = None,
    ) -> None:
        _set(self, "params", tuple(params))
        _set(self, "body", body)
        _set(self, "ret_type", ret_type)
        _set(self, "type_params", tuple(type_params))
        _set(self, "attrs", dict(sorted((attrs or {}).items())))
        _set(self, "span", span)
        result = body._type if ret_type is None else ret_type if is_complete(ret_type) else None
        types = _types_of(self.params, "the parameters of a function")
        arg_types = [kind for kind in types if kind is not None]
        complete = result is not None and len(arg_types) == len(self.params)
        _set(self, "_type", FuncType(tuple(arg_types), result, self.type_params) if complete and result else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    def with_children(self, children: Sequence[Expr]) -> Function:
        return self if children[0] is self.body else self.with_body(children[0])

    def binders(self) -> tuple[Var, ...]:
        return self.params

    def with_binders(self, binders: Sequence[Var]) -> Function:
        if all(new is old for new, old in zip(binders, self.params)):
            return self
        return Function(binders, self.body, self.ret_type, self.type_params, self.attrs, self.span)

    def with_body(self, body: Expr) -> Function:
        """The same parameters over another body."""
        return Function(self.params, body, self.ret_type, self.type_params, self.attrs, self.span)

    def with_attr(self, name: str, value: object) -> Function:
        """The same function with one attribute set."""
        attrs = {**self.attrs, name: value}
        return Function(self.params, self.body, self.ret_type, self.type_params, attrs, self.span)


class Let(Expr):
    """`let var = value; body`: fixes where a value is computed; `value` may refer to `var` when it is a function."""

    __slots__ = ("body", "value", "var")
    var: Var
    value: Expr
    body: Expr

    def __init__(self, var: Var, value: Expr, body: Expr, span: Span | None = None) -> None:
        _set(self, "var", var)
        _set(self, "value", value)
        _set(self, "body", body)
        _set(self, "span", span)
        _set(self, "_type", body._type)

    def children(self) -> tuple[Expr, ...]:
        return (self.value, self.body)

    def with_children(self, children: Sequence[Expr]) -> Let:
        if children[0] is self.value and children[1] is self.body:
            return self
        return Let(self.var, children[0], children[1], self.span)

    def binders(self) -> tuple[Var, ...]:
        return (self.var,)

    def with_binders(self, binders: Sequence[Var]) -> Let:
        return self if binders[0] is self.var else Let(binders[0], self.value, self.body, self.span)


class If(Expr):
    """A branch on a scalar bool."""

    __slots__ = ("cond", "false_branch", "true_branch")
    cond: Expr
    true_branch: Expr
    false_branch: Expr

    def __init__(self, cond: Expr, true_branch: Expr, false_branch: Expr, span: Span | None = None) -> None:
        _set(self, "cond", cond)
        _set(self, "true_branch", true_branch)
        _set(self, "false_branch", false_branch)
        _set(self, "span", span)
        _set(self, "_type", true_branch._type if true_branch._type == false_branch._type else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.true_branch, self.false_branch)

    def with_children(self, children: Sequence[Expr]) -> If:
        if all(new is old for new, old in zip(children, self.children())):
            return self
        return typed_alike(self, If(children[0], children[1], children[2], self.span))


class RefCreate(Expr):
    """A new mutable cell that holds a value."""

    __slots__ = ("value",)
    value: Expr

    def __init__(self, value: Expr, span: Span | None = None) -> None:
        _set(self, "value", value)
        _set(self, "span", span)
        _set(self, "_type", RefType(value._type) if value._type is not None else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: Sequence[Expr]) -> RefCreate:
        return self if children[0] is self.value else RefCreate(children[0], self.span)


class RefRead(Expr):
    """What a cell holds when this is computed."""

    __slots__ = ("ref",)
    ref: Expr

    def __init__(self, ref: Expr, span: Span | None = None) -> None:
        _set(self, "ref", ref)
        _set(self, "span", span)
        _set(self, "_type", ref._type.value if isinstance(ref._type, RefType) else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.ref,)

    def with_children(self, children: Sequence[Expr]) -> RefRead:
        return self if children[0] is self.ref else RefRead(children[0], self.span)


class RefWrite(Expr):
    """Put a value into a cell; its own value is `()`."""

    __slots__ = ("ref", "value")
    ref: Expr
    value: Expr

    def __init__(self, ref: Expr, value: Expr, span: Span | None = None) -> None:
        _set(self, "ref", ref)
        _set(self, "value", value)
        _set(self, "span", span)
        fits = isinstance(ref._type, RefType) and ref._type.value == value._type
        _set(self, "_type", TupleType(()) if fits else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.ref, self.value)

    def with_children(self, children: Sequence[Expr]) -> RefWrite:
        if children[0] is self.ref and children[1] is self.value:
            return self
        return typed_alike(self, RefWrite(children[0], children[1], self.span))


def var(
    name: str, type_or_shape: Type | str | Sequence[int] | None = None, dtype: str = "float32", **kwargs: Any
) -> Var:
    """A variable from a type (`"int32"` is that of a scalar), or from a shape (positional or `shape=`) and a dtype."""
    annotation = kwargs.pop("type_annotation", type_or_shape)
    annotation = kwargs.pop("shape", annotation)
    if kwargs:
        raise TypeError(f"var() got unexpected arguments {sorted(kwargs)}")
    if isinstance(annotation, str):
        annotation = TensorType((), annotation)
    elif annotation is not None and not isinstance(annotation, Type):
        annotation = TensorType(tuple(annotation), dtype)
    return Var(name, annotation)


def const(value: object, dtype: str | None = None) -> Constant:
    """A constant; Python ints are int32 (int64 where they have to be), floats float32, bools bool, unless `dtype` says
    otherwise. Raises UserError for what is no tensor of numbers, or does not fit the dtype.
    """
    if isinstance(value, Constant):
        return value
    try:
        data = np.asarray(value, dtype=None if dtype is None else numpy_dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"no constant of {dtype or 'any dtype'} can be made of {value!r}: {error}") from None
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        data = data.astype(_default_dtype(data))
    if data.dtype.name not in DTYPES:
        raise UserError(f"a constant of dtype {data.dtype.name}, expected one of {', '.join(DTYPES)}")
    return Constant(data)


def _default_dtype(data: NDArray[Any]) -> np.dtype[Any]:
    """What the values of Python's types in an array are taken for."""
    limits = np.iinfo("int32")
    if data.dtype.kind == "i" and data.size and not (limits.min <= data.min() and data.max() <= limits.max):
        return data.dtype
    default = {"f": "float32", "i": "int32", "b": "bool"}.get(data.dtype.kind)
    return np.dtype(default) if default else data.dtype
