"""The type that a polymorphic function's result has for given arguments; knows nothing of expressions.

Types have been checked before, so that an argument is an instance of its parameter's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.ir.types import Dim, Extent, FuncType, TensorType, TupleType, Type, TypeVar


def result_type(kind: FuncType, args: Sequence[Type]) -> Type:
    """The result's type with what the arguments say of type variables and of dimensions that are not numbers."""
    types: dict[TypeVar, Type] = {}
    dims: dict[str, Extent] = {}
    for wanted, found in zip(kind.arg_types, args):
        _bind(wanted, found, types, dims)
    return _filled(kind.ret_type, types, dims)


def _bind(wanted: Type, found: Type, types: dict[TypeVar, Type], dims: dict[str, Extent]) -> None:
    pending = [(wanted, found)]
    while pending:
        pattern, instance = pending.pop()
        if isinstance(pattern, TypeVar):
            types.setdefault(pattern, instance)
        elif isinstance(pattern, TensorType) and isinstance(instance, TensorType):
            for name, extent in zip(pattern.shape, instance.shape):
                if isinstance(name, Dim) and name.name != "?":
                    dims.setdefault(name.name, extent)
        elif isinstance(pattern, TupleType) and isinstance(instance, TupleType):
            pending.extend(zip(pattern.fields, instance.fields))
        elif isinstance(pattern, FuncType) and isinstance(instance, FuncType):
            pending.append((pattern.ret_type, instance.ret_type))
            pending.extend(zip(pattern.arg_types, instance.arg_types))


def _filled(kind: Type, types: dict[TypeVar, Type], dims: dict[str, Extent]) -> Type:
    if isinstance(kind, TypeVar):
        return types.get(kind, kind)
    if isinstance(kind, TensorType):
        extents = [dims.get(extent.name, extent) if isinstance(extent, Dim) else extent for extent in kind.shape]
        return TensorType(tuple(extents), kind.dtype)
    if isinstance(kind, TupleType):
        return TupleType(tuple(_filled(item, types, dims) for item in kind.fields))
    if isinstance(kind, FuncType):
        args = tuple(_filled(item, types, dims) for item in kind.arg_types)
        return FuncType(args, _filled(kind.ret_type, types, dims), kind.type_params)
    return kind
