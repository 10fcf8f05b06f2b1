"""The driver: what it returns, what it tells while it works, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relaybuild import driver
from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Function, Tuple, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.printer import print_module
from relaybuild.ir.types import TensorType
from relaybuild.passes.infra import PassContext
from relaybuild.passes.instruments import PassTimingInstrument
from relaybuild.runtime import load_module, model_sources
from relaybuild.target import create

pytestmark = pytest.mark.usefixtures("own_cache")


def module() -> IRModule:
    x = var("x", TensorType((2, 3), "float32"))
    weight = const(np.arange(12, dtype="float32").reshape(4, 3))
    y: Expr = call_op("nn.dense", [x, weight])
    return IRModule({"main": Function([x], Tuple([y, call_op("nn.relu", [x])]))})


def test_a_library_its_summary_and_its_header(tmp_path: Path) -> None:
    """MB07: a compiled model is exported, loaded and run."""
    events: list[driver.Event] = []
    artifact = driver.compile(module(), name="tiny", target="c", jobs=1, on_event=events.append)
    summary = artifact.summary
    assert set(summary["seconds"]) == set(driver.STAGES)
    assert summary["executed"]["object"] == len(summary["kernels"]) + 1 + len(model_sources())
    assert summary["executed"]["link"] == 1
    assert summary["weight_bytes"] >= 48
    assert "tiny_run" in artifact.header
    ended = [event.stage for event in events if event.seconds is not None]
    assert ended == list(driver.STAGES)
    path = tmp_path / "tiny.so"
    artifact.export_library(path)
    assert summary["artifact"] == str(path)
    assert summary["size"] == path.stat().st_size
    model = load_module(path)
    assert (model.input_names, model.output_names) == (["x"], ["output0", "output1"])
    product, positive = model(np.full((2, 3), -1, "float32"))
    np.testing.assert_array_equal(product, [[-3, -12, -21, -30]] * 2)
    np.testing.assert_array_equal(positive, np.zeros((2, 3)))


def test_an_artifact_gives_up_its_own_file_if_it_may(tmp_path: Path) -> None:
    artifact = driver.compile(module(), name="tiny", target="c", cache_dir=False)
    own, path = artifact.path, tmp_path / "tiny.so"
    artifact.export_library(tmp_path / "copy.so")
    artifact.export_library(path, move=True)
    assert not own.exists()
    assert artifact.path == path
    artifact.export_library(tmp_path / "last.so", move=True)
    assert path.read_bytes() == (tmp_path / "copy.so").read_bytes() == (tmp_path / "last.so").read_bytes()


def test_a_relay_file_is_a_model(tmp_path: Path) -> None:
    source = tmp_path / "model.relay"
    source.write_text(print_module(module()))
    artifact = driver.compile(source, target="c", save_temps=tmp_path / "kept")
    assert artifact.name == "model"
    assert list((tmp_path / "kept").rglob("*.c"))
    assert artifact.path.is_relative_to(tmp_path / "kept")


def test_an_artifact_leaves_nothing_behind() -> None:
    artifact = driver.compile(module(), target="c")
    folder = artifact.path.parent
    assert folder.exists()
    del artifact
    assert not folder.exists()


def test_equal_modules_are_equal_libraries() -> None:
    first, second = (driver.compile(module(), target="x86-64-v3") for _ in range(2))
    assert first.path.read_bytes() == second.path.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": -1}, "'threads' is -1"),
        ({"opt_level": 9}, "'opt_level' is 9"),
        ({"target": "vax"}, "unknown target: 'vax'"),
        ({"shapes": {"none": (1,)}}, "a shape is given for 'none', which is no tensor parameter"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        driver.compile(module(), **options)  # type: ignore[arg-type]


def test_a_module_without_main() -> None:
    with pytest.raises(UserError, match="no function '@main'"):
        driver.compile(IRModule({"other": module()["main"]}))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.relay"):
        driver.compile(tmp_path / "nothing.relay")


def test_names_are_made_unique() -> None:
    kind = TensorType((2,), "float32")
    a, b = var("x", kind), var("x", kind)
    artifact = driver.compile(IRModule({"main": Function([a, b], call_op("subtract", [a, b]))}), target="c")
    model = load_module(artifact.path)
    assert model.input_names == ["x", "x_1"]
    assert model.output_names == ["output"]
    found = model.run({"x": np.ones(2, "float32"), "x_1": np.full(2, 3, "float32")})
    np.testing.assert_array_equal(found["output"], [-2, -2])


def test_the_entered_context_and_target_decide() -> None:
    timing = PassTimingInstrument()
    with PassContext(
        opt_level=1, disabled_pass=["SimplifyExpr"], required_pass=["FoldScaleAxis"], instruments=[timing]
    ):
        with create("c"):
            artifact = driver.compile(module())
        assert load_module(artifact.path).target == "c"
        driver.compile(module(), target="c", opt_level=2)
    first, second = ([child.name for child in top.children] for top in timing.timings)
    assert "SimplifyExpr" not in (*first, *second)
    assert "FoldScaleAxis" in first
    assert ("FoldConstant" in first, "FoldConstant" in second) == (False, True)
