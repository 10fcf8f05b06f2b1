"""Batch norms and other norms along every axis, against the operators' own semantics."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Call
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.visitor import post_order
from relaybuild.passes.canonicalize_cast import CanonicalizeCast
from relaybuild.passes.infra import Pass
from relaybuild.passes.simplify_inference import SimplifyInference


def names(each: Pass, mod: IRModule) -> list[str]:
    """The operators after a pass that keeps values."""
    after = each(mod)
    random = np.random.default_rng(0)
    kinds = [param.tensor_type for param in mod["main"].params]
    args = [np.asarray(random.random(kind.static_shape) * 4).astype(kind.dtype) for kind in kinds]
    wanted, found = interpret(mod, *args), interpret(after, *args)
    for a, b in zip(wanted, found) if isinstance(wanted, tuple) else [(wanted, found)]:
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    return [node.op_name for node in post_order(after["main"].body) if isinstance(node, Call)]


@pytest.mark.parametrize(("axis", "channels"), [(1, 3), (2, 4), (3, 5), (-1, 5), (0, 2)])
def test_batch_norm_becomes_scale_and_shift_along_every_axis(axis: int, channels: int) -> None:
    """SI01: batch_norm for each axis."""
    vectors = ", ".join(f"%{name}: Tensor[({channels},), float32]" for name in "gbmv")
    text = f"""
    def @main(%x: Tensor[(2, 3, 4, 5), float32], {vectors}) {{
      %0 = nn.batch_norm(%x, %g, %b, %m, %v, axis={axis});
      %0.0
    }}
    """
    assert names(SimplifyInference(), parse(text))[-2:] == ["reshape", "add"] or axis in (3, -1)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("norm", ["nn.layer_norm", "nn.instance_norm"])
def test_norms_by_the_data_are_written_out(norm: str, axis: int) -> None:
    """Moments, and gamma and beta along the axis."""
    channels = (2, 3, 4, 5)[axis]
    text = f"""
    def @main(%x: Tensor[(2, 3, 4, 5), float32], %g: Tensor[({channels},), float32],
              %b: Tensor[({channels},), float32]) {{
      {norm}(%x, %g, %b, axis={axis})
    }}
    """
    assert norm not in names(SimplifyInference(), parse(text))
    assert names(SimplifyInference(norms=False), parse(text)) == [norm]


def test_a_widening_cast_is_repeated_for_each_elementwise_user() -> None:
    """CA01: between the kernels lies the narrow value."""
    text = """
    def @main(%x: Tensor[(2, 3), int8], %y: Tensor[(2, 3), int32]) {
      %0 = cast(%x + %x, dtype="int32");
      (%0 + %y, %0 * %y)
    }
    """
    assert names(CanonicalizeCast(), parse(text)) == ["add", "cast", "add", "cast", "multiply"]
