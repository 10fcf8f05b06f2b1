"""`relaybuild run` on a real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli.conftest import ROOT, Invoke
from relaybuild.cli.run import describe
from relaybuild.runtime import load_module


@pytest.fixture
def image(tmp_path: Path) -> Path:
    heldout = np.load(ROOT / "examples" / "digits" / "heldout.npz")
    path = tmp_path / "image.npy"
    np.save(path, (heldout["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8))
    return path


def test_arrays_from_files(invoke: Invoke, digits_library: Path, image: Path, tmp_path: Path) -> None:
    result = invoke("run", digits_library, "--input", f"image={image}", "--output", tmp_path / "a" / "b")
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith("scores: float32 (1, 10)  min ")
    assert second == f"wrote {tmp_path}/a/b/scores.npy"
    expected = load_module(digits_library)(np.load(image))
    np.testing.assert_array_equal(np.load(tmp_path / "a" / "b" / "scores.npy"), expected)


def test_random_arrays_repeat(invoke: Invoke, digits_library: Path) -> None:
    first, again, other = (invoke("run", digits_library, "--random", seed).stdout for seed in ("1", "1", "2"))
    assert first == again != other


def test_missing_inputs(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("run", digits_library)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {digits_library}: missing 'image': give --input image=FILE.npy, or --random SEED\n"


def test_unknown_inputs(invoke: Invoke, digits_library: Path, image: Path) -> None:
    result = invoke("run", digits_library, "--input", f"img={image}", "--random", "1")
    assert result.exit_code == 1
    assert result.stderr == f"error: {digits_library}: unknown 'img', expected the inputs 'image'\n"


@pytest.mark.parametrize("array", [np.zeros((1, 8, 8), np.float32), np.zeros((1, 1, 8, 8), np.int32)])
def test_arrays_that_do_not_fit(invoke: Invoke, digits_library: Path, tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    result = invoke("run", digits_library, "--input", f"image={tmp_path}/x.npy")
    assert result.exit_code == 1
    assert "'image'" in result.stderr


def test_an_output_folder_that_cannot_be(invoke: Invoke, digits_library: Path, image: Path) -> None:
    result = invoke("run", digits_library, "--random", "1", "--output", image)
    assert result.exit_code == 1
    assert f"'{image}'" in result.stderr


def test_descriptions() -> None:
    assert describe("y", np.arange(8, dtype=np.int64)) == "y: int64 (8)  min 0  max 7  [0 1 2 3 4 5 ...]"
    assert describe("y", np.array(0.5)) == "y: float64 ()  min 0.5  max 0.5  [0.5]"
    assert describe("y", np.array([True, False])) == "y: bool (2)  min False  max True  [True False]"
    assert describe("y", np.zeros((0, 2))) == "y: float64 (0, 2)  empty"
