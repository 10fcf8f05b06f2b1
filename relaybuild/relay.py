"""The names Relay users know: expressions, types, one function per operator, `transform` and `build_config`.

`relay.add(x, y)`, `relay.nn.conv2d(data, weight, padding=(1, 1))`: the arguments are expressions (numbers become
constants, lists become tuples), further positional and all keyword arguments are the operator's attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from relaybuild.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, find_op, get_op
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.types import FuncType, TensorType, TupleType, Type, TypeVar
from relaybuild.passes import infra as _infra
from relaybuild.passes import instruments as _instruments
from relaybuild.passes.infra import PassContext

__all__ = [
    "Call",
    "Constant",
    "Expr",
    "FuncType",
    "Function",
    "GlobalVar",
    "If",
    "Let",
    "Module",
    "Op",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "TypeVar",
    "Var",
    "build_config",
    "const",
    "fromtext",
    "image",
    "nn",
    "parse",
    "parse_expr",
    "transform",
    "var",
]

fromtext = parse


class Module(IRModule):
    """A module that is being put together: `update` and item assignment change it in place.

    Passes take it as it is and return modules that do not change.
    """

    __slots__ = ()

    def update(self, other: IRModule | Mapping[Any, Function]) -> Module:
        """Add the functions of another module, in place of those of the same name."""
        given = other.functions if isinstance(other, IRModule) else other
        self._functions = {**self._functions, **IRModule(given).functions}
        self._functions = dict(sorted(self._functions.items()))
        return self

    def __setitem__(self, key: str | GlobalVar, function: Function) -> None:
        self.update({key: function})


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


class _Transform:
    """The machinery of passes, and every pass by its name."""

    def __getattr__(self, name: str) -> Any:
        found = _infra.builtin_passes().get(name)
        for module in (_infra, _instruments):
            found = found or getattr(module, name, None)
        if found is None or name.startswith("_"):
            raise AttributeError(f"relay.transform has no '{name}'; its passes are {', '.join(dir(self))}")
        return found

    def __dir__(self) -> list[str]:
        return sorted((*_infra.builtin_passes(), "Sequential", "PassContext", "module_pass", "function_pass"))


class _Namespace:
    """Operators whose names begin with a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Call]:
        return _operator(self._prefix + name)


def _operator(name: str) -> Callable[..., Call]:
    op = find_op(name)
    if op is None:
        raise AttributeError(f"relay has no '{name}'")
    attr_names = [item.name for item in fields(op.attrs_type)]

    def build(*args: Any, **attrs: Any) -> Call:
        given = {arg_name: attrs.pop(arg_name) for arg_name in op.arg_names if arg_name in attrs}
        operands = [*args[: op.num_inputs - len(given)], *given.values()]
        positional = dict(zip(attr_names, args[op.num_inputs - len(given) :]))
        return Call(get_op(name), _as_exprs(operands), op.make_attrs({**positional, **attrs}))

    build.__name__ = name
    build.__doc__ = f"A call of the operator '{name}' with attributes {', '.join(attr_names) or 'none'}."
    return build


def _as_exprs(values: Sequence[Any]) -> list[Expr]:
    """Expressions as they are; numbers as constants of the first tensor's dtype; sequences as tuples."""
    dtypes = [value.tensor_type.dtype for value in values if _is_tensor(value)]
    return [_as_expr(value, dtypes[0] if dtypes else None) for value in values]


def _as_expr(value: Any, dtype: str | None) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(item, Expr) for item in value):
        return Tuple([_as_expr(item, dtype) for item in value])
    return const(value, dtype)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Expr) and value.has_type and isinstance(value.checked_type, TensorType)


def __getattr__(name: str) -> Callable[..., Call]:
    return _operator(name)


transform = _Transform()
nn = _Namespace("nn.")
image = _Namespace("image.")
