"""`relaybuild bench` on a real library, for a moment each."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from cli.conftest import Invoke
from relaybuild.cli import _measure, _peers

needs_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime: pip install onnxruntime"
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_measure, "WARM_UP_SECONDS", 0.002)
    monkeypatch.setattr(_measure, "BLOCK_SECONDS", 0.001)


def test_a_library_alone(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("bench", digits_library, "--seconds", "0.05", "--threads", "1")
    assert result.exit_code == 0, result.stderr
    title, header, row = result.stdout.splitlines()
    assert title.startswith(f"{digits_library}, x86-64-v2, 1 thread, ") or "x86-64" not in title
    assert header.split() == ["median", "p10", "p90", "calls", "ratio", "p10", "p90"]
    assert row.split()[0] == "relaybuild"


@needs_onnxruntime
def test_a_model_beside_a_peer(invoke: Invoke, digits_model: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ("--against", "onnxruntime", "--seconds", "0.05", "--threads", "1", "--json", figures)
    result = invoke("bench", digits_model, *arguments)
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr
    facts = json.loads(figures.read_text())
    ours, theirs = facts["contenders"]
    assert (facts["threads"], ours["name"], theirs["name"]) == (1, "relaybuild", "onnxruntime")
    assert ours["ratio"] is None
    for contender in (ours, theirs):
        seconds = contender["seconds"]
        assert 0 < seconds["p10"] <= seconds["median"] <= seconds["p90"]
    assert theirs["ratio"]["median"] == pytest.approx(ours["seconds"]["median"] / theirs["seconds"]["median"], rel=0.9)


@needs_onnxruntime
def test_a_peer_that_computes_something_else_is_told(
    invoke: Invoke, digits_model: Path, digits_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(_peers._OnnxRuntime):
        def outputs(self) -> dict[str, _peers.Array]:
            return {name: value + 1 for name, value in super().outputs().items()}

    monkeypatch.setitem(_peers.PEERS, "onnxruntime", _peers.Peer("onnxruntime", "onnxruntime", Wrong))
    arguments = ("--model", digits_model, "--against", "onnxruntime", "--seconds", "0.05")
    result = invoke("bench", digits_library, *arguments)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: output 'scores' differs from onnxruntime's: by ")


def test_peers_that_are_not_installed_are_named(
    invoke: Invoke, digits_library: Path, digits_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = _peers.Peer("openvino", "no_such_package_here", _peers.PEERS["openvino"].open)
    monkeypatch.setitem(_peers.PEERS, "openvino", peer)
    result = invoke("bench", digits_library, "--model", digits_model, "--against", "openvino", "--seconds", "0.05")
    assert result.exit_code == 0
    assert result.stderr == "note: 'openvino' is not installed; bring it with: pip install no_such_package_here\n"


def test_unknown_peers(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("bench", digits_library, "--against", "onnxruntime,other")
    assert result.exit_code == 1
    assert result.stderr == "error: option '--against': unknown 'other', expected some of: onnxruntime, openvino\n"


@needs_onnxruntime
def test_peers_need_a_model(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("bench", digits_library, "--against", "onnxruntime")
    assert result.exit_code == 1
    assert "give --model FILE.onnx" in result.stderr


def test_a_library_takes_no_compiler_options(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("bench", digits_library, "--target", "native", "--shape", "x=1")
    assert result.exit_code == 1
    expected = f"error: '{digits_library}' is compiled already: --shape, --target can only be given with an ONNX file\n"
    assert result.stderr == expected


def test_files_that_cannot_be(invoke: Invoke, digits_library: Path, tmp_path: Path) -> None:
    missing = invoke("bench", tmp_path / "none.so")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == f"error: {tmp_path}/none.so: cannot be read: No such file or directory\n"
    unwritable = invoke("bench", digits_library, "--json", tmp_path / "none" / "f.json")
    assert unwritable.exit_code == 1
    assert unwritable.stderr.startswith(f"error: cannot write '{tmp_path}/none/f.json'")
