"""Compiled models and their regions, called by the loader of apache-tvm-ffi, which knows nothing of relaybuild."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import Array

import relaybuild

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")

SHAPE = (2, 3, 8, 8)


def program() -> relaybuild.IRModule:
    """A convolution for the host between element-wise operators, with two results."""
    relay = relaybuild.relay
    weight = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype("float32")
    x, y = relay.var("x", shape=SHAPE), relay.var("y", shape=SHAPE)
    conv = relay.nn.conv2d(relay.nn.relu(relay.add(x, y)), relay.const(weight), padding=(1, 1), kernel_size=(3, 3))
    return relaybuild.IRModule.from_expr(relay.Function([x, y], relay.Tuple([relay.nn.relu(conv), x * y])))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tvm_ffi") / "model.so"
    config = {"USE_CODEGENC": "ON", "USE_EXAMPLE_JSON": "OFF"}
    relaybuild.compile(program(), config=config, name="bridge", threads=2).export_library(path)
    return path


@pytest.fixture(scope="module")
def loaded(path: Path) -> Any:
    return tvm_ffi.load_module(str(path))


def arguments(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(SHAPE).astype("f4"), rng.standard_normal(SHAPE).astype("f4")


def results() -> tuple[Array, Array]:
    return np.zeros((2, 4, 8, 8), "f4"), np.zeros(SHAPE, "f4")


def check(found: tuple[Array, Array], x: Array, y: Array) -> None:
    for one, other in zip(found, relaybuild.interpret(program(), x, y)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_numpy_arrays(loaded: Any) -> None:
    x, y = arguments()
    outputs = results()
    loaded["main"](*map(tvm_ffi.from_dlpack, (x, y, *outputs)))
    check(outputs, x, y)


def test_pytorch_tensors(loaded: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, y = arguments()
    outputs = [torch.zeros(array.shape) for array in results()]
    loaded["main"](torch.from_numpy(x), torch.from_numpy(y), *outputs)
    check((outputs[0].numpy(), outputs[1].numpy()), x, y)


def test_regions_of_another_backend(loaded: Any, path: Path) -> None:
    (part,) = relaybuild.load_module(path).imported_modules
    assert part.type_key == "c"
    assert part.function_names
    for name in part.function_names:
        inputs, outputs = part.get_function(name).describe()  # type: ignore[attr-defined]
        given = [np.random.default_rng(2).standard_normal(shape).astype(dtype) for _, shape, dtype in inputs]
        ours = [np.zeros(shape, dtype) for _, shape, dtype in outputs]
        theirs = [np.zeros(shape, dtype) for _, shape, dtype in outputs]
        part.get_function(name)(*given, *ours)
        loaded[name](*map(tvm_ffi.from_dlpack, (*given, *theirs)))
        for one, other in zip(ours, theirs):
            assert one.any()
            np.testing.assert_array_equal(one, other)
        with pytest.raises(ValueError, match=f"got 0 arguments, function '{name}' takes"):
            loaded[name]()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y, a, b: (x, y, a), "got 3 arguments, function 'main' takes 4: 2 inputs, then 2 outputs to write"),
        (lambda x, y, a, b: (x, y.astype("f8"), a, b), "input 'y' has dtype float64, expected float32"),
        (lambda x, y, a, b: (x[:1], y, a, b), r"input 'x' has shape \(1, 3, 8, 8\), expected \(2, 3, 8, 8\)"),
        (
            lambda x, y, a, b: (x, y, a, b.swapaxes(2, 3)),
            "output 'output1' has strides .*, expected a row-major",
        ),
        (lambda x, y, a, b: (x, y, a, x), "output 'output1' shares memory with input 'x'"),
        (lambda x, y, a, b: (x, 2.5, a, b), "input 'y' is a number, expected a tensor"),
        (lambda x, y, a, b: (x, None, a, b), "input 'y' is none, expected a tensor"),
    ],
)
def test_errors_arrive_as_exceptions(call: Any, message: str, loaded: Any) -> None:
    given = call(*arguments(), *results())
    with pytest.raises(ValueError, match=message):
        loaded["main"](*(tvm_ffi.from_dlpack(value) if isinstance(value, np.ndarray) else value for value in given))
    test_numpy_arrays(loaded)


def test_calls_from_several_threads(loaded: Any) -> None:
    main = loaded["main"]

    def repeat(seed: int) -> tuple[Array, Array]:
        outputs = results()
        given = [*arguments(seed), *outputs]
        for _ in range(30):
            main(*map(tvm_ffi.from_dlpack, given))
        return outputs

    with ThreadPoolExecutor(4) as pool:
        for seed, outputs in enumerate(pool.map(repeat, range(4))):
            check(outputs, *arguments(seed))


@pytest.mark.parametrize("order", ["relaybuild first", "tvm_ffi first", "without relaybuild"])
def test_any_order_of_loading(order: str, path: Path) -> None:
    """RL01: a library that is there before the package finds it when it has to; relaybuild need not be there."""
    ours = f"from relaybuild.runtime import load_module\nmodel = load_module({str(path)!r})\n"
    theirs = f"import tvm_ffi\nmain = tvm_ffi.load_module({str(path)!r})['main']\n"
    script = {"relaybuild first": ours + theirs, "tvm_ffi first": theirs + ours, "without relaybuild": theirs}[order]
    script += "try:\n    main(1)\nexcept ValueError as error:\n    print(error)\n"
    if order == "without relaybuild":
        script += "import sys\nassert 'relaybuild' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "got 1 arguments, function 'main' takes 4" in done.stdout


def test_the_library_does_not_need_the_package(path: Path) -> None:
    found = subprocess.check_output(["readelf", "-d", path], text=True)
    assert "tvm" not in found
