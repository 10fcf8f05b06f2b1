"""Finds the models that benchmarks run on, and the shapes at which they are run; measures nothing."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchlib import CHECKOUT
from relaybuild.errors import UserError

MODELS_VARIABLE = "RELAYBUILD_MODELS"

Shapes = Mapping[str, Sequence[int]]

_SHAPES: dict[str, Shapes] = {
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 640, 640)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
    "320n": {"images": (1, 3, 320, 320)},
}
"""For models that leave shapes open."""


@dataclass(frozen=True)
class Model:
    """A model's name (of its file), its path, and the shapes of its open inputs."""

    name: str
    path: Path
    shapes: Shapes


def find_models(names: Sequence[str], folder: Path | None) -> list[Model]:
    """The models, by path where a path is given, else by name in `folder` (default: $RELAYBUILD_MODELS, else where
    `tools/fetch_models.py` puts them).

    Raises UserError, with the command that fetches it, for one that is not there.
    """
    return [_find(name, folder) for name in names]


def _find(name: str, folder: Path | None) -> Model:
    if name.endswith(".onnx"):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"there is no model '{name}'")
    else:
        tool = _fetch_models()
        given = folder or os.environ.get(MODELS_VARIABLE) or tool.DEFAULT_DIRECTORY
        path = tool.model_path(name, Path(given))
    return Model(path.stem, path, _SHAPES.get(path.stem, {}))


def _fetch_models() -> ModuleType:
    """The script, as a module."""
    known = sys.modules.get("fetch_models")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location("fetch_models", CHECKOUT / "tools" / "fetch_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fetch_models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
