"""Reads what a compilation starts from: an ONNX model, a program in the text format, a module; knows no stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.artifact.model import RELAY_SUFFIX
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.input_shapes import leaves, with_shapes
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TupleType

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

OnWeight = Callable[[str, "NDArray[Any]"], None]
"""Told the name and the value of an initializer of an ONNX model, as the module has it."""


@dataclass(frozen=True)
class Source:
    """A model read: its module, and the names of inputs and outputs, one per tensor of `main`'s tuples."""

    module: IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    provenance: Mapping[str, object]


def read_model(
    model: str | Path | ModelProto | IRModule,
    shapes: Mapping[str, Sequence[int]] | None,
    on_weight: OnWeight | None = None,
) -> Source:
    """What the stages start from; raises UserError for what is no model or leaves a shape open."""
    if isinstance(model, IRModule):
        return _from_module(model, shapes)
    if isinstance(model, (str, Path)) and is_relay_file(Path(model)):
        return _from_module(_parse_file(Path(model)), shapes)
    from relaybuild.frontend.onnx.importer import import_model

    imported = import_model(model, shapes, on_weight=on_weight)
    provenance = {"format": "onnx", "opset": imported.opset, "producer": imported.producer}
    return Source(imported.module, imported.input_names, imported.output_names, provenance)


def is_relay_file(path: Path) -> bool:
    """Whether a file is a program in the text format, by its name."""
    return path.suffix == RELAY_SUFFIX


def _parse_file(path: Path) -> IRModule:
    from relaybuild.ir.parser import parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
    return parse(text, str(path))


def _from_module(module: IRModule, shapes: Mapping[str, Sequence[int]] | None) -> Source:
    if "main" not in module:
        raise UserError("the module has no function '@main' to compile")
    module = infer_types(with_shapes(module, shapes) if shapes else module)
    main = module["main"]
    params = [name for param in main.params for name, _ in leaves(param.name_hint, param.checked_type)]
    results = [name for name, _ in leaves("output", main.body.checked_type)]
    if isinstance(main.body.checked_type, TupleType):
        results = [f"output{number}" if len(results) > 1 else "output" for number in range(len(results))]
    inputs, outputs = _names(main, "input_names", params), _names(main, "output_names", results)
    return Source(module, inputs, outputs, {"format": "relay"})


def _names(function: Function, attr: str, default: list[str]) -> tuple[str, ...]:
    """The names in a function's attribute, or unique ones made of the defaults."""
    given = function.attrs.get(attr)
    if isinstance(given, (tuple, list)) and len(given) == len(default):
        return tuple(str(name) for name in given)
    taken: set[str] = set()
    names = []
    for name in default:
        number = 0
        unique = name
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        names.append(unique)
    return tuple(names)
