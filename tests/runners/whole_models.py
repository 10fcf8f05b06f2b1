"""What tests of whole models share: where models lie, random inputs, how close results have to be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relaybuild.runtime import Model

FOLDER = Path(os.environ.get("RELAYBUILD_MODELS", Path(__file__).parents[2] / ".models"))


def model_file(name: str) -> Path:
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"'{path}' is missing: python tools/fetch_models.py --dir {FOLDER} {name}")
    return path


def random_inputs(module: Model, seed: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: (
            rng.standard_normal(spec.shape) if spec.dtype.startswith("float") else rng.integers(0, 2, spec.shape)
        ).astype(spec.dtype)
        for spec in module.signature.inputs
    }


def assert_close(got: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    for name, expected in wanted.items():
        assert got[name].shape == expected.shape
        assert got[name].dtype == expected.dtype
        difference = np.abs(got[name] - expected).max()
        assert difference <= 1e-4 * np.abs(expected).max() + 1e-6, f"output '{name}' differs by {difference}"
