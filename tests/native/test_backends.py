"""One model with every subset of the backends gives the host's results, exported and loaded from Python and C++."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from compiling import Array
from runners.cpp_program import run_from_cpp

import relaybuild
from relaybuild.backends.selection import select

FLAGS = {
    "USE_CODEGENC": "codegen_c",
    "USE_EXAMPLE_JSON": "example_json",
    "USE_CBLAS": "cblas",
    "USE_DNNL": "dnnl",
}
SUBSETS = [
    pytest.param(
        subset, id="+".join(FLAGS[flag] for flag in subset) or "host", marks=[pytest.mark.slow] * (size in (2, 3))
    )
    for size in range(len(FLAGS) + 1)
    for subset in itertools.combinations(FLAGS, size)
]


def module() -> relaybuild.IRModule:
    relay = relaybuild.relay
    rng = np.random.default_rng(7)

    def weight(*shape: int) -> relay.Constant:
        return relay.const(rng.standard_normal(shape).astype("float32"), "float32")

    x = relay.var("x", shape=(1, 6, 10, 12))
    conv = relay.nn.conv2d(x, weight(6, 6, 3, 3), padding=(1, 1, 1, 1), channels=6, kernel_size=(3, 3))
    active = relay.nn.relu(relay.nn.bias_add(conv, weight(6)))
    clipped = relay.clip(relay.add(active, x), a_min=-0.5, a_max=4.0)
    scaled = relay.multiply(clipped, relay.exp(relay.negative(clipped)))
    dense = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(scaled)), weight(7, 6), units=7)
    wide = relay.nn.dense(relay.cast(dense, "float64"), relay.const(rng.standard_normal((7, 7)), "float64"), units=7)
    result = relay.nn.softmax(relay.tanh(relay.subtract(relay.cast(wide, "float32"), weight(7))))
    return relaybuild.IRModule.from_expr(relay.Function([x], relay.Tuple([result, scaled])))


def available(subset: tuple[str, ...]) -> None:
    """Skips the test where a library that a backend needs is not there."""
    for flag in subset:
        if flag in ("USE_CBLAS", "USE_DNNL") and not select({flag: "AUTO"}).backends:
            pytest.skip(f"{flag}: the library was not found on this machine")


@pytest.fixture(scope="module")
def expected() -> tuple[Array, Array, Array]:
    x = np.random.default_rng(8).standard_normal((1, 6, 10, 12)).astype("float32")
    first, second = relaybuild.interpret(module(), x)
    return x, first, second


@pytest.mark.parametrize("subset", SUBSETS)
def test_every_subset_of_the_backends_gives_what_the_host_gives(
    subset: tuple[str, ...], expected: tuple[Array, Array, Array], tmp_path: Path
) -> None:
    available(subset)
    artifact = relaybuild.compile(module(), config=dict.fromkeys(subset, "ON"))
    owners = {region["backend"] for region in artifact.summary["regions"]}
    assert owners == {FLAGS[flag] for flag in subset}
    artifact.export_library(tmp_path / "model.so")
    x, *results = expected
    from_python = relaybuild.load_module(tmp_path / "model.so")(x)
    from_cpp = run_from_cpp(tmp_path / "model.so", [x], [wanted.shape for wanted in results])
    for found in (from_python, from_cpp):
        for value, wanted in zip(found, results, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)
