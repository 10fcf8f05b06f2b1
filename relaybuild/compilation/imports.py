"""Imports a model, looked up by its structure: other weights in the same places are the same program; knows no node.

That holds for the file of an ONNX model. Whatever else a compilation starts from is read every time, and what follows
is looked up by what it was read as.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.artifact.request import Request
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.memo import FileState, Inputs
from relaybuild.compilation.actions import Actions, Outputs, Step
from relaybuild.compilation.known import Known
from relaybuild.compilation.passes import program_outputs, read_program
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Given, Weights
from relaybuild.compilation.sources import Source, is_relay_file, read_model
from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.structure import Structure, WeightPlace, dtype_name, structure_of
from relaybuild.frontend.onnx.wire import WireError
from relaybuild.ir.structural import weight_slots

if TYPE_CHECKING:
    from relaybuild.frontend.onnx.reader import LoadedModel

LAYER = "import"
_SIGNATURE = "signature"


@dataclass(frozen=True)
class Imported:
    """A model as a program, the names of its inputs and outputs, and where it comes from."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    provenance: Mapping[str, object]

    @classmethod
    def of(cls, source: Source, weights: Weights) -> Imported:
        """A source that was read."""
        return cls(Program(weights, module=source.module), source.inputs, source.outputs, source.provenance)


class ModelFiles(Inputs):
    """The files of a model, known by their states alone: contents count where they are asked for."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError for one that cannot be read."""
        super().__init__(None)
        self._states = {str(path): FileState.of(path) for path in paths}

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def changed(self, among: Iterable[str] | None = None) -> list[Path]:
        """The files that are not any more what they were: what was read of them may be of both."""
        states = self._states if among is None else {path: self._states[path] for path in among}
        return [Path(path) for path, state in states.items() if not _is_still(path, state)]


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX model's file, its structure, and this and the other files that hold its weights, as they were before."""

    path: Path
    data: memoryview
    structure: Structure
    files: ModelFiles

    @classmethod
    def read(cls, model: object) -> OnnxFile | None:
        """The file of a model; None for a model that is none, or cannot be read: who imports it says why."""
        if not isinstance(model, (str, Path)) or is_relay_file(Path(model)):
            return None
        path = Path(model)
        try:
            from relaybuild.frontend.onnx.mapped import map_file, slices_beside

            files = ModelFiles([path])
            data = map_file(path)
            structure = structure_of(data, slices_beside(path))
            if structure.files:
                # what small initializers hold in them is read behind their states
                files = ModelFiles([path, *(path.parent / name for name in sorted(structure.files))])
                structure = structure_of(data, slices_beside(path))
            return cls(path, data, structure, files)
        except (OSError, WireError, ValueError):
            return None

    def weights(self) -> Weights:
        """Its weights, in the order of the file."""
        return Weights([self._given(name, place) for name, place in self.structure.weights.items()], self.files)

    def _given(self, name: str, place: WeightPlace) -> Given:
        dtype, span = dtype_name(place.data_type), place.span
        if dtype is not None and span is not None:
            begin, end = span
            if end - begin == np.dtype(dtype).itemsize * int(np.prod(place.shape)):
                return Given(lambda: np.frombuffer(self.data[begin:end], dtype).reshape(place.shape), is_mapped=True)
        # whatever is unusual, or wrong, the importer knows
        return Given(lambda: self._loaded.initializer(self._tensors[name]))

    @cached_property
    def _loaded(self) -> LoadedModel:
        from relaybuild.frontend.onnx.reader import read_model as load

        return load(self.path)

    @cached_property
    def _tensors(self) -> Mapping[str, Any]:
        return {tensor.name: tensor for tensor in self._loaded.proto.graph.initializer}


def import_step(request: Request, file: OnnxFile | None, actions: Actions, known: Known) -> Imported:
    """The model of a request; raises UserError for what is none or leaves a shape open, UnsupportedError."""
    if file is None:
        return actions.perform(LAYER, LAYER, LAYER, lambda: _read(request, actions), "it is read every time")
    names = {name: number for number, name in enumerate(file.structure.weights)}
    weights = actions.weights

    def describe(builder: ActionBuilder) -> None:
        builder.input("in/structure", file.structure.digest)
        builder.input("impl/step", known.codes.of_step(__name__))
        builder.input("impl/frontend", known.codes.of("relaybuild.frontend.onnx"))
        for package in ("numpy", "onnx"):
            builder.input(f"impl/{package}", known.codes.package(package))
        builder.option("source", file.path.name).option("shapes", _shapes(request.shapes))

    def adopt(name: str, array: NDArray[Any]) -> None:
        if name in names:
            weights.adopt(names[name], array)

    def execute() -> Imported:
        return Imported.of(read_model(file.path, request.shapes, adopt), weights)

    def unpack(outputs: Outputs) -> Imported:
        found = json.loads(outputs.read(_SIGNATURE))
        program = read_program(outputs, weights)
        return Imported(program, tuple(found["inputs"]), tuple(found["outputs"]), found["provenance"])

    return actions.run(Step(LAYER, "onnx", LAYER, describe, execute, _pack, unpack), objection=known.objection)


def _is_still(path: str, state: FileState) -> bool:
    try:
        return FileState.of(path) == state
    except OSError:
        return False


def _read(request: Request, actions: Actions) -> Imported:
    source = read_model(request.model, request.shapes)
    actions.weights = Weights.of(weight_slots(source.module))
    return Imported.of(source, actions.weights)


def _pack(made: Imported) -> Mapping[str, bytes]:
    signature = {"inputs": made.inputs, "outputs": made.outputs, "provenance": dict(made.provenance)}
    return {_SIGNATURE: json.dumps(signature, sort_keys=True).encode(), **program_outputs(made.program)}


def _shapes(shapes: Mapping[str, Sequence[int]] | None) -> Any:
    return [[name, [int(extent) for extent in extents]] for name, extents in sorted((shapes or {}).items())]
