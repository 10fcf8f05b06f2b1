"""Whole models and the cache: which kernels other weights, a wider layer and another network make, exactly."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from runners.whole_models import assert_close, model_file, random_inputs

from relaybuild import driver
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.runtime import load_module

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache", "fixed_code")]
ort = pytest.importorskip("onnxruntime")

RUNTIME_UNITS = frozenset({"runtime.c", "cpu.c", "checks.c", "packed.c", "pool.c", "regions.c"})


def compiled(path: Path, folder: Path) -> tuple[driver.Artifact, set[str]]:
    """A model and the objects that were compiled for it; it is what onnxruntime says."""
    with open_cache(CacheSettings(folder / "cache")) as cache:
        artifact = driver.compile_request(driver.make_request(path, name="model"), cache)
    module = load_module(artifact.path)
    inputs = random_inputs(module, seed=1)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert_close(module.run(inputs), dict(zip(module.output_names, session.run(list(module.output_names), inputs))))
    return artifact, {event.name for event in cache.journal.executed if event.layer == "object"}


def kernels(artifact: driver.Artifact) -> set[str]:
    return {f"{kernel['symbol']}.c" for kernel in artifact.summary["kernels"]}


def test_a_smaller_network_takes_the_kernels_of_equal_workload(tmp_path: Path) -> None:
    large, _ = compiled(model_file("resnet50"), tmp_path)
    small, made = compiled(model_file("resnet18"), tmp_path)
    shared = kernels(large) & kernels(small)
    assert shared
    assert made == kernels(small) - shared | {"program.c"}


def test_a_retrained_network_makes_no_kernel_and_a_wider_layer_makes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from benchlib.edits import retrained, widened

    first, made = compiled(model_file("resnet50"), tmp_path)
    assert made == kernels(first) | RUNTIME_UNITS | {"program.c"}
    model = onnx.load(model_file("resnet50"))
    onnx.save(retrained(model, 1), tmp_path / "model.onnx")
    again, made = compiled(tmp_path / "model.onnx", tmp_path)
    assert made == set()
    assert kernels(again) == kernels(first)
    wider, name = widened(model)
    onnx.save(wider, tmp_path / "wider.onnx")
    changed, made = compiled(tmp_path / "wider.onnx", tmp_path)
    # the layer itself and the one that reads it
    assert len(kernels(changed) - kernels(first)) == 2, name
    assert made == kernels(changed) - kernels(first) | {"program.c"}
