"""Loads a model library and calls it with arrays; knows nothing of how one is compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.errors import UserError
from relaybuild.runtime import elf
from relaybuild.runtime.spec import Signature, TensorSpec

try:
    from relaybuild.runtime._native import NativeModel
except ImportError as error:
    raise ImportError(
        "the extension module relaybuild.runtime._native is not built for this Python: install relaybuild with pip, "
        "or run 'python setup.py build_ext --inplace' in its checkout"
    ) from error

if TYPE_CHECKING:
    from relaybuild.runtime._native import Array


class Module(NativeModel):
    """A loaded model.

    Calling it takes the inputs in the model's order or by name and returns one array, or a tuple when there are
    several outputs: `m(x)`, `m(image=x)`. A C-contiguous numpy array is not copied, nor is anything with
    `__dlpack__` whose memory is the CPU's. Dtypes and shapes must be the model's own, else a UserError says which
    input is wrong. The interpreter lock is released meanwhile, and calls from several threads run side by side.
    """

    path: str
    type_key = "relaybuild"

    def __init__(self, path: str, threads: int = 0) -> None:
        description = self.describe()
        self.path = path
        self._description = description
        self.signature = Signature(_specs(description["inputs"]), _specs(description["outputs"]))
        self.input_names = [spec.name for spec in self.signature.inputs]
        self.output_names = [spec.name for spec in self.signature.outputs]

    def run(self, inputs: Mapping[str, object]) -> dict[str, Array]:
        """Runs the model on inputs by name; the outputs by name, in fresh arrays."""
        try:
            values = [inputs[name] for name in self.input_names]
        except KeyError:
            raise self._wrong_names(inputs) from None
        if len(values) != len(inputs):
            raise self._wrong_names(inputs)
        return dict(zip(self.output_names, self.run_list(values)))

    def _wrong_names(self, inputs: Mapping[str, object]) -> UserError:
        unknown = sorted(inputs.keys() - set(self.input_names))
        missing = [name for name in self.input_names if name not in inputs]
        return UserError(
            f"{_list('unknown', unknown)}{' and ' if unknown and missing else ''}{_list('missing', missing)}, "
            f"expected the inputs {_quoted(self.input_names)}",
            where=self.path,
        )

    @property
    def name(self) -> str:
        """The name that the library's C functions carry."""
        return self._description["name"]

    @property
    def target(self) -> str:
        """What the library was compiled for, `x86-64-v3`."""
        return self._description["target"]

    @property
    def arena_bytes(self) -> int:
        """Memory for intermediate values, of each call that runs at the same time."""
        return self._description["arena_bytes"]

    @property
    def weight_bytes(self) -> int:
        """Read-only weights in the library."""
        return self._description["weight_bytes"]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the compiler wrote into the library about it, parsed."""
        metadata: dict[str, Any] = json.loads(self._description["metadata"])
        return metadata

    def __repr__(self) -> str:
        return f"<relaybuild Module '{self.name}' of '{self.path}' for {self.target}>"


def load_module(path: str | os.PathLike[str], threads: int | None = None) -> Module:
    """Loads a model library; `threads` is how many one call uses (None: `RELAYBUILD_NUM_THREADS`, else the model's).

    Raises UserError when the file is missing, is cut short, is not a model library, has another interface version, or
    when this machine's processor lacks what it was compiled for.
    """
    location = Path(os.path.abspath(path))
    _check_file(location)
    if threads is not None and threads < 1:
        raise UserError(f"threads is {threads}, expected 1 or more, or None for the default")
    return Module(str(location), threads or 0)


def _check_file(path: Path) -> None:
    if not path.exists():
        raise UserError("there is no such file, expected a model library", where=str(path))
    if not path.is_file():
        raise UserError("is not a file, expected a model library", where=str(path))
    try:
        missing = elf.missing_bytes(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if missing:
        raise UserError(f"the file is cut short, it lacks {missing} bytes: compile or copy it again", where=str(path))


def _specs(tensors: tuple[tuple[str, tuple[int, ...], str], ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(*tensor) for tensor in tensors)


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _list(problem: str, names: list[str]) -> str:
    return f"{problem} {_quoted(names)}" if names else ""
