"""Where values become narrow, where they are cast back, and what the options change."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.visitor import post_order
from relaybuild.passes.infra import PassContext
from relaybuild.passes.to_mixed_precision import ToMixedPrecision

NETWORK = """
def @main(%x: Tensor[(2, 8, 6, 6), float32], %w: Tensor[(8, 8, 3, 3), float32], %b: Tensor[(8,), float32]) {
  %0 = nn.relu(nn.bias_add(nn.conv2d(%x, %w, padding=[1]), %b));
  %1 = nn.conv2d(%0 + %0, %w, padding=[1]);
  nn.softmax(nn.batch_flatten(%1))
}
"""


def dtypes(mod: IRModule) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in post_order(mod["main"].body):
        if isinstance(node, Call):
            found.setdefault(node.op_name, set()).add(node.tensor_type.dtype)
    return found


def test_the_three_kinds_of_operators() -> None:
    """MP01: convolutions run narrow, element-wise users follow, softmax runs wide."""
    found = dtypes(ToMixedPrecision()(parse(NETWORK)))
    assert found["nn.conv2d"] == found["nn.relu"] == found["add"] == found["nn.batch_flatten"] == {"float16"}
    assert found["nn.softmax"] == {"float32"}


def test_a_value_is_cast_once() -> None:
    """MP02: the weight that two convolutions use."""
    after = ToMixedPrecision()(parse(NETWORK))
    casts = [node for node in post_order(after["main"].body) if isinstance(node, Call) and node.op_name == "cast"]
    assert len(casts) == 4


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-3), ("bfloat16", 8e-2)])
def test_results_are_close(dtype: str, tolerance: float) -> None:
    """MP03: within the precision of the narrow type."""
    mod = parse(NETWORK)
    random = np.random.default_rng(0)
    args = [random.normal(size=param.tensor_type.static_shape).astype("float32") / 8 for param in mod["main"].params]
    after = ToMixedPrecision(dtype)(mod)
    np.testing.assert_allclose(interpret(after, *args), interpret(mod, *args), atol=tolerance)


def test_outputs_keep_their_type_where_the_context_says_so() -> None:
    """MP04: relay.ToMixedPrecision.keep_orig_output_dtype."""
    mod = parse("def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(3, 3), float32]) { nn.dense(%x, %w) }")
    assert ToMixedPrecision()(mod)["main"].body.tensor_type.dtype == "float16"
    with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        assert ToMixedPrecision()(mod)["main"].body.tensor_type.dtype == "float32"


def test_the_kind_of_an_operator_can_be_overridden() -> None:
    """MP05: a convolution that must not be narrowed leaves the program as it was."""
    mod = parse(NETWORK)
    assert ToMixedPrecision(overrides={"nn.conv2d": "never"})(mod) is mod


def test_only_narrow_types_are_taken() -> None:
    """MP06: the message names both."""
    with pytest.raises(UserError, match="expected 'mixed_precision_type' float16 or bfloat16, found 'int8'"):
        ToMixedPrecision("int8")(parse(NETWORK))


def test_a_second_run_changes_nothing() -> None:
    """MP07: what is narrow stays narrow."""
    once = ToMixedPrecision()(parse(NETWORK))
    assert dtypes(ToMixedPrecision()(once)) == dtypes(once)


def test_bfloat16_is_known_to_a_process_that_has_not_met_it() -> None:
    pytest.importorskip("ml_dtypes")
    code = (
        "from relaybuild.ir.parser import parse\n"
        "from relaybuild.passes.to_mixed_precision import ToMixedPrecision\n"
        "text = 'def @main(%x: Tensor[(2, 2), float32]) { nn.dense(%x, %x) + 1f }'\n"
        "print(ToMixedPrecision('bfloat16')(parse(text)))\n"
        "import numpy\nprint(numpy.dtype('bfloat16'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "bfloat16"
