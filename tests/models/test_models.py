"""Whole models, compiled and compared with onnxruntime: outputs, kernels that only copy, threads, dependencies."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from runners.whole_models import assert_close, model_file, random_inputs

import relaybuild

pytestmark = pytest.mark.slow
ort = pytest.importorskip("onnxruntime")


@dataclass(frozen=True)
class Case:
    """A model, the shapes its open inputs are compiled for, and how many kernel runs may only copy."""

    name: str
    copies: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


CASES = (
    Case("mlp_mnist", copies=0),
    # an image has to be laid out with its padding once
    Case("kws_dscnn", copies=1),
    Case("resnet18", copies=1),
    Case("resnet50", copies=1),
    Case("mobilenet_v2", copies=1),
    Case("efficientnet_b0", copies=1),
    # four parts of 24 channels do not begin at channel blocks
    Case("ch_PP-OCRv4_det_infer", 5, {"x": (1, 3, 640, 640)}),
    Case("ch_ppocr_mobile_v2.0_cls_infer", 1, {"x": (1, 3, 48, 192)}),
    # three images become rows of boxes, and the boxes' distributions are transposed
    Case("320n", 5, {"images": (1, 3, 320, 320)}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_model_agrees_with_onnxruntime(case: Case, tmp_path: Path) -> None:
    path = model_file(case.name)
    artifact = relaybuild.compile(path, shapes=case.shapes or None)
    library = tmp_path / f"{case.name}.so"
    artifact.export_library(library)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for threads in (1, 2):
        module = relaybuild.load_module(library, threads=threads)
        for seed in (0, 1):
            inputs = random_inputs(module, seed)
            assert_close(module.run(inputs), dict(zip(names, session.run(None, inputs))))
    copied = sum(kernel["calls"] for kernel in artifact.summary["kernels"] if kernel["copies"])
    assert copied <= case.copies, [kernel for kernel in artifact.summary["kernels"] if kernel["copies"]]
    assert artifact.summary["weight_bytes"] > 0


def test_both_ways_of_a_branch_on_an_input(tmp_path: Path) -> None:
    path = model_file("silero_vad_op18_ifless")
    artifact = relaybuild.compile(path, shapes={"input": (1, 576), "state": (2, 1, 128)})
    artifact.export_library(tmp_path / "vad.so")
    module = relaybuild.load_module(tmp_path / "vad.so")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for rate in (16000, 8000):
        inputs = random_inputs(module, 0) | {"sr": np.array(rate, np.int64)}
        for _ in range(3):
            found = dict(zip(names, session.run(None, inputs)))
            assert_close(module.run(inputs), found)
            inputs["state"] = found[names[1]]


def test_library_needs_the_c_library_only(tmp_path: Path) -> None:
    artifact = relaybuild.compile(model_file("kws_dscnn"))
    library = tmp_path / "kws.so"
    artifact.export_library(library)
    listed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].rsplit("/", 1)[-1].split(".")[0] for line in listed.splitlines()}
    assert names <= {"linux-vdso", "libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_precise_and_other_targets_agree(tmp_path: Path) -> None:
    path = model_file("kws_dscnn")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    targets = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-multi", "c")
    for number, options in enumerate(({"precise": True}, {"opt_level": 0}, *({"target": name} for name in targets))):
        artifact = relaybuild.compile(path, **options)  # type: ignore[arg-type]
        library = tmp_path / f"kws{number}.so"
        artifact.export_library(library)
        module = relaybuild.load_module(library)
        inputs = random_inputs(module, 3)
        assert_close(module.run(inputs), dict(zip(names, session.run(None, inputs))))
