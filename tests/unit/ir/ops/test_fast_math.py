"""How far the approximations are from what they approximate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaybuild.ir.op import get_op

X = np.linspace(-12, 12, 100_001).astype("float32")


def evaluate(
    name: str, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    op = get_op(name)
    return np.asarray(op.evaluate([x], op.make_attrs({}))).astype("float64")


def test_fast_exp_is_close_relative_to_the_value() -> None:
    """FM01: within 5e-5 over the whole range of float32, limited beyond it; exp(0) is 1."""
    x = np.linspace(-87, 88, 100_001).astype("float32")
    np.testing.assert_allclose(evaluate("fast_exp", x), np.exp(x.astype("float64")), rtol=5e-5)
    assert evaluate("fast_exp", np.float32([0]))[0] == 1
    assert np.isfinite(evaluate("fast_exp", np.float32([np.inf, -np.inf, 1e9]))).all()


@pytest.mark.parametrize(("name", "reference", "bound"), [("fast_tanh", np.tanh, 5e-7), ("fast_erf", math.erf, 1e-6)])
def test_odd_approximations_are_close(name: str, reference: object, bound: float) -> None:
    """FM02, FM03: tanh and erf, saturating at 1."""
    wanted = np.vectorize(reference)(X.astype("float64"))
    np.testing.assert_allclose(evaluate(name, X), wanted, atol=bound)


def test_fast_softmax_sums_to_one() -> None:
    """FM04: the result is a distribution, close to softmax."""
    x = np.random.default_rng(0).normal(size=(5, 40)).astype("float32") * 4
    found = evaluate("nn.fast_softmax", x)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(found, evaluate("nn.softmax", x), rtol=1e-4, atol=1e-7)
