"""ONNX's own small models, most of which PyTorch exported long ago: what they compute is what the standard expects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx_cases import assert_same, import_case, run

from relaybuild.errors import UserError

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = sorted(
    folder for kind in ("pytorch-converted", "pytorch-operator", "simple") for folder in (DATA / kind).glob("*")
)
REFUSED = {
    r"sequence_model": "sequences",
    r"strnorm": "strings",
    r"gradient": "training",
}
"""Models that must end in a UserError, by a pattern of their name."""


def tensors(folder: Path, kind: str) -> list[NDArray[Any]]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [numpy_helper.to_array(onnx.load_tensor(str(folder / f"{kind}_{number}.pb"))) for number in range(count)]


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_model(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    if any(re.search(pattern, folder.name) for pattern in REFUSED):
        with pytest.raises(UserError):
            import_case(model, {})
        return
    values = dict(zip(names, tensors(folder / "test_data_set_0", "input")))
    assert len(values) == len(names)
    with np.errstate(all="ignore"):
        found = run(import_case(model, values), values)
    assert_same(found, tensors(folder / "test_data_set_0", "output"), 1e-3, 1e-5)
