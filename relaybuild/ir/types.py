"""The types of Relay: tensors, tuples, functions, references, algebraic data types; knows nothing of expressions.

Types are values compared by content, apart from holes, each of which is itself alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import index
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

DTYPES = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)

_DTYPES = frozenset(DTYPES)
_ITEMSIZE = {"bool": 1, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Dim:
    """A named symbolic dimension, equal to every other of its name within a function; `Dim("?")` is unknown."""

    name: str

    def __str__(self) -> str:
        return self.name


ANY = Dim("?")
Extent: TypeAlias = "int | Dim"
_EXTENTS = frozenset((int, Dim))


class Type:
    """Base of all types."""

    __slots__ = ()

    def __str__(self) -> str:
        return type_text(self)


class _Composed(Type):
    """A type made of types, equal to those made of equal ones; neither depth nor sharing costs more than the parts."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and _equal(self, other))

    def __hash__(self) -> int:
        done: dict[int, int] = {}
        for part in type_parts(self):
            done[id(part)] = hash((_own_part(part), *(done[id(child)] for child in type_children(part))))
        return done[id(self)]


@functools.cache
def _register_bfloat16() -> None:
    """Let numpy know the name of the type, which it does once its package is loaded: by a look at something of it."""
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("ml_dtypes").bfloat16  # noqa: B018


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A dense tensor: `shape` (rank 0 is a scalar) and an element type out of `DTYPES`.

    Extents are whole numbers, numpy's among them, names (`"n"`, `"?"`) or a `Dim`; the element type may be numpy's.
    Raises UserError for what is neither.
    """

    shape: tuple[Extent, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        if self.dtype == "bfloat16":
            _register_bfloat16()
        if type(self.shape) is not tuple or not _EXTENTS.issuperset(map(type, self.shape)):
            object.__setattr__(self, "shape", tuple(map(_extent, self.shape)))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers; raises ValueError where an extent is symbolic."""
        numbers = tuple(extent for extent in self.shape if isinstance(extent, int))
        if len(numbers) != len(self.shape):
            raise ValueError(f"{self} has symbolic extents")
        return numbers

    @property
    def num_elements(self) -> int:
        """How many elements a static tensor has."""
        product = 1
        for extent in self.static_shape:
            product *= extent
        return product

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return dtype_itemsize(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class TupleType(_Composed):
    """A product of types."""

    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    """A type parameter of a polymorphic function."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class FuncType(_Composed):
    """A function from argument types to a result type."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()


@dataclass(frozen=True, slots=True)
class GlobalTypeVar(Type):
    """The name of an algebraic data type of a module; as a type, that type without arguments."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class TypeCall(_Composed):
    """An algebraic data type applied to its arguments: `List[int32]`."""

    head: GlobalTypeVar
    args: tuple[Type, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RefType(_Composed):
    """A mutable cell that holds a value of a type."""

    value: Type


class IncompleteType(Type):
    """A hole that inference fills, `_` in text; equal to itself alone."""

    __slots__ = ("__weakref__",)


def type_children(kind: Type) -> tuple[Type, ...]:
    """The types a type is made of, in the order in which `type_with_children` takes them; parameters not included."""
    if isinstance(kind, TupleType):
        return kind.fields
    if isinstance(kind, FuncType):
        return (*kind.arg_types, kind.ret_type)
    if isinstance(kind, TypeCall):
        return kind.args
    return (kind.value,) if isinstance(kind, RefType) else ()


def type_parts(kind: Type) -> Iterator[Type]:
    """A type and all types within it, inner before outer, each object once."""
    entered: set[int] = set()
    stack = [(kind, False)]
    while stack:
        top, expanded = stack.pop()
        if expanded:
            yield top
        elif id(top) not in entered:
            entered.add(id(top))
            stack.append((top, True))
            stack.extend((child, False) for child in reversed(type_children(top)))


def unbound_type_vars(kind: Type, bound: Collection[TypeVar]) -> Iterator[str]:
    """Names of the type parameters in a type that neither it nor `bound` declares, from left to right."""
    stack: list[tuple[Type, Collection[TypeVar]]] = [(kind, bound)]
    while stack:
        top, known = stack.pop()
        if isinstance(top, TypeVar):
            if top not in known:
                yield top.name
        else:
            if isinstance(top, FuncType) and top.type_params:
                known = {*known, *top.type_params}
            stack.extend((child, known) for child in reversed(type_children(top)))


def type_with_children(kind: Type, children: Sequence[Type]) -> Type:
    """The same type made of other types."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(children))
    if isinstance(kind, FuncType):
        return FuncType(tuple(children[:-1]), children[-1], kind.type_params)
    if isinstance(kind, TypeCall):
        return TypeCall(kind.head, tuple(children))
    return RefType(children[0]) if isinstance(kind, RefType) else kind


def type_text(kind: Type, name: Callable[[str], str] = str, extent: Callable[[Extent], str] = str) -> str:
    """A type as text; `name` says how names of types are written, `extent` how extents are."""
    if isinstance(kind, TensorType):
        return _tensor_text(kind, extent)
    out: list[str] = []
    stack: list[Type | str] = [kind]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        elif isinstance(top, TensorType):
            out.append(_tensor_text(top, extent))
        else:
            stack.extend(reversed(_pieces(top, name)))
    return "".join(out)


def _tensor_text(kind: TensorType, extent: Callable[[Extent], str]) -> str:
    if not kind.shape:
        return kind.dtype
    comma = "," if len(kind.shape) == 1 else ""
    return f"Tensor[({', '.join(map(extent, kind.shape))}{comma}), {kind.dtype}]"


def _pieces(kind: Type, name: Callable[[str], str]) -> list[Type | str]:
    """The text of a type around the types within it."""
    if isinstance(kind, (TypeVar, GlobalTypeVar)):
        return [name(kind.name)]
    if isinstance(kind, TupleType):
        return ["(", *_listed(kind.fields), ",)" if len(kind.fields) == 1 else ")"]
    if isinstance(kind, FuncType):
        params = f"[{', '.join(name(each.name) for each in kind.type_params)}]" if kind.type_params else ""
        return [f"fn{params}(", *_listed(kind.arg_types), ") -> ", kind.ret_type]
    if isinstance(kind, TypeCall):
        return [name(kind.head.name), *(["[", *_listed(kind.args), "]"] if kind.args else [])]
    return ["Ref[", kind.value, "]"] if isinstance(kind, RefType) else ["_"]


def _listed(kinds: Sequence[Type]) -> list[Type | str]:
    return [piece for kind in kinds for piece in (", ", kind)][1:]


def _equal(a: Type, b: Type) -> bool:
    seen: set[tuple[int, int]] = set()
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        if _own_part(x) != _own_part(y):
            return False
        inner = type_children(x)
        if inner:
            seen.add((id(x), id(y)))
            stack.extend(zip(inner, type_children(y)))
    return True


def _own_part(kind: Type) -> object:
    """What a type is apart from the types within it."""
    if isinstance(kind, TupleType):
        return (TupleType, len(kind.fields))
    if isinstance(kind, FuncType):
        return (FuncType, len(kind.arg_types), kind.type_params)
    if isinstance(kind, TypeCall):
        return (TypeCall, kind.head, len(kind.args))
    return RefType if isinstance(kind, RefType) else kind


def is_complete(kind: Type | None) -> bool:
    """Whether a type is there and has no hole in it."""
    if isinstance(kind, TensorType):
        return True
    return kind is not None and not any(isinstance(part, IncompleteType) for part in type_parts(kind))


def _dtype_name(dtype: object) -> str:
    """The name of a dtype that is not a name out of `DTYPES`: a numpy dtype or scalar type."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name not in _DTYPES:
        raise UserError(f"unknown element type '{name or dtype}', expected one of {', '.join(DTYPES)}")
    return str(name)


def _extent(extent: object) -> Extent:
    if isinstance(extent, str):
        return Dim(extent)
    if isinstance(extent, Dim):
        return extent
    try:
        return index(extent)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(f"found the extent {extent!r}, expected a whole number, a name or '?'") from None


def dtype_itemsize(dtype: str) -> int:
    """Bytes of one element of `dtype`."""
    known = _ITEMSIZE.get(dtype)
    if known is not None:
        return known
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def scalar_type(dtype: str) -> TensorType:
    """The rank-0 tensor type."""
    return TensorType((), dtype)
