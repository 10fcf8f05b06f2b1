"""The names Relay users know: expressions, types, one function per operator, `transform` and `build_config`.

`relay.add(x, y)`, `relay.nn.conv2d(data, weight, padding=(1, 1))`: the arguments are expressions (numbers become
constants, lists become tuples), further positional and all keyword arguments are the operator's attributes. A few
operators that Relay writes with other arguments have functions of their own here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any as Anything

from relaybuild.errors import UserError
from relaybuild.ir import pattern as dataflow_pattern
from relaybuild.ir.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
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
    Span,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, all_ops, find_op, get_op
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.scope_builder import ScopeBuilder
from relaybuild.ir.types import (
    ANY,
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
    scalar_type,
)
from relaybuild.ir.visitor import free_vars, substitute
from relaybuild.passes import infra as _infra
from relaybuild.passes import instruments as _instruments
from relaybuild.passes import op_rewrites as _op_rewrites
from relaybuild.passes.infra import PassContext

__all__ = [
    "Any",
    "Call",
    "Clause",
    "Constant",
    "Constructor",
    "Dim",
    "Expr",
    "FuncType",
    "Function",
    "GlobalTypeVar",
    "GlobalVar",
    "If",
    "IncompleteType",
    "Let",
    "Match",
    "Module",
    "Op",
    "PassContext",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefWrite",
    "ScopeBuilder",
    "Span",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeVar",
    "Var",
    "arange",
    "bind",
    "build_config",
    "const",
    "dataflow_pattern",
    "free_vars",
    "fromtext",
    "full",
    "nn",
    "one_hot",
    "ones",
    "parse",
    "parse_expr",
    "scalar_type",
    "transform",
    "var",
    "zeros",
]

fromtext = parse


class Module(IRModule):
    """A module that is being put together: `update` and item assignment change it in place.

    Passes take it as it is and return modules that do not change.
    """

    __slots__ = ()

    def update(self, other: IRModule | Mapping[Anything, Function]) -> Module:
        """Add the functions, and the types, of another module, in place of those of the same name."""
        given = other if isinstance(other, IRModule) else IRModule(other)
        self._functions = dict(sorted({**self._functions, **given.functions}.items()))
        self._types = dict(sorted({**self._types, **given.type_definitions}.items()))
        return self

    def __setitem__(self, key: str | GlobalVar, function: Function) -> None:
        self.update({key: function})


class TupleWrapper:
    """An expression known to be a tuple of `size` fields, which are its items."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> Expr:
        """The tuple itself."""
        return self.tuple_value

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"field {index} of a tuple of {self.size}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[index] for index in range(self.size))


def build_config(
    opt_level: int = 2,
    fallback_device: str = "cpu",
    required_pass: Sequence[str] = (),
    disabled_pass: Sequence[str] = (),
    instruments: Sequence[_infra.PassInstrument] | None = None,
    config: Mapping[str, object] | None = None,
) -> PassContext:
    """A PassContext, for use in a `with` statement."""
    return PassContext(opt_level, required_pass, disabled_pass, instruments, config, fallback_device)


def bind(expr: Expr, values: Mapping[Anything, Anything]) -> Expr:
    """An expression with variables replaced: by variable, or by the name of a function's parameter.

    Values are expressions, arrays or numbers. A parameter that is bound is no parameter of the result. An unknown or
    ambiguous name is an error.
    """
    given = {_variable(expr, key): _as_expr(value, None) for key, value in values.items()}
    if not isinstance(expr, Function):
        return substitute(expr, dict(given))
    params = [param for param in expr.params if param not in given]
    ret_type = expr.ret_type
    return Function(params, substitute(expr.body, dict(given)), ret_type, expr.type_params, expr.attrs, expr.span)


def _variable(expr: Expr, key: object) -> Expr:
    if isinstance(key, Var):
        return key
    params = expr.params if isinstance(expr, Function) else ()
    found = [param for param in params if param.name_hint == key]
    if len(found) != 1:
        names = ", ".join(f"'{param.name_hint}'" for param in params) or "none"
        raise UserError(f"'{key}' names {len(found)} of the parameters, expected one; they are {names}")
    return found[0]


def Any() -> Dim:
    """An extent that is not known."""
    return ANY


class _Transform:
    """The machinery of passes, and every pass by its name."""

    def __getattr__(self, name: str) -> Anything:
        if not name.startswith("_"):
            # an attribute of the machinery first: finding all passes imports them
            for module in (_infra, _instruments, _op_rewrites):
                if hasattr(module, name):
                    return getattr(module, name)
            if name in _FUNCTIONS:
                return getattr(importlib.import_module(f"relaybuild.passes.{_FUNCTIONS[name]}"), name)
            if name in _infra.builtin_passes():
                return _infra.builtin_passes()[name]
        raise AttributeError(f"relay.transform has no '{name}'; its passes are {', '.join(_infra.builtin_passes())}")

    def __dir__(self) -> list[str]:
        return sorted((*_infra.builtin_passes(), *_infra.__all__, *_FUNCTIONS))


_FUNCTIONS = {"gradient": "first_order_gradient", "with_layouts": "_layouts"}
"""Functions of `relay.transform` beside the passes, and the modules that have them."""


class _Namespace:
    """Operators whose names begin with a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Anything:
        return _named(self._prefix + name)

    def __dir__(self) -> list[str]:
        return [name.removeprefix(self._prefix) for name in all_ops() if name.startswith(self._prefix)]


class _NN(_Namespace):
    """Operators of neural networks."""

    @staticmethod
    def batch_matmul(
        tensor_a: Anything, tensor_b: Anything, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
    ) -> Call:
        """`nn.matmul` of batches, whose right side is transposed unless it is said otherwise."""
        if out_dtype:
            raise UserError("'out_dtype' of batch_matmul is not supported: cast the arguments")
        return _operator("nn.matmul")(tensor_a, tensor_b, transpose_a=transpose_a, transpose_b=transpose_b)


def full(fill_value: Anything, shape: Sequence[Anything] = (), dtype: str | None = None) -> Call:
    """A tensor of one number, given or a scalar constant, of whose type it is unless `dtype` says otherwise."""
    scalar = const(fill_value, dtype)
    if scalar.array.ndim:
        raise UserError(f"'fill_value' has the shape {scalar.array.shape}, expected a scalar")
    attrs = {"shape": tuple(shape), "fill_value": scalar.data.item(), "dtype": dtype or scalar.dtype}
    return Call(get_op("full"), (), get_op("full").make_attrs(attrs))


def zeros(shape: Sequence[Anything], dtype: str = "float32") -> Call:
    """A tensor of zeros."""
    return full(0, shape, dtype)


def ones(shape: Sequence[Anything], dtype: str = "float32") -> Call:
    """A tensor of ones."""
    return full(1, shape, dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "float32") -> Call:
    """The numbers from `start` (0 where it is the only one given) up to `stop`, which is not among them."""
    begin, end = (0, start) if stop is None else (start, stop)
    attrs = {"start": begin, "stop": end, "step": step, "dtype": dtype}
    return Call(get_op("arange"), (), get_op("arange").make_attrs(attrs))


def one_hot(
    indices: Anything, on_value: Anything, off_value: Anything, depth: int, axis: int = -1, dtype: str = "float32"
) -> Call:
    """`on_value` at the place of each index along a new axis, `off_value` elsewhere; numbers or scalar constants."""
    values = {"on_value": const(on_value).data.item(), "off_value": const(off_value).data.item()}
    return _operator("one_hot")(indices, depth=depth, axis=axis, dtype=dtype, **values)


def _operator(name: str) -> Callable[..., Call]:
    op = find_op(name)
    if op is None:
        raise AttributeError(f"relay has no '{name}'")
    attr_names = [item.name for item in fields(op.attrs_type)]

    def build(*args: Anything, **attrs: Anything) -> Call:
        rest = list(args)
        operands = [attrs.pop(each) if each in attrs else rest.pop(0) for each in op.arg_names if each in attrs or rest]
        if len(rest) > len(attr_names):
            expected = len(operands) + len(attr_names)
            raise TypeError(f"'{name}' got {len(args)} positional arguments, expected at most {expected}")
        positional = dict(zip(attr_names, rest))
        repeated = sorted(positional.keys() & attrs)
        if repeated:
            raise TypeError(f"'{name}' got '{repeated[0]}' by place and by name")
        return Call(op, _as_exprs(operands), op.make_attrs({**positional, **attrs}))

    build.__name__ = name
    build.__doc__ = f"A call of the operator '{name}' with attributes {', '.join(attr_names) or 'none'}."
    return build


def _as_exprs(values: Sequence[Anything]) -> list[Expr]:
    """Expressions as they are; numbers as constants of the first tensor's dtype; sequences as tuples."""
    dtypes = [value.tensor_type.dtype for value in values if _is_tensor(value)]
    return [_as_expr(value, dtypes[0] if dtypes else None) for value in values]


def _as_expr(value: Anything, dtype: str | None) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if isinstance(value, (list, tuple)) and any(isinstance(item, Expr) for item in value):
        return Tuple([_as_expr(item, dtype) for item in value])
    return const(value, dtype)


def _is_tensor(value: Anything) -> bool:
    return isinstance(value, Expr) and value.has_type and isinstance(value.checked_type, TensorType)


def _named(name: str) -> Anything:
    """An operator, or the operators that begin with the name and a point."""
    if find_op(name) is None and any(known.startswith(f"{name}.") for known in all_ops()):
        return _Namespace(f"{name}.")
    return _operator(name)


def __getattr__(name: str) -> Anything:
    # asked for by the import system, which must not import all operators
    if name.startswith("_"):
        raise AttributeError(f"relay has no '{name}'")
    return _named(name)


transform = _Transform()
nn = _NN("nn.")
