"""Whole models against onnxruntime, for those that `tools/fetch_models.py` has fetched."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx_cases import run

from relaybuild.frontend.onnx import ImportedModel, import_model

FOLDER = Path(os.environ.get("RELAYBUILD_MODELS", Path(__file__).parents[3] / ".models"))
SHAPES = {
    "320n": {"images": (1, 3, 320, 320)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 640, 640)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
}
MODELS = (
    "bert_base_128",
    "efficientnet_b0",
    "kws_dscnn",
    "minilm_l6_128",
    "mlp_mnist",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "vgg16",
    "vit_b_16",
    *SHAPES,
)
pytestmark = pytest.mark.slow


def fetched(name: str) -> Path:
    found = next(iter(FOLDER.rglob(f"{name}.onnx")), None)
    if found is None:
        pytest.skip(f"{name}.onnx is not in {FOLDER.name}: run tools/fetch_models.py")
    return found


def random_inputs(model: ImportedModel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = {}
    for param in model.module["main"].params:
        found = param.tensor_type
        if found.dtype == "int64":
            inputs[param.name_hint] = rng.integers(0, 2, found.static_shape)
        else:
            inputs[param.name_hint] = rng.standard_normal(found.static_shape).astype(found.dtype)
    return inputs


@pytest.mark.parametrize("name", MODELS)
def test_model_agrees_with_onnxruntime(name: str) -> None:
    path = fetched(name)
    imported = import_model(path, SHAPES.get(name))
    inputs = random_inputs(imported)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for found, expected in zip(run(imported, inputs), session.run(None, inputs), strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-6


def test_import_of_a_large_model_reads_no_weights() -> None:
    path = fetched("resnet50")
    import_model(path)
    start = time.process_time()
    import_model(path)
    assert time.process_time() - start < 0.5
