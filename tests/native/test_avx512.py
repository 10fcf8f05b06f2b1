"""Libraries of the level v4 on an emulated processor with AVX-512, and on lesser ones."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
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
    "templates": ("tests/unit/lower",),
    "others": (
        "tests/runners/test_host.py",
        "tests/unit/contrib/host/test_kernels.py",
        "tests/property/test_host.py",
    ),
}
"""Tests that compile batches for each target that a machine runs, as far as their arrays are small: those of a line in
one start of a machine, which takes longer than most of them."""

TARGETS = ("x86-64-multi", "x86-64-v2", "x86-64-v3", "x86-64-v4")


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
    """That of the tests, and of the fetched ones those that are there."""
    network = Network((16, 33, 40)).save(folder / "network.onnx")
    fetched = {FOLDER / f"{name}.onnx": shapes for name, shapes in MODELS.items()}
    return [Model(network, {})] + [Model(path, shapes) for path, shapes in fetched.items() if path.exists()]


def check_levels(model: Model, answers: Sequence[Answer], level: str) -> None:
    """The library for several levels picked this one, and those for better ones refused to run."""
    several, *others = answers
    assert (several.target, model.problems(several)) == (level, [])
    for target, answer in zip(TARGETS[1:], others, strict=True):
        assert answer.target == target
        if target <= level:
            assert model.problems(answer) == []
        else:
            assert answer.status == _UNSUPPORTED_CPU
            text = answer.content.decode()
            assert text.startswith(f"model 'digits' was compiled for target '{target}', which needs the processor fea")
            assert f"this processor offers no more than {level}: compile the model with --target {level}" in text


def test_the_best_processor(tmp_path: Path) -> None:
    """It takes each level, and a lesser one if a variable says so; models compute on it what onnxruntime does."""
    digits, chosen = Model(DIGITS, {}), models(tmp_path)
    jobs = [Job(digits.library(target, tmp_path), digits.arguments) for target in TARGETS]
    lowered = replace(jobs[0], variables={"RELAYBUILD_CPU_LEVEL": "v3"})
    more = [Job(model.library("x86-64-v4", tmp_path), model.arguments) for model in chosen]
    last, *answers = replay([lowered, *jobs, *more], cpu=AVX512)
    assert (last.target, digits.problems(last)) == ("x86-64-v3", [])
    check_levels(digits, answers[: len(jobs)], "x86-64-v4")
    answers = answers[len(jobs) :]
    assert {answer.target for answer in answers} == {"x86-64-v4"}
    assert not [text for pair in zip(chosen, answers, strict=True) for text in pair[0].problems(pair[1])]


@pytest.mark.parametrize(("cpu", "level"), [(AVX2, "x86-64-v3"), (SSE4, "x86-64-v2")], ids=["v3", "v2"])
def test_a_lesser_processor_picks_its_level_and_refuses_a_better_one(cpu: str, level: str, tmp_path: Path) -> None:
    digits = Model(DIGITS, {})
    jobs = [Job(digits.library(target, tmp_path), digits.arguments) for target in TARGETS]
    check_levels(digits, replay(jobs, cpu=cpu), level)


@pytest.mark.parametrize("suite", SUITES)
def test_suites_of_the_host(suite: str, tmp_path: Path) -> None:
    batches = defer(tmp_path, SUITES[suite])
    assert {batch.test.partition("::")[0] for batch in batches} >= {each for each in SUITES[suite] if ".py" in each}
    answers = replay([Job(batch.library, batch.arguments) for batch in batches], cpu=AVX512, timeout=900)
    problems = [text for batch, answer in zip(batches, answers) for text in batch.problems(answer)]
    assert not problems, "\n".join(problems)
