"""Reads, makes and compares the arrays that go into a model and come out of it; runs nothing."""

from __future__ import annotations

import functools
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.build.files import write_atomically
from relaybuild.cli._text import shape_text
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.runtime.spec import TensorSpec

Array = NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """An output agrees when max|Δ| is at most `rtol` · max|expected| + `atol`; integers must be equal."""

    rtol: float = 1e-4
    atol: float = 1e-6


@dataclass(frozen=True)
class Comparison:
    """How far one output is from what is expected.

    `max_rel` is `max_abs` as a share of the largest magnitude expected, `limit` what `max_abs` may be. `problem` says
    what else is wrong with it: a shape, a dtype, a NaN in one of the two; None if nothing is.
    """

    name: str
    max_abs: float
    max_rel: float
    limit: float
    problem: str | None = None

    @property
    def is_within(self) -> bool:
        """Whether the output agrees."""
        return self.problem is None and self.max_abs <= self.limit


def load_inputs(specs: Sequence[TensorSpec], files: Mapping[str, Path], source: str) -> dict[str, Array]:
    """The arrays of NPY files, by input name.

    Raises UserError for a file that is none, and for names that are no input of the model `source`.
    """
    names = [spec.name for spec in specs]
    unknown = [name for name in files if name not in names]
    if unknown:
        raise UserError(f"unknown {_quoted(unknown)}, expected the inputs {_quoted(names)}", where=source)
    return {name: _load(path) for name, path in files.items()}


def random_inputs(specs: Iterable[TensorSpec], seed: int) -> dict[str, Array]:
    """Arrays by input name that are the same for the same seed.

    Floating point is normally distributed, `uint8` takes all of its values, as pixels do; other integers are 0 or 1,
    which index any table. Raises UserError for a dtype that numpy does not have.
    """
    rng = np.random.default_rng(seed)
    return {spec.name: _random(spec, rng) for spec in specs}


def compare(name: str, found: Array, expected: Array, tolerance: Tolerance) -> Comparison:
    """How far `found` is from `expected`. NaN agrees with NaN, an infinity with itself."""
    if found.shape != expected.shape:
        return _mismatch(name, f"shape {shape_text(found.shape)}, expected {shape_text(expected.shape)}")
    if found.dtype != expected.dtype:
        return _mismatch(name, f"dtype {found.dtype}, expected {expected.dtype}")
    if not np.issubdtype(expected.dtype, np.inexact):
        return _compare_exactly(name, found, expected)
    mine, theirs = found.astype(np.float64), expected.astype(np.float64)
    is_finite = np.isfinite(mine) & np.isfinite(theirs)
    magnitude = float(np.max(np.abs(theirs[is_finite]), initial=0.0))
    max_abs = float(np.max(np.abs(mine[is_finite] - theirs[is_finite]), initial=0.0))
    is_same = (np.isnan(mine) & np.isnan(theirs)) | (mine == theirs)
    strangers = int(np.count_nonzero(~is_finite & ~is_same))
    problem = f"{strangers} of {found.size} elements are NaN or infinite in one of the two" if strangers else None
    return Comparison(name, max_abs, _share(max_abs, magnitude), tolerance.rtol * magnitude + tolerance.atol, problem)


def save_outputs(outputs: Mapping[str, Array], folder: Path) -> list[Path]:
    """Write one NPY file per output into a folder that exists; the file's name resembles the output's."""
    paths: list[Path] = []
    for name, array in outputs.items():
        path = _free(folder, re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "output", paths)
        write_atomically(path, functools.partial(np.save, arr=array, allow_pickle=False))
        paths.append(path)
    return paths


def _load(path: Path) -> Array:
    try:
        loaded = np.load(path, allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"is not an array that numpy.save has written: {error}", where=str(path)) from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise UserError("holds several arrays, expected one, as numpy.save writes it", where=str(path))
    return loaded


def _random(spec: TensorSpec, rng: np.random.Generator) -> Array:
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError as error:
        raise UserError(f"input '{spec.name}' is {spec.dtype}, which numpy does not have: give no seed") from error
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(spec.shape).astype(dtype)
    return rng.integers(0, 256 if dtype == np.uint8 else 2, spec.shape).astype(dtype)


def _compare_exactly(name: str, found: Array, expected: Array) -> Comparison:
    differing = int(np.count_nonzero(found != expected))
    mine, theirs = found.astype(np.float64), expected.astype(np.float64)
    max_abs = float(np.max(np.abs(mine - theirs), initial=0.0))
    magnitude = float(np.max(np.abs(theirs), initial=0.0))
    problem = f"{differing} of {found.size} elements differ" if differing else None
    return Comparison(name, max_abs, _share(max_abs, magnitude), 0.0, problem)


def _mismatch(name: str, problem: str) -> Comparison:
    return Comparison(name, float("nan"), float("nan"), 0.0, problem)


def _share(part: float, whole: float) -> float:
    if whole == 0.0:
        return 0.0 if part == 0.0 else float("inf")
    return part / whole


def _free(folder: Path, stem: str, taken: Sequence[Path]) -> Path:
    path, number = folder / f"{stem}.npy", 2
    while path in taken:
        path, number = folder / f"{stem}_{number}.npy", number + 1
    return path


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
