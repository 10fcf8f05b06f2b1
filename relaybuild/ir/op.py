"""What an operator is, and where operators are found; knows no operator by name.

An operator is one file in `relaybuild/ir/ops`: a frozen `Attrs` dataclass, a type relation, a reference semantics in
numpy, and, where an element of the result is a scalar expression over elements of the arguments, a `compute` rule.
The file ends with `OP = Op(...)` or, for a family written by one function, `OPS = (Op(...), ...)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import nearest
from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Call, Expr, Span
from relaybuild.ir.layout import FollowLayout, LayoutAttrs
from relaybuild.ir.scalar import ComputeRule
from relaybuild.ir.types import Type

_PLAIN_ATTRS: Mapping[str, tuple[type, ...]] = {
    "int": (Integral,),
    "int | None": (Integral, type(None)),
    "float": (Real,),
    "float | None": (Real, type(None)),
    "bool": (bool, np.bool_, Integral),
    "str": (str, type(None)),
}
"""What a record's field of each simple annotation is given; records check the other kinds themselves."""


class OpKind(Enum):
    """How an operator may be fused."""

    ELEMWISE = "elemwise"
    """Element i of the result from element i of each argument, all of one shape."""
    BROADCAST = "broadcast"
    """The same after numpy broadcasting."""
    INJECTIVE = "injective"
    """Each element of the result from one element of one argument: transpose, slice, concatenate, gather."""
    REDUCE = "reduce"
    """Elements of the result from many elements of the argument."""
    ANCHOR = "anchor"
    """Carries the arithmetic; element-wise consumers can become its epilogue: convolution, matrix product, pooling."""
    OPAQUE = "opaque"
    """Cannot be fused with anything."""


class Precision(Enum):
    """What an operator does where arithmetic is moved to a narrower floating-point type."""

    ALWAYS = "always"
    """Gains by it: runs in the narrow type."""
    FOLLOW = "follow"
    """Runs in the narrow type where its arguments are in it already."""
    NEVER = "never"
    """Loses by it: runs in the wide type."""


@dataclass(frozen=True)
class Attrs:
    """Base of the attribute records, and the record of an operator that has none.

    Fields are int, float, str, bool, None, and tuples of these; lists become tuples.
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                object.__setattr__(self, item.name, tuple(value))

    def items(self) -> tuple[tuple[str, object], ...]:
        """(name, value) by name."""
        return tuple((name, getattr(self, name)) for name in sorted(item.name for item in fields(self)))


InferType = Callable[[Sequence[Type], Any], Type]
Evaluate = Callable[[Sequence[Any], Any], Any]
EvaluateRows = Callable[[Sequence[Any], Any, int, int, Any], None]
"""Values, attributes, `start`, `stop`, `out`: writes rows `start` to `stop` of the result, by its leading axis."""
Decompose = Callable[[Call], Expr]
"""A typed call to an expression of the same type; the call itself where there is none."""
StaticForm = Callable[[Call, Sequence[Any]], "Expr | None"]
"""A call, and the value of each argument that is known (None elsewhere), to the same with shapes as attributes."""


_FUSIBLE = (OpKind.ELEMWISE, OpKind.BROADCAST, OpKind.INJECTIVE)


@dataclass(frozen=True, eq=False)
class Op:
    """One operator: compared by identity, found by name.

    `infer_type(types, attrs)` returns the result type or raises TypeMismatch; `evaluate(values, attrs)` takes and
    returns numpy arrays (tuples of them for tuple types). `evaluate_rows`, where it is given, writes any part of the
    same result where the caller wants it. `num_inputs` counts arguments; a variadic operator takes one tuple. `compute`
    is described in `relaybuild.ir.scalar`; `reads_once` tells whether it reads each argument at most once for an
    element of the result.

    For passes: `follow_layout` is how a call runs on arguments stored in another layout, `layout_attrs` which of its
    attributes name layouts, `precision` what it does in mixed precision, `fast` the operator that approximates it,
    `decompose` writes a call with other operators, for a backend that has no kernel for it, and `static_form` a call
    whose shapes are arguments as one whose shapes are attributes.
    """

    name: str
    num_inputs: int
    infer_type: InferType
    evaluate: Evaluate
    kind: OpKind
    attrs_type: type[Attrs] = Attrs
    compute: ComputeRule | None = None
    arg_names: tuple[str, ...] = field(default=())
    commutative: bool = False
    reads_once: bool = True
    follow_layout: FollowLayout | None = None
    layout_attrs: LayoutAttrs | None = None
    precision: Precision | None = None
    fast: str | None = None
    decompose: Decompose | None = None
    static_form: StaticForm | None = None
    evaluate_rows: EvaluateRows | None = None

    @property
    def mixed_precision(self) -> Precision:
        """`precision`; unless it is given, operators that may be fused follow, and others run in the wide type."""
        if self.precision is not None:
            return self.precision
        return Precision.FOLLOW if self.kind in _FUSIBLE else Precision.NEVER

    def check(self, types: Sequence[Type], attrs: Attrs | None, span: Span | None) -> Type:
        """The result type of a call; errors name the call, the types found and the types wanted."""
        where = str(span) if span else None
        if len(types) != self.num_inputs:
            raise TypeCheckError(f"'{self.name}' got {len(types)} arguments, expected {self.num_inputs}", where=where)
        try:
            return self.infer_type(types, attrs)
        except TypeMismatch as error:
            found = ", ".join(str(t) for t in types)
            raise TypeCheckError(f"'{self.name}' over ({found}): {error}", where=where) from None

    def make_attrs(self, values: Mapping[str, object]) -> Attrs:
        """An attribute record from keywords; raises UserError for an unknown name, and for a value of another kind."""
        known = {item.name: str(item.type) for item in fields(self.attrs_type)}
        for name, value in values.items():
            if name not in known:
                near = nearest(name, known)
                hint = f"; did you mean '{near[0]}'?" if near else f"; it has {', '.join(sorted(known)) or 'none'}"
                raise UserError(f"'{self.name}' has no attribute '{name}'{hint}")
            allowed = _PLAIN_ATTRS.get(known[name])
            if allowed is not None and not isinstance(value, allowed):
                raise UserError(f"'{self.name}' got {name}={value!r}, expected {known[name]}")
        return self.attrs_type(**values)

    def __call__(self, *args: Expr, **attrs: object) -> Call:
        """A call of this operator."""
        return Call(self, args, self.make_attrs(attrs))

    def __repr__(self) -> str:
        return f"Op({self.name})"


class TypeMismatch(Exception):
    """Raised by a type relation; `Op.check` adds the call and the types found."""


@cache
def all_ops() -> Mapping[str, Op]:
    """Every operator by name, collected from the files of `relaybuild.ir.ops`."""
    package = importlib.import_module("relaybuild.ir.ops")
    found: dict[str, Op] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"relaybuild.ir.ops.{entry.name}")
        ops = getattr(module, "OPS", None) or (module.OP,)
        for op in ops:
            if op.name in found:
                raise ValueError(f"operator '{op.name}' is defined twice")
            found[op.name] = op
    return found


def find_op(name: str) -> Op | None:
    """The operator of that name, or None."""
    return all_ops().get(name)


def get_op(name: str) -> Op:
    """The operator of that name; an unknown name is an error that lists the nearest."""
    op = find_op(name)
    if op is None:
        near = nearest(name, all_ops(), 3)
        raise UserError(f"unknown operator '{name}'" + (f"; the nearest are {', '.join(near)}" if near else ""))
    return op


def call_op(name: str, args: Sequence[Expr], span: Span | None = None, **attrs: object) -> Call:
    """A call of an operator by name."""
    op = get_op(name)
    return Call(op, args, op.make_attrs(attrs), span)
