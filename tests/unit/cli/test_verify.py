"""`relaybuild verify` on a real library: agreement, and each way to disagree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cli.conftest import Invoke
from relaybuild.cli import _peers


@pytest.fixture
def changed_model(digits_model: Path, tmp_path: Path) -> Path:
    """The model with other weights in its last layer."""
    model = onnx.load(digits_model)
    last = model.graph.initializer[-1]
    value = numpy_helper.to_array(last)
    ramp = np.arange(value.size, dtype=value.dtype).reshape(value.shape)
    last.CopyFrom(numpy_helper.from_array(value + ramp, last.name))
    path = tmp_path / "changed.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_agreement(invoke: Invoke, digits_model: Path, digits_library: Path, against: str) -> None:
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime")
    result = invoke("verify", digits_model, digits_library, "--against", against, "--seed", "7")
    assert (result.exit_code, result.stderr) == (0, "")
    header, row = result.stdout.splitlines()
    assert header.split("  ")[0] == "output"
    assert row.split()[0] == "scores"
    assert row.split()[-1] == "ok"
    assert float(row.split()[1]) < 1e-4


def test_disagreement(invoke: Invoke, changed_model: Path, digits_library: Path) -> None:
    result = invoke("verify", changed_model, digits_library, "--against", "reference")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].endswith("FAILED: beyond the tolerance")
    assert result.stderr == "error: 1 of 1 outputs differ from reference\n"


def test_tolerances(invoke: Invoke, changed_model: Path, digits_library: Path) -> None:
    arguments = ("verify", changed_model, digits_library, "--against", "reference")
    assert invoke(*arguments, "--atol", "1").exit_code == 0
    assert invoke(*arguments, "--rtol", "2").exit_code == 0


def test_inputs_from_files(invoke: Invoke, digits_model: Path, digits_library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 1, 8, 8), np.nan, np.float32))
    arguments = ("--against", "reference", "--input", f"image={tmp_path}/x.npy")
    assert "nan" not in invoke("verify", digits_model, digits_library, *arguments).stdout


def test_another_models_library(invoke: Invoke, digits_model: Path, digits_library: Path, tmp_path: Path) -> None:
    model = onnx.load(digits_model)
    model.graph.output[0].name = "other"
    for node in model.graph.node:
        for index, name in enumerate(node.output):
            if name == "scores":
                node.output[index] = "other"
    onnx.save(model, tmp_path / "other.onnx")
    result = invoke("verify", tmp_path / "other.onnx", digits_library, "--against", "reference")
    assert result.exit_code == 1
    assert "has the outputs 'other', the library 'scores'; was it compiled from this?" in result.stderr


def test_a_peer_that_is_not_installed(
    invoke: Invoke, digits_model: Path, digits_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = _peers.Peer("onnxruntime", "no_such_package_here", _peers.PEERS["onnxruntime"].open)
    monkeypatch.setitem(_peers.PEERS, "onnxruntime", peer)
    result = invoke("verify", digits_model, digits_library)
    assert result.exit_code == 1
    assert (
        result.stderr == "error: 'onnxruntime' is not installed; bring it with: pip install no_such_package_here "
        "(or use --against reference)\n"
    )


def test_a_peer_that_cannot_run_the_model(invoke: Invoke, digits_library: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_text("no model")
    result = invoke("verify", tmp_path / "m.onnx", digits_library)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path}/m.onnx: onnxruntime cannot run it: ")


RELAY = """
def @main(%p: (Tensor[(3,), float32], int32), %x: float32) {
  %0 = if (%p.1 < 1) { %p.0 } else { %p.0 * %x };
  (%0, (sum(%0), %p.1))
}
"""


@pytest.fixture
def relay_files(invoke: Invoke, tmp_path: Path) -> tuple[Path, Path]:
    """A program with scalars and tuples, and its library, in a folder whose name has a space."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    program, library = folder / "program.relay", folder / "program.so"
    program.write_text(RELAY, encoding="utf-8")
    assert invoke("compile", program, "-o", library, "--target", "c").exit_code == 0
    return program, library


def test_a_relay_program_is_run_by_the_reference_semantics(invoke: Invoke, relay_files: tuple[Path, Path]) -> None:
    result = invoke("verify", *relay_files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["output0", "output1", "output2"]


def test_a_relay_program_is_none_for_onnxruntime(invoke: Invoke, relay_files: tuple[Path, Path]) -> None:
    result = invoke("verify", *relay_files, "--against", "onnxruntime")
    assert result.exit_code == 1
    assert "is a Relay program, which onnxruntime does not run: use --against reference" in result.stderr


def test_a_library_with_scalar_inputs_is_measured(invoke: Invoke, relay_files: tuple[Path, Path]) -> None:
    assert invoke("bench", relay_files[1], "--seconds", "0.01").exit_code == 0
