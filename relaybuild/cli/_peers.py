"""Runs models by other means: onnxruntime, openvino, the reference semantics; knows no compiled library.

The only place of the package that imports onnxruntime and openvino, and only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from relaybuild.cli._arrays import Array
from relaybuild.dataclass import dataclass
from relaybuild.errors import RelayBuildError, UserError


class Runner(Protocol):
    """Repeats one inference on inputs that were given to it once; `outputs` are arrays of their own."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    def run(self) -> None: ...
    def outputs(self) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Peer:
    """Another way to run a model: `open(model, inputs, threads)` gives its runner; pip installs `requirement`."""

    name: str
    requirement: str
    open: Callable[[Path, Mapping[str, Array], int], Runner]

    @property
    def is_installed(self) -> bool:
        """Whether its package is there (it is not imported)."""
        return importlib.util.find_spec(self.requirement) is not None

    @property
    def missing_message(self) -> str:
        """What to tell the user where it is not installed."""
        return f"'{self.name}' is not installed; bring it with: pip install {self.requirement}"


def expected_outputs(
    against: str, model: Path, inputs: Mapping[str, Array], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Array]:
    """What a model computes, by output name: `against` is `reference` or the name of a peer.

    Raises UserError where the peer is not installed or cannot run the model.
    """
    if against == "reference":
        return _reference(model, inputs, shapes)
    if not model.is_file():
        raise UserError("there is no such file, expected an ONNX file", where=str(model))
    peer = PEERS[against]
    if not peer.is_installed:
        raise UserError(f"{peer.missing_message} (or use --against reference)")
    return peer.open(model, inputs, 1).outputs()


def _reference(model: Path, inputs: Mapping[str, Array], shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    from relaybuild.compilation.sources import read_model
    from relaybuild.ir.interpreter import interpret

    source = read_model(model, shapes)
    _check_names(source.inputs, inputs, model)
    given = iter([inputs[name] for name in source.inputs])
    args = [_packed(param.checked_type, given) for param in source.module["main"].params]
    return dict(zip(source.outputs, _tensors(interpret(source.module, *args))))


def _packed(kind: Any, given: Iterator[Array]) -> Any:
    """The next of the tensors given, or, for a tuple's type, a tuple of the next ones."""
    fields = getattr(kind, "fields", None)
    return next(given) if fields is None else tuple(_packed(each, given) for each in fields)


def _tensors(value: Any) -> list[Array]:
    """The tensors of a result, fields of tuples one by one."""
    if isinstance(value, (tuple, list)):
        return [tensor for field in value for tensor in _tensors(field)]
    return [np.asarray(value)]


class _OnnxRuntime:
    """An onnxruntime session on the CPU, with inputs and outputs bound in place."""

    name = "onnxruntime"

    def __init__(self, model: Path, inputs: Mapping[str, Array], threads: int) -> None:
        ort: Any = importlib.import_module("onnxruntime")
        self.version: str = ort.__version__
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that still spin after a run would slow down whoever is measured next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        with _failing_as(self.name, model):
            self._session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            _check_names([entry.name for entry in self._session.get_inputs()], inputs, model)
            declared = {entry.name: entry.shape for entry in self._session.get_outputs()}
            self._names = list(declared)
            first = self._session.run(self._names, dict(inputs))
            self._binding = self._session.io_binding()
            for name, array in inputs.items():
                self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
            ranks = {name: array.ndim for name, array in zip(self._names, first)}
            # given memory, onnxruntime refuses what it computes in another shape than the model says
            self._unbound = [name for name in self._names if len(declared[name]) != ranks[name]]
            for name, array in zip(self._names, first):
                if name not in self._unbound:
                    self._binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
            self.run()

    def run(self) -> None:
        for name in self._unbound:
            # what was allocated in the run before counts as given
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> dict[str, Array]:
        bound = [name for name in self._names if name not in self._unbound]
        found = dict(zip([*bound, *self._unbound], self._binding.copy_outputs_to_cpu()))
        # The binding's arrays may view memory that goes with the session.
        return {name: found[name].copy() for name in self._names}


class _OpenVino:
    """An OpenVINO request on the CPU in float32, for latency, with inputs bound in place."""

    name = "openvino"

    def __init__(self, model: Path, inputs: Mapping[str, Array], threads: int) -> None:
        ov: Any = importlib.import_module("openvino")
        self.version: str = ov.__version__.partition("-")[0]
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        with _failing_as(self.name, model):
            network = ov.Core().read_model(str(model))
            _check_names([_port_name(port, inputs) for port in network.inputs], inputs, model)
            network.reshape({name: list(array.shape) for name, array in inputs.items()})
            self._request = ov.Core().compile_model(network, "CPU", settings).create_infer_request()
            for name, array in inputs.items():
                self._request.set_tensor(name, ov.Tensor(np.asarray(array, order="C"), shared_memory=True))
            self._names = [port.get_any_name() for port in network.outputs]
            self._request.infer()

    def run(self) -> None:
        self._request.infer()

    def outputs(self) -> dict[str, Array]:
        return {name: self._request.get_output_tensor(index).data.copy() for index, name in enumerate(self._names)}


def _port_name(port: Any, inputs: Mapping[str, Array]) -> str:
    """The one of a port's names that is an input's, or any."""
    names: set[str] = port.get_names()
    return next((name for name in sorted(names) if name in inputs), str(port.get_any_name()))


def _check_names(expected: Sequence[str], inputs: Mapping[str, Array], model: Path) -> None:
    if set(expected) != set(inputs):
        raise UserError(
            f"the model has the inputs {_quoted(expected)}, the library {_quoted(inputs)}; was it compiled from this?",
            where=str(model),
        )


def _quoted(names: Sequence[str] | Mapping[str, Array]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


@contextmanager
def _failing_as(name: str, model: Path) -> Iterator[None]:
    """Turn what a peer raises into a UserError: its fault or the model's, not relaybuild's."""
    try:
        yield
    except RelayBuildError:
        raise
    except Exception as error:
        raise UserError(f"{name} cannot run it: {error}", where=str(model)) from error


PEERS: dict[str, Peer] = {
    "onnxruntime": Peer("onnxruntime", "onnxruntime", _OnnxRuntime),
    "openvino": Peer("openvino", "openvino", _OpenVino),
}
