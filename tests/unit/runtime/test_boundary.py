"""Arrays at the boundary: every kind either works or is refused by the tensor's name, through every way to call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.runtime import Model, load_model

from .building import build_library

Array = np.ndarray[Any, np.dtype[Any]]
Copy = Callable[[Model, object, object], object]

COUNT = 5


_CODES = {"bool": "Bool", "float": "Float", "int": "Int", "uint": "UInt"}


@functools.cache
def _model(folder: Path, dtype: str, extent: int = COUNT) -> Model:
    """A model, and a function `copy`, whose output `y` is the input `x`: `extent` numbers of a dtype."""
    bits = np.dtype(dtype).itemsize * 8
    code = _CODES[dtype.rstrip("0123456789")]
    defines = [f"CODE=kDL{code}", f"BITS={bits}", f"EXTENT={extent}"]
    return load_model(build_library(folder / f"boundary-{dtype}-{extent}.so", "dtypes.c", defines))


@pytest.fixture(scope="module")
def floats(libraries: Path) -> Model:
    return _model(libraries, "float32")


INPUT_WAYS: dict[str, Callable[[Model, object], object]] = {
    "model": lambda model, x: model(x),
    "keyword": lambda model, x: model(x=x),
    "run": lambda model, x: model.run({"x": x})["y"],
    "run_list": lambda model, x: model.run_list([x])[0],
}
OUTPUT_WAYS: dict[str, Copy] = {
    "run_into": lambda model, x, y: model.run_into([x], [y]),
    "main": lambda model, x, y: model["main"](x, y),
    "function": lambda model, x, y: model["copy"](x, y),
}
WAYS: dict[str, Callable[[Model, object], object]] = dict(INPUT_WAYS)


def _with_output(way: Copy) -> Callable[[Model, object], object]:
    def call(model: Model, x: object) -> object:
        spec = model.signature.outputs[0]
        y = np.zeros(spec.shape, spec.dtype)
        way(model, x, y)
        return y

    return call


WAYS.update((name, _with_output(way)) for name, way in OUTPUT_WAYS.items())


@dataclass(frozen=True)
class Capsules:
    """An array that offers nothing but DLPack; `options` are those of version 1."""

    array: Any
    device: tuple[int, int] = (1, 0)
    versioned: bool = True

    def __dlpack__(self, *, stream: object = None, **options: Any) -> object:
        if options and not self.versioned:
            raise TypeError("no such option")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def _read_only(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x


def _misaligned(x: Array) -> Array:
    raw = np.empty(x.nbytes + 1, np.uint8)
    raw[1:] = x.view(np.uint8)
    return raw[1:].view(x.dtype)


def _torch(x: Array) -> Any:
    return pytest.importorskip("torch", reason="torch is not installed").from_numpy(x.copy())


def _spread(x: Any) -> Any:
    return x.repeat(2)[::2] if isinstance(x, np.ndarray) else x.repeat_interleave(2)[::2]


FORMS: dict[str, Callable[[Array], Any]] = {
    "numpy": lambda x: x,
    "numpy, read-only": _read_only,
    "numpy, with gaps": _spread,
    "numpy, backwards": lambda x: x[::-1].copy()[::-1],
    "numpy, misaligned": _misaligned,
    "numpy, broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "memory": lambda x: memoryview(x),
    "DLPack": Capsules,
    "DLPack, before version 1": lambda x: Capsules(x, versioned=False),
    "DLPack, with gaps": lambda x: Capsules(_spread(x)),
    "torch": _torch,
    "torch, with gaps": lambda x: _spread(_torch(x)),
    "torch, one element over and over": lambda x: _torch(x[:1]).expand(COUNT),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_inputs_that_work(form: str, way: str, floats: Model) -> None:
    x = np.full(COUNT, 3, np.float32) if "broadcast" in form or "over" in form else np.float32([1, 2, 3, 4, 5])
    given = FORMS[form](x)
    np.testing.assert_array_equal(WAYS[way](floats, given), x)


def _meta(x: Array) -> Any:
    return _torch(x).to("meta")


REFUSED_INPUTS: dict[str, tuple[Callable[[Array], Any], str]] = {
    "another dtype": (lambda x: x.astype("f8"), "has dtype float64, expected float32"),
    "half precision": (lambda x: x.astype("f2"), "has dtype float16, expected float32"),
    "truth values": (lambda x: x.astype("?"), "has dtype bool, expected float32"),
    "bytes swapped": (lambda x: x.astype(">f4"), "has elements of format '>f', expected float32"),
    "objects": (lambda x: x.astype(object), "has elements of format 'O', expected float32"),
    "records": (lambda x: np.zeros(COUNT, "f4,f4"), "has elements of format 'T{"),
    "dates": (lambda x: x.astype("M8[s]"), "cannot be read as an array: cannot include dtype 'M'"),
    "text": (lambda x: x.astype("U"), "has elements of format '"),
    "another shape": (lambda x: x[:4], "has shape (4,), expected (5,)"),
    "no elements": (lambda x: x[:0], "has shape (0,), expected (5,)"),
    "no dimensions": (lambda x: x[0], "has shape (), expected (5,)"),
    "a list": (lambda x: x.tolist(), "is of type 'list', expected an array"),
    "nothing": (lambda x: None, "is of type 'NoneType', expected an array"),
    "a mask": (lambda x: np.ma.masked_array(x, x > 2), "is a masked array, expected one without a mask: fill it first"),
    "another device": (lambda x: Capsules(x, device=(2, 0)), "is on a device of DLPack type 2, expected the CPU (1)"),
    "torch, another dtype": (lambda x: _torch(x).double(), "has dtype float64, expected float32"),
    "torch, bfloat16": (lambda x: _torch(x).bfloat16(), "has dtype bfloat16, expected float32"),
    "torch, no memory": (_meta, "cannot be read as an array: "),
    "torch, gradients": (lambda x: _torch(x).requires_grad_(), "cannot be read as an array: "),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", REFUSED_INPUTS)
def test_inputs_that_are_refused_by_name(form: str, way: str, floats: Model) -> None:
    make, message = REFUSED_INPUTS[form]
    x = np.float32([1, 2, 3, 4, 5])
    with pytest.raises(UserError) as caught:
        WAYS[way](floats, make(x))
    assert f"input 'x' {message}" in str(caught.value)
    np.testing.assert_array_equal(WAYS[way](floats, x), x)


OUTPUT_FORMS: dict[str, Callable[[Array], Any]] = {
    "numpy": lambda y: y,
    "a part of an array": lambda y: np.zeros((3, COUNT), y.dtype)[1],
    "memory": lambda y: memoryview(y),
    "DLPack": Capsules,
    "DLPack, before version 1": lambda y: Capsules(y, versioned=False),
    "torch": _torch,
}


def _content(array: Any) -> Array:
    return np.asarray(array.array if isinstance(array, Capsules) else array)


@pytest.mark.parametrize("way", OUTPUT_WAYS)
@pytest.mark.parametrize("form", OUTPUT_FORMS)
def test_outputs_that_are_written_in_place(form: str, way: str, floats: Model) -> None:
    x = np.float32([1, 2, 3, 4, 5])
    y = OUTPUT_FORMS[form](np.zeros(COUNT, np.float32))
    OUTPUT_WAYS[way](floats, x, y)
    np.testing.assert_array_equal(_content(y), x)


REFUSED_OUTPUTS: dict[str, tuple[Callable[[Array], Any], str]] = {
    "read-only": (_read_only, "cannot be read as an array: .*read-only"),
    "read-only DLPack": (lambda y: Capsules(_read_only(y)), "is read-only, expected memory to write to"),
    "with gaps": (_spread, "is not a row-major array, aligned and without gaps"),
    "backwards": (lambda y: y[::-1], "is not a row-major array, aligned and without gaps"),
    "misaligned": (_misaligned, "is not a row-major array, aligned and without gaps"),
    "DLPack with gaps": (lambda y: Capsules(_spread(y)), "is not a row-major array, aligned and without gaps"),
    "another dtype": (lambda y: y.astype("f8"), "has dtype float64, expected float32"),
    "bytes swapped": (lambda y: y.astype(">f4"), "has elements of format '>f', expected float32"),
    "objects": (lambda y: y.astype(object), "has elements of format 'O', expected float32"),
    "another shape": (lambda y: y[:4], r"has shape \(4,\), expected \(5,\)"),
    "a list": (lambda y: y.tolist(), "is of type 'list', expected an array"),
    "another device": (lambda y: Capsules(y, device=(2, 0)), "is on a device of DLPack type 2, expected the CPU"),
    "torch with gaps": (lambda y: _spread(_torch(y)), "is not a row-major array, aligned and without gaps"),
    "torch with gradients": (lambda y: _torch(y).requires_grad_(), "cannot be read as an array: "),
}


@pytest.mark.parametrize("way", OUTPUT_WAYS)
@pytest.mark.parametrize("form", REFUSED_OUTPUTS)
def test_outputs_that_are_refused_by_name(form: str, way: str, floats: Model) -> None:
    make, message = REFUSED_OUTPUTS[form]
    y = make(np.zeros(COUNT, np.float32))
    with pytest.raises(UserError, match=f"output 'y' {message}"):
        OUTPUT_WAYS[way](floats, np.float32([1, 2, 3, 4, 5]), y)
    if "torch" not in form:
        np.testing.assert_array_equal(_content(y).astype("f4"), np.zeros(len(_content(y)), "f4"))


@pytest.mark.parametrize("way", OUTPUT_WAYS)
def test_an_output_that_is_the_input_is_refused_by_name(way: str, floats: Model) -> None:
    x = np.float32([1, 2, 3, 4, 5])
    with pytest.raises(UserError, match="output 'y' shares memory with input 'x'"):
        OUTPUT_WAYS[way](floats, x, x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float16", "bool", "int64", "uint8"])
def test_other_dtypes(dtype: str, way: str, libraries: Path) -> None:
    model = _model(libraries, dtype)
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    for given in (x, _read_only(x), _spread(x), Capsules(x)):
        y = WAYS[way](model, given)
        assert np.asarray(y).dtype == dtype
        np.testing.assert_array_equal(y, x)
    with pytest.raises(UserError, match=rf"input 'x' has dtype float32, expected {dtype}"):
        WAYS[way](model, x.astype("f4"))


@pytest.mark.parametrize("way", OUTPUT_WAYS)
@pytest.mark.parametrize("dtype", ["float16", "bool"])
def test_other_dtypes_of_pytorch(dtype: str, way: str, libraries: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = _model(libraries, dtype)
    x = torch.tensor([0, 1, 1, 0, 1]).to(getattr(torch, dtype))
    y = torch.zeros_like(x)
    OUTPUT_WAYS[way](model, x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["numpy", "numpy, read-only", "numpy, with gaps", "DLPack", "torch"])
def test_tensors_without_elements(form: str, way: str, libraries: Path) -> None:
    model = _model(libraries, "float32", 0)
    y = WAYS[way](model, FORMS[form](np.zeros(0, np.float32)))
    assert np.asarray(y).shape == (0,)
    with pytest.raises(UserError, match=r"input 'x' has shape \(1,\), expected \(0,\)"):
        WAYS[way](model, np.zeros(1, np.float32))


def test_torch_memory_is_not_copied(probe: Model) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([1, 0], dtype=torch.int32)
    assert probe(x)[0] == x.data_ptr()
