"""Modules that are no libraries: how they are found, what they offer, and arrays at their boundary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaybuild
from relaybuild.errors import UserError
from relaybuild.registry import register_func
from relaybuild.runtime import load_from_binary
from relaybuild.runtime.blob import frame
from relaybuild.runtime.module import Module

TEXT = "s\n  input 0 2 3\n  input 1 3 dtype: float32\n  add 2 inputs: 0 1 shape: 2 3\n"
A = np.arange(6, dtype="float32").reshape(2, 3)
B = np.array([10, 20, 30], "float32")


def module(text: str = TEXT) -> Module:
    return load_from_binary("examplejson", frame("examplejson", "USE_EXAMPLE_JSON", text.encode()))


@pytest.fixture(scope="module")
def function() -> Callable[..., object]:
    return module().get_function("s")


class ByDLPack:
    """An array that offers nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class VendorModule(Module):
    """What a vendor's loader in Python makes."""

    type_key = "vendor"

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def function_names(self) -> tuple[str, ...]:
        return ()

    def get_function(self, name: str) -> Callable[..., object]:
        raise KeyError(name)

    def save_to_binary(self) -> bytes:
        return frame("vendor", "", self.content)


def test_what_a_module_offers() -> None:
    loaded = module()
    assert loaded.type_key == "examplejson"
    assert loaded.function_names == ("s",)
    assert loaded.imported_modules == ()
    assert loaded.get_source() == TEXT
    assert repr(loaded) == "<relaybuild Module of type 'examplejson' with 's'>"
    again = load_from_binary("examplejson", loaded.save_to_binary())
    assert again.get_source() == TEXT
    inputs, outputs = loaded.get_function("s").describe()  # type: ignore[attr-defined]
    assert inputs == (("0", (2, 3), "float32"), ("1", (3,), "float32"))
    assert outputs == (("2", (2, 3), "float32"),)


def test_a_missing_function_is_an_error_with_those_that_are_there() -> None:
    with pytest.raises(UserError, match="of type 'examplejson' has no function 't', its functions are: 's'"):
        module().get_function("t")


def test_the_function_outlives_the_module() -> None:
    out = np.zeros((2, 3), "float32")
    module()["s"](A, B, out)
    np.testing.assert_array_equal(out, A + B)


@pytest.mark.parametrize("wrap", [np.asarray, ByDLPack, memoryview])
def test_arrays_of_any_origin(function: Callable[..., object], wrap: Callable[[np.ndarray], object]) -> None:
    out = np.zeros((2, 3), "float32")
    function(wrap(A), wrap(B), wrap(out))
    np.testing.assert_array_equal(out, A + B)


def test_torch_tensors(function: Callable[..., object]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    out = torch.zeros(2, 3)
    function(torch.from_numpy(A.copy()), torch.from_numpy(B.copy()), out)
    np.testing.assert_array_equal(out.numpy(), A + B)


def test_inputs_may_be_read_only_and_have_gaps(function: Callable[..., object]) -> None:
    out = np.zeros((2, 3), "float32")
    fixed = A.copy()
    fixed.flags.writeable = False
    function(fixed, np.repeat(B, 2)[::2], out)
    np.testing.assert_array_equal(out, A + B)
    function(np.asfortranarray(A), B, out)
    np.testing.assert_array_equal(out, A + B)


def _read_only(shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape, "float32")
    array.flags.writeable = False
    return array


SHARED = np.zeros((2, 3), "float32")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((A, B), "got 2 arguments, function 's' takes 3: 2 inputs, then 1 outputs to write"),
        ((), "got 0 arguments, function 's' takes 3"),
        ((A, B.astype("float64"), SHARED), "input '1' has dtype float64, expected float32"),
        ((A[0], B, SHARED), "input '0' has shape (3,), expected (2, 3)"),
        ((A, B, SHARED[:1]), "output '2' has shape (1, 3), expected (2, 3)"),
        ((A, B, np.zeros((3, 2), "float32").T), "output '2' is not a row-major array, aligned and without gaps"),
        ((A, B, _read_only((2, 3))), "output '2' cannot be read as an array: buffer source array is read-only"),
        ((SHARED, B, SHARED), "output '2' shares memory with input '0', expected memory of its own"),
        ((A, 3, SHARED), "input '1' is of type 'int', expected an array"),
        ((A, None, SHARED), "input '1' is of type 'NoneType', expected an array"),
    ],
)
def test_what_is_wrong_with_an_array_is_said(
    function: Callable[..., object], arrays: tuple[object, ...], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        function(*arrays)
    assert message in str(raised.value)


def test_keywords_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        function(A, B, out=SHARED)


def test_tensors_without_elements() -> None:
    out = np.zeros((0, 3), "float32")
    module(TEXT.replace("2 3", "0 3"))["s"](np.zeros((0, 3), "float32"), B, out)


def test_the_format_is_told_by_the_name_or_the_content(tmp_path: Path) -> None:
    for name, content in (("m.examplejson", TEXT.encode()), ("m.bin", module().save_to_binary())):
        (tmp_path / name).write_bytes(content)
        for fmt in (None, ""):
            assert relaybuild.load_module(tmp_path / name, fmt).get_source() == TEXT


def test_an_unknown_format_lists_those_that_there_are(tmp_path: Path) -> None:
    path = tmp_path / "m.tensorrt"
    path.write_bytes(b"?")
    with pytest.raises(UserError) as raised:
        relaybuild.load_module(path)
    text = str(raised.value)
    assert text.startswith(f"{path}: there is no loader 'runtime.module.loadfile_tensorrt' for the format 'tensorrt', ")
    assert "expected one of 'so', 'examplejson'" in text
    assert "USE_EXAMPLE_JSON" in text
    assert "register_func('runtime.module.loadfile_tensorrt') adds one" in text


def test_a_missing_loader_of_bytes_names_the_flag_that_brings_one() -> None:
    with pytest.raises(UserError) as raised:
        load_from_binary("", frame("npu", "USE_NPU", b"..."))
    assert str(raised.value) == (
        "there is no loader 'runtime.module.loadbinary_npu' for a module of type 'npu': build with USE_NPU=ON, which "
        "brings one (loaders that are there: 'examplejson')"
    )


def test_a_module_of_another_type_is_refused() -> None:
    with pytest.raises(UserError, match="the module is of type 'examplejson', expected 'npu'"):
        load_from_binary("npu", module().save_to_binary())


def test_loaders_of_a_vendor_are_asked_first(tmp_path: Path) -> None:
    register_func("runtime.module.loadfile_vendor", lambda path: VendorModule(Path(path).read_bytes()))
    register_func("runtime.module.loadbinary_vendor", VendorModule)
    path = tmp_path / "m.vendor"
    path.write_bytes(b"content")
    loaded = relaybuild.load_module(path)
    assert isinstance(loaded, VendorModule)
    again = load_from_binary("vendor", loaded.save_to_binary())
    assert isinstance(again, VendorModule)
    assert again.content == b"content"
    with pytest.raises(UserError, match="expected one of 'so', 'examplejson', 'vendor'"):
        relaybuild.load_module(path, "unknown")


def test_a_loader_that_returns_no_module_is_named(tmp_path: Path) -> None:
    register_func("runtime.module.loadfile_vendor", lambda path: 3)
    path = tmp_path / "m.vendor"
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"loader 'runtime\.module\.loadfile_vendor' returned a int, expected a"):
        relaybuild.load_module(path)
