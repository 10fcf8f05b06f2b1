"""Arrays from files and seeds, and how far two are from each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relaybuild.cli._arrays import Tolerance, compare, load_inputs, random_inputs, save_outputs
from relaybuild.errors import UserError
from relaybuild.runtime.spec import TensorSpec

SPECS = (TensorSpec("x", (2, 3), "float32"), TensorSpec("ids", (50,), "int64"))
DEFAULT = Tolerance()


def test_arrays_come_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    loaded = load_inputs(SPECS, {"x": tmp_path / "x.npy"}, "m.so")
    assert list(loaded) == ["x"]
    np.testing.assert_array_equal(loaded["x"], np.ones((2, 3), np.float32))


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_inputs(SPECS, {"y": tmp_path / "none.npy", "x": tmp_path / "none.npy"}, "m.so")
    assert str(caught.value) == "m.so: unknown 'y', expected the inputs 'x', 'ids'"


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(UserError) as caught:
            load_inputs(SPECS, {"x": path}, "m.so")
        assert str(caught.value).startswith(f"{path}: ")
        return str(caught.value).removeprefix(f"{path}: ")

    np.savez(tmp_path / "several.npz", a=np.ones(1), b=np.ones(1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "whole.npy", np.ones(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:300])
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").touch()
    assert message(tmp_path / "none.npy") == "cannot be read: No such file or directory"
    assert message(tmp_path / "several.npz").startswith("holds several arrays")
    for name in ("objects", "cut", "text", "empty"):
        assert message(tmp_path / f"{name}.npy").startswith("is not an array that numpy.save has written")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"])
def test_random_arrays_are_what_the_signature_says(dtype: str) -> None:
    spec = TensorSpec("x", (200, 100), dtype)
    value = random_inputs([spec], 3)["x"]
    assert (value.shape, value.dtype) == (spec.shape, np.dtype(dtype))
    np.testing.assert_array_equal(value, random_inputs([spec], 3)["x"])
    assert (value != random_inputs([spec], 4)["x"]).any()
    if np.issubdtype(value.dtype, np.floating):
        assert abs(float(value.mean(dtype=np.float64))) < 0.1
        assert 0.9 < float(value.std(dtype=np.float64)) < 1.1
    else:
        assert set(np.unique(value)) == set(range(256 if dtype == "uint8" else 2))


def test_random_scalars_and_empty_arrays() -> None:
    values = random_inputs([TensorSpec("a", (), "float32"), TensorSpec("b", (0, 2), "int32")], 0)
    assert [(v.shape, v.dtype.name) for v in values.values()] == [((), "float32"), ((0, 2), "int32")]


def test_dtypes_that_numpy_lacks() -> None:
    with pytest.raises(UserError, match="input 'x' is float9"):
        random_inputs([TensorSpec("x", (1,), "float9")], 0)


def test_errors_are_relative_to_the_largest_magnitude() -> None:
    expected = np.array([-10.0, 0.0, 5.0], np.float32)
    result = compare("y", expected + np.array([0, 0.5, 0], np.float32), expected, Tolerance(rtol=0.1, atol=0.25))
    assert (result.max_abs, result.max_rel, result.limit, result.problem) == (0.5, 0.05, 1.25, None)
    assert result.is_within


def test_the_limit_is_part_of_what_is_allowed() -> None:
    expected = np.array([8.0])
    exact = Tolerance(rtol=0.125, atol=0.0)
    assert compare("y", np.array([9.0]), expected, exact).is_within
    assert not compare("y", np.array([np.nextafter(9.0, 10.0)]), expected, exact).is_within


@pytest.mark.parametrize(("found", "is_within"), [(1e-6, True), (2e-6, False)])
def test_outputs_of_zeros_are_judged_absolutely(found: float, is_within: bool) -> None:
    result = compare("y", np.full(3, found), np.zeros(3), DEFAULT)
    assert result.is_within is is_within
    assert result.max_rel == float("inf")


def test_nan_and_infinity_agree_with_themselves_only() -> None:
    expected = np.array([1.0, np.nan, np.inf, -np.inf])
    assert compare("y", expected.copy(), expected, DEFAULT).is_within
    for index in range(4):
        for value in (2.0, np.nan, np.inf, -np.inf):
            found = expected.copy()
            found[index] = value
            is_same = np.array_equal(found, expected, equal_nan=True)
            assert compare("y", found, expected, DEFAULT).is_within is is_same, (index, value)


def test_a_nan_is_told() -> None:
    result = compare("y", np.array([1.0, np.nan, np.nan]), np.array([1.0, 2.0, np.nan]), DEFAULT)
    assert result.problem == "1 of 3 elements are NaN or infinite in one of the two"


def test_integers_are_equal_or_differ() -> None:
    expected = np.array([2**62, 5], np.int64)
    assert compare("y", expected.copy(), expected, DEFAULT).is_within
    result = compare("y", expected + np.array([1, 0]), expected, Tolerance(rtol=1.0, atol=1.0))
    assert (result.is_within, result.problem) == (False, "1 of 2 elements differ")


def test_booleans() -> None:
    assert compare("y", np.array([True]), np.array([True]), DEFAULT).is_within
    assert compare("y", np.array([True]), np.array([False]), DEFAULT).max_abs == 1.0


def test_shapes_and_dtypes_must_be_the_same() -> None:
    expected = np.zeros((1, 2), np.float32)
    assert compare("y", np.zeros(2, np.float32), expected, DEFAULT).problem == "shape (2), expected (1, 2)"
    result = compare("y", np.zeros((1, 2)), expected, DEFAULT)
    assert (result.problem, result.is_within) == ("dtype float64, expected float32", False)


def test_empty_outputs_agree() -> None:
    assert compare("y", np.zeros((0, 3)), np.zeros((0, 3)), DEFAULT).is_within


def test_outputs_are_saved_under_names_that_files_can_have(tmp_path: Path) -> None:
    names = ["scores", "a/b:0", "a b:0", "../up", "/"]
    outputs = {name: np.full(2, index) for index, name in enumerate(names)}
    paths = save_outputs(outputs, tmp_path)
    assert [path.name for path in paths] == ["scores.npy", "a_b_0.npy", "a_b_0_2.npy", "_up.npy", "_.npy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    for path, array in zip(paths, outputs.values()):
        np.testing.assert_array_equal(np.load(path), array)
