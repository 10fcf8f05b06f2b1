"""Libraries of the level v4 on an emulated processor with AVX-512, and on lesser ones."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import pytest
from runners.command import DIGITS
from runners.compiled import Array, difference
from runners.deferred import defer
from runners.emulated import AVX2, AVX512, SSE4
from runners.replayed import Answer, Job, replay
from runners.small_networks import Network
from runners.whole_models import FOLDER

from relaybuild import driver

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
    pytest.skip("the levels are those of x86-64, and libraries for Linux", allow_module_level=True)

_UNSUPPORTED_CPU = 5
"""`RB_ERROR_UNSUPPORTED_CPU`."""

MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp_mnist": {},
    "kws_dscnn": {},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 48)},
}
"""Fetched models that an emulator computes in seconds, and shapes of their inputs."""

SUITES = {
    "operators": "tests/runners/test_host.py",
    "templates": "tests/unit/lower",
    "kernels": "tests/unit/contrib/host/test_kernels.py",
    "graphs": "tests/property/test_host.py",
}
"""Tests that compile batches for each target that a machine runs, as far as their arrays are small."""


class Model:
    """A model, random inputs, and what onnxruntime computes of them."""

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        self.path = path
        self.shapes = shapes
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(7)
        inputs = {
            each.name: rng.standard_normal(shapes.get(each.name, each.shape), "float32")
            for each in session.get_inputs()
        }
        self.arguments: list[Array] = list(inputs.values())
        self.expected: list[Array] = session.run(None, inputs)

    def library(self, target: str, folder: Path) -> Path:
        """The model compiled for a target, for two threads unless a run asks for another number."""
        path = folder / f"{self.path.stem}-{target}.so"
        driver.compile(self.path, shapes=self.shapes, target=target).export_library(path)
        return path

    def problems(self, answer: Answer) -> list[str]:
        """What is wrong with the outputs, one for each that is."""
        found = zip(self.expected, answer.outputs(self.expected))
        return [f"{self.path.stem}: {text}" for pair in found if (text := difference(*pair, 1e-4))]


def models(folder: Path) -> list[Model]:
    """Those of the examples and tests, and of the fetched ones those that are there."""
    network = Network((16, 33, 40)).save(folder / "network.onnx")
    fetched = {FOLDER / f"{name}.onnx": shapes for name, shapes in MODELS.items()}
    return [Model(DIGITS, {}), Model(network, {})] + [
        Model(path, shapes) for path, shapes in fetched.items() if path.exists()
    ]


def test_models_compute_what_onnxruntime_does(tmp_path: Path) -> None:
    chosen = models(tmp_path)
    jobs = [Job(model.library("x86-64-v4", tmp_path), model.arguments) for model in chosen]
    answers = replay(jobs, cpu=AVX512)
    assert {answer.target for answer in answers} == {"x86-64-v4"}
    assert not [text for pair in zip(chosen, answers) for text in pair[0].problems(pair[1])]


@pytest.mark.parametrize("suite", SUITES)
def test_suites_of_the_host(suite: str, tmp_path: Path) -> None:
    batches = defer(tmp_path, SUITES[suite])
    assert batches
    answers = replay([Job(batch.library, batch.arguments) for batch in batches], cpu=AVX512, timeout=900)
    problems = [text for batch, answer in zip(batches, answers) for text in batch.problems(answer)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("cpu", "level"), [(AVX512, "x86-64-v4"), (AVX2, "x86-64-v3"), (SSE4, "x86-64-v2")], ids=["v4", "v3", "v2"]
)
def test_a_library_for_several_levels_picks_the_best_and_a_better_one_is_refused(
    cpu: str, level: str, tmp_path: Path
) -> None:
    model = Model(DIGITS, {})
    targets = ("x86-64-multi", "x86-64-v2", "x86-64-v3", "x86-64-v4")
    several, *answers = replay([Job(model.library(each, tmp_path), model.arguments) for each in targets], cpu=cpu)
    assert (several.target, model.problems(several)) == (level, [])
    for target, answer in zip(targets[1:], answers):
        assert answer.target == target
        if target <= level:
            assert model.problems(answer) == []
        else:
            assert answer.status == _UNSUPPORTED_CPU
            text = answer.content.decode()
            assert text.startswith(f"model 'digits' was compiled for target '{target}', which needs the processor fea")
            assert f"this processor offers no more than {level}: compile the model with --target {level}" in text


def test_a_variable_lowers_the_level(tmp_path: Path) -> None:
    model = Model(DIGITS, {})
    job = Job(model.library("x86-64-multi", tmp_path), model.arguments)
    (answer,) = replay([job], cpu=AVX512, environ={"RELAYBUILD_CPU_LEVEL": "v3"})
    assert (answer.target, model.problems(answer)) == ("x86-64-v3", [])
