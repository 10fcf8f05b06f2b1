"""Shared libraries as modules: models, and functions of other origin; knows nothing of how one is compiled."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.errors import UserError
from relaybuild.runtime import elf
from relaybuild.runtime.module import Module, check_file, quoted
from relaybuild.runtime.spec import Signature, TensorSpec

try:
    from relaybuild.runtime._native import NativeFunction, NativeLibrary, NativeModel
except ImportError as error:
    raise ImportError(
        "the extension module relaybuild.runtime._native is not built for this Python: install relaybuild with pip, "
        "or run 'python setup.py build_ext --inplace' in its checkout"
    ) from error

if TYPE_CHECKING:
    from relaybuild.runtime._native import Array, Description, Tensor

FUNCTION_PREFIX = "__tvm_ffi_"
"""What the symbols of packed functions begin with; one more `_` behind it marks what is no function."""

_MAIN = "main"
_CHUNK = 1 << 20
_MOST_THREADS = 1024


class Library(NativeLibrary, Module):
    """A shared library that exports packed functions."""

    type_key = "library"
    path: str

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = _identity(path)

    @property
    def function_names(self) -> tuple[str, ...]:
        """The functions of backends, and whatever else the library exports as a packed function."""
        names = [name for name, _, _ in self.regions()]
        if self._is_unchanged():
            prefix = len(FUNCTION_PREFIX)
            exports = elf.dynamic(Path(self.path)).exports
            names += [name[prefix:] for name in exports if name.startswith(FUNCTION_PREFIX) and name[prefix] != "_"]
        return tuple(dict.fromkeys(sorted(names, key=lambda name: (name != _MAIN, name))))

    def get_function(self, name: str) -> Callable[..., object]:
        try:
            return NativeFunction(self, name)
        except KeyError:
            raise _no_function(name, self.function_names, self.path) from None

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        return tuple(
            LibraryPart(self, number, key) for number, (key, parent) in enumerate(self.modules()) if parent == 0
        )

    def save_to_binary(self) -> bytes:
        """The library's bytes; raises UserError where the file has changed since it was loaded."""
        self._check_unchanged()
        return Path(self.path).read_bytes()

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Copies the library to `path`, complete or not at all."""
        self._check_unchanged()
        target = Path(path)
        try:
            _copy(Path(self.path), target)
        except OSError as error:
            raise UserError(
                f"cannot be written: {error.strerror}; name a file in a folder that is there and can be written to",
                where=str(target),
            ) from error

    def _is_unchanged(self) -> bool:
        return _identity(self.path) == self._file

    def _check_unchanged(self) -> None:
        if not self._is_unchanged():
            raise UserError("the file has changed since it was loaded: load it again", where=self.path)

    def __repr__(self) -> str:
        return f"<relaybuild Module of type '{self.type_key}' of '{self.path}'>"


class Model(NativeModel, Library):
    """A loaded model.

    Calling it takes the inputs in the model's order or by name and returns one array, or a tuple when there are
    several outputs: `m(x)`, `m(image=x)`. A C-contiguous numpy array is not copied, nor is anything with
    `__dlpack__` whose memory is the CPU's. Dtypes and shapes must be the model's own, else a UserError says which
    input is wrong. The interpreter lock is released meanwhile, and calls from several threads run side by side.
    """

    type_key = "relaybuild"

    def __init__(self, path: str, threads: int = 0, is_checked: bool = True) -> None:
        super().__init__(path)
        description = self.describe()
        self._description: Description = description
        self.signature = Signature(_specs(description["inputs"]), _specs(description["outputs"]))
        self.input_names = [spec.name for spec in self.signature.inputs]
        self.output_names = [spec.name for spec in self.signature.outputs]

    def run(self, inputs: Mapping[str, object]) -> dict[str, Array]:
        """Runs the model on inputs by name; the outputs by name, in fresh arrays."""
        if not isinstance(inputs, Mapping):
            kind, names = type(inputs).__name__, quoted(self.input_names)
            raise UserError(f"the inputs are of type '{kind}', expected arrays by name: {names}", where=self.path)
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
            f"expected the inputs {quoted(self.input_names)}",
            where=self.path,
        )

    def get_function(self, name: str) -> Callable[..., object]:
        return MainFunction(self) if name == _MAIN else super().get_function(name)

    @property
    def function_names(self) -> tuple[str, ...]:
        """`main`, which is the model itself, then its other functions."""
        return tuple(dict.fromkeys((_MAIN, *super().function_names)))

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


class MainFunction:
    """A whole model as a packed function: inputs, then outputs to write. It runs on the model's own instances."""

    name = _MAIN

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, *arrays: object) -> None:
        inputs, outputs = len(self._model.input_names), len(self._model.output_names)
        if len(arrays) != inputs + outputs:
            raise UserError(
                f"got {len(arrays)} arguments, function '{self.name}' takes {inputs + outputs}: {inputs} inputs, then "
                f"{outputs} outputs to write"
            )
        self._model.run_into(arrays[:inputs], arrays[inputs:])

    def describe(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Inputs and outputs, each as (name, shape, dtype)."""
        description = self._model.describe()
        return description["inputs"], description["outputs"]


class LibraryPart(Module):
    """A module that a library imports: the functions that one backend brought, whose code or bytes are in it."""

    def __init__(self, library: Library, number: int, type_key: str) -> None:
        self.type_key = type_key
        self._library = library
        self._number = number

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(name for name, _, module in self._library.regions() if module == self._number)

    def get_function(self, name: str) -> Callable[..., object]:
        if name not in self.function_names:
            raise _no_function(name, self.function_names, f"module '{self.type_key}' of {self._library.path}")
        return self._library.get_function(name)

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        return tuple(
            LibraryPart(self._library, number, key)
            for number, (key, parent) in enumerate(self._library.modules())
            if parent == self._number
        )

    def get_source(self, fmt: str = "") -> str:
        """The text of what is not code, one function after the other; "" for code."""
        return "".join(part.get_source(fmt) for part in self._blob_modules())

    def save_to_binary(self) -> bytes:
        """The bytes of a module that is one blob; raises UserError for code, which only its library has."""
        blobs = self._blobs()
        if len(blobs) != 1:
            raise UserError(
                f"a module of type '{self.type_key}' with {len(blobs)} blobs is saved with its library: use "
                "export_library() of that"
            )
        return blobs[0]

    def _blobs(self) -> list[bytes]:
        found = (self._library.blob(name) for name in self.function_names)
        return list(dict.fromkeys(blob for blob in found if blob is not None))

    def _blob_modules(self) -> list[Module]:
        blobs = self._blobs()
        if not blobs:
            return []
        from relaybuild.runtime.modules import load_from_binary

        return [load_from_binary(self.type_key, blob) for blob in blobs]

    def __repr__(self) -> str:
        return f"<relaybuild Module of type '{self.type_key}' in '{self._library.path}'>"


def open_library(path: Path, threads: int | None = None) -> Library:
    """A `Model` where the library at an absolute path is one, else a `Library`.

    Raises UserError where it has no functions either.
    """
    library = Library(str(path))
    if library.is_model or not library.function_names:
        return _open_model(path, threads)
    return library


def load_model(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Loads what has to be the library of a model, as `load_module` does; raises UserError for any other file."""
    location = Path(os.path.abspath(path))
    check_file(location)
    return _open_model(location, threads)


def describe_model(path: str | os.PathLike[str]) -> Model:
    """Loads what has to be the library of a model, to look at it: it may be for another processor of this architecture.

    What that lacks, `check()` of the result tells. Raises UserError for any other file.
    """
    location = Path(os.path.abspath(path))
    check_file(location)
    return Model(str(location), is_checked=False)


def _open_model(path: Path, threads: int | None) -> Model:
    return Model(str(path), 0 if threads is None else _thread_count(threads))


def _thread_count(threads: object) -> int:
    try:
        count = operator.index(threads)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if not 1 <= count <= _MOST_THREADS:
        raise UserError(f"threads is {threads!r}, expected 1 to {_MOST_THREADS}, or None for the default")
    return count


def _identity(path: str) -> tuple[int, ...]:
    """What tells one file from another that takes its place; empty where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    try:
        with source.open("rb") as reader, temporary.open("xb") as writer:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
        temporary.chmod(source.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _no_function(name: str, known: tuple[str, ...], where: str) -> UserError:
    expected = f"one of {quoted(known)}" if known else "a library that has functions"
    return UserError(f"there is no function '{name}', expected {expected}", where=where)


def _specs(tensors: tuple[Tensor, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(*tensor) for tensor in tensors)


def _list(problem: str, names: list[str]) -> str:
    return f"{problem} {quoted(names)}" if names else ""
