"""The benchmark of the pipeline: what it counts as type inference, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pipeline
import pytest

from relaybuild import relay
from relaybuild.ir.op import Op

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_nested_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(pipeline.time, "process_time", lambda: float(next(ticks)))
    clock = pipeline.TypeClock()
    inner = clock.timed(lambda: None)
    outer = clock.timed(lambda: (inner(), inner()))
    outer()
    assert clock.seconds == 1
    inner()
    assert clock.seconds == 2


def test_type_relations_are_timed_and_put_back() -> None:
    check, clock = Op.check, pipeline.TypeClock()
    with clock.running():
        relay.exp(relay.var("x", shape=(2,)))
    assert clock.seconds > 0
    assert Op.check is check


def test_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model, output = ROOT / "examples" / "digits" / "digits.onnx", tmp_path / "out.json"
    assert pipeline.main([str(model), "--runs", "2", "--json", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "| default " in printed
    measured = json.loads(output.read_text())["digits"]
    assert [name.strip() for name, _ in measured["passes"]][:2] == ["default", "InferType"]
    assert 0 < measured["type_share"] < 1
    assert f"digits: {measured['nodes']} nodes, type inference " in printed


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.main(["none.onnx"]) == 1
    assert "error: there is no model 'none.onnx'" in capsys.readouterr().err
