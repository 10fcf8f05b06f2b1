"""Decides the type of every model input from the model and the shapes the user gave; knows nothing of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ValueInfoProto

from relaybuild.diagnostics import nearest
from relaybuild.errors import UserError
from relaybuild.frontend.onnx.reader import numpy_dtype
from relaybuild.ir.types import ANY, Dim, Extent, TensorType


def input_types(
    inputs: Sequence[ValueInfoProto], shapes: Mapping[str, Sequence[int]], source: str
) -> dict[str, TensorType]:
    """The static type of each input, by name, in order.

    A name of a dimension that one given shape decides is decided in the other inputs too. Raises UserError naming
    every input whose shape stays unknown, and the flag that gives it.
    """
    names = [value.name for value in inputs]
    _check_names(names, shapes, source)
    declared = {value.name: _declared(value, source) for value in inputs}
    given = {name: tuple(int(extent) for extent in shape) for name, shape in shapes.items()}
    for name, shape in given.items():
        _check_shape(name, shape, declared[name][0], source)
    bound = _bound_names(declared, given)
    types = {
        name: TensorType(given[name] if name in given else _resolved(shape, bound), dtype)
        for name, (shape, dtype) in declared.items()
        if shape is not None or name in given
    }
    unknown = [name for name in names if name not in types or not types[name].is_static]
    if unknown:
        lines = "\n".join(_unknown(name, types.get(name)) for name in unknown)
        flags = " ".join(_flag(name, types.get(name)) for name in unknown)
        raise UserError(
            f"the shape of {_count(len(unknown))} is not known, expected numbers:\n{lines}\n"
            f"  give the shape to compile for, as in: {flags}",
            where=source,
        )
    return types


def _check_names(names: Sequence[str], shapes: Mapping[str, Sequence[int]], source: str) -> None:
    for name in shapes:
        if name not in names:
            near = nearest(name, names)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            known = ", ".join(f"'{known}'" for known in names) or "none"
            raise UserError(
                f"a shape is given for '{name}', which is no input; the inputs are {known}{hint}", where=source
            )


def _declared(value: ValueInfoProto, source: str) -> tuple[tuple[Extent, ...] | None, str]:
    where = f"{source}: input '{value.name}'"
    if value.type.WhichOneof("value") != "tensor_type":
        kind = (value.type.WhichOneof("value") or "unknown").removesuffix("_type")
        raise UserError(f"it is of kind '{kind}', expected a tensor", where=where)
    tensor = value.type.tensor_type
    dtype = numpy_dtype(tensor.elem_type, where).name
    if not tensor.HasField("shape"):
        return None, dtype
    extents: list[Extent] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            extents.append(dim.dim_value)
        else:
            extents.append(Dim(dim.dim_param) if dim.dim_param else ANY)
    return tuple(extents), dtype


def _check_shape(name: str, given: tuple[int, ...], declared: tuple[Extent, ...] | None, source: str) -> None:
    where = f"{source}: input '{name}'"
    if min(given, default=1) < 0:
        raise UserError(f"the given shape {_text(given)} has a negative extent", where=where)
    if declared is None:
        return
    if len(given) != len(declared):
        raise UserError(
            f"the given shape {_text(given)} has rank {len(given)}, the model's {_text(declared)}"
            f" has rank {len(declared)}",
            where=where,
        )
    for position, (new, old) in enumerate(zip(given, declared)):
        if isinstance(old, int) and old > 0 and new != old:
            raise UserError(
                f"dimension {position} of the given shape {_text(given)} is {new}, the model fixes it to {old}:"
                f" {_text(declared)}",
                where=where,
            )


def _bound_names(
    declared: Mapping[str, tuple[tuple[Extent, ...] | None, str]], given: Mapping[str, tuple[int, ...]]
) -> dict[Dim, int]:
    bound: dict[Dim, int] = {}
    for name, shape in given.items():
        for old, new in zip(declared[name][0] or (), shape):
            if isinstance(old, Dim) and old.name != "?":
                bound.setdefault(old, new)
    return bound


def _resolved(shape: tuple[Extent, ...] | None, bound: Mapping[Dim, int]) -> tuple[Extent, ...]:
    return tuple(bound.get(extent, extent) if isinstance(extent, Dim) else extent for extent in shape or ())


def _unknown(name: str, found: TensorType | None) -> str:
    if found is None:
        return f"  input '{name}' has no shape at all"
    positions = [
        f"{position}" + (f" ('{extent}')" if extent != ANY else "")
        for position, extent in enumerate(found.shape)
        if isinstance(extent, Dim)
    ]
    return f"  input '{name}' has shape {_text(found.shape)}: unknown in dimension {', '.join(positions)}"


def _flag(name: str, found: TensorType | None) -> str:
    shape = found.shape if found is not None else (1, 3, 224, 224)
    fallback = 224 if len(shape) == 4 else 128
    extents = [
        extent if isinstance(extent, int) else (1 if position == 0 else fallback)
        for position, extent in enumerate(shape)
    ]
    return f"--shape {name}={','.join(map(str, extents))}"


def _text(shape: Sequence[Extent]) -> str:
    return f"({', '.join(map(str, shape))})"


def _count(inputs: int) -> str:
    return "one input" if inputs == 1 else f"{inputs} inputs"
