"""Opens model libraries and gathers their inputs; knows nothing of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relaybuild.cli import _arrays
from relaybuild.cli._arrays import Array
from relaybuild.errors import UserError
from relaybuild.runtime import Model, load_model

_ELF_MAGIC = b"\x7fELF"


def is_library(path: Path) -> bool:
    """Whether a file is a shared library rather than a model, by its first bytes. Raises UserError if unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF_MAGIC)) == _ELF_MAGIC
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error


def gather_inputs(module: Model, files: Mapping[str, Path], seed: int | None) -> dict[str, Array]:
    """All inputs of a library, in its order: from files, the rest by seed.

    Raises UserError for unknown names, unreadable files, and, where `seed` is None, for inputs that are not given.
    """
    specs = module.signature.inputs
    given = _arrays.load_inputs(specs, files, module.path)
    missing = [spec for spec in specs if spec.name not in given]
    if missing and seed is None:
        flags = " ".join(f"--input {spec.name}=FILE.npy" for spec in missing)
        names = ", ".join(f"'{spec.name}'" for spec in missing)
        raise UserError(f"missing {names}: give {flags}, or --random SEED", where=module.path)
    # All are drawn, so that what one gets does not depend on which others are given.
    drawn = _arrays.random_inputs(specs, seed) if missing and seed is not None else {}
    return {spec.name: given[spec.name] if spec.name in given else drawn[spec.name] for spec in specs}


class LibraryRunner:
    """Repeats one inference of a library, into the same outputs each time."""

    name = "relaybuild"

    def __init__(self, module: Model, inputs: Mapping[str, Array], version: str) -> None:
        self.version = version
        self._module = module
        self._inputs = [np.asarray(inputs[name], order="C") for name in module.input_names]
        self._outputs: list[Any] = list(module.run_list(self._inputs))

    def run(self) -> None:
        """One inference."""
        self._module.run_into(self._inputs, self._outputs)

    def outputs(self) -> dict[str, Array]:
        """The results of the last inference, by name."""
        return {name: array.copy() for name, array in zip(self._module.output_names, self._outputs)}


__all__ = ["LibraryRunner", "Model", "gather_inputs", "is_library", "load_model"]
