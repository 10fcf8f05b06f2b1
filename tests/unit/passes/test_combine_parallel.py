"""Which siblings are joined: by number, shape, scope and what their weights depend on."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Call
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from relaybuild.passes.combine_parallel_conv2d import CombineParallelConv2D
from relaybuild.passes.combine_parallel_dense import CombineParallelDense
from relaybuild.passes.infra import Pass


def counts(each: Pass, text: str) -> dict[str, int]:
    """How often each operator is called afterwards; types and values have stayed."""
    mod = parse(text)
    after = each(mod)
    verify_module(after, "typed")
    assert after["main"].body.checked_type == mod["main"].body.checked_type
    check_values(mod, after)
    found: dict[str, int] = {}
    for node in post_order(after["main"].body):
        if isinstance(node, Call):
            found[node.op_name] = found.get(node.op_name, 0) + 1
    return found


def check_values(mod: IRModule, after: IRModule) -> None:
    random = np.random.default_rng(0)
    args = [random.normal(size=param.tensor_type.static_shape).astype("float32") for param in mod["main"].params]
    for wanted, found in zip(interpret(mod, *args), interpret(after, *args)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


CONV = """
def @main(%x: Tensor[(1, 3, 5, 5), float32], %w: Tensor[(4, 3, 1, 1), float32], %v: Tensor[(2, 3, 1, 1), float32],
          %u: Tensor[(4, 3, 3, 3), float32], %a: Tensor[(4, 1, 1), float32], %b: Tensor[(2, 1, 1), float32]) {{
  {body}
}}
"""


def conv(body: str, branches: int = 2) -> dict[str, int]:
    return counts(CombineParallelConv2D(branches), CONV.format(body=body))


def test_siblings_are_joined_and_others_left() -> None:
    """CP01: two 1x1 convolutions become one; one of another window stays."""
    found = conv("(nn.conv2d(%x, %w), nn.conv2d(%x, %v), nn.conv2d(%x, %u, padding=[1]))")
    assert found == {"nn.conv2d": 2, "concatenate": 1, "strided_slice": 2}


def test_scales_and_rectifiers_behind_are_joined() -> None:
    """CP02: conv, scale, relu."""
    found = conv("(nn.relu(nn.conv2d(%x, %w) * %a), nn.relu(nn.conv2d(%x, %v) * %b))")
    assert found == {"nn.conv2d": 1, "multiply": 1, "nn.relu": 1, "concatenate": 2, "strided_slice": 2}


def test_scales_of_other_kinds_stay_behind_the_slices() -> None:
    """CP03: a scale per channel and a scalar cannot be joined."""
    found = conv("(nn.conv2d(%x, %w) * %a, nn.conv2d(%x, %v) * 2f)")
    assert found == {"nn.conv2d": 1, "multiply": 2, "concatenate": 1, "strided_slice": 2}


def test_blocks_behind_each_other_are_joined_each() -> None:
    """CP04: a joined pair feeds another pair."""
    body = """%0 = nn.conv2d(%x, %w) + nn.conv2d(%x, %w);
  %1 = reshape(strided_slice(%0, begin=[0], end=[3], axes=[1]), newshape=[1, 3, 5, 5]);
  (nn.conv2d(%1, %w), nn.conv2d(%1, %v))"""
    assert conv(body)["nn.conv2d"] == 2


def test_fewer_than_the_least_number_stay() -> None:
    """CP05: three branches are wanted, two are there."""
    assert conv("(nn.conv2d(%x, %w), nn.conv2d(%x, %v))", 3) == {"nn.conv2d": 2}


def test_a_weight_that_depends_on_a_sibling_is_not_joined() -> None:
    """Joining would make a cycle."""
    body = """%0 = nn.conv2d(%x, %w);
  %1 = reshape(sum(%0, axis=[0, 2, 3]), newshape=[4, 1, 1, 1]);
  (%0, nn.conv2d(%x, %w * %1))"""
    assert conv(body)["nn.conv2d"] == 2


def test_siblings_of_different_branches_are_not_joined() -> None:
    """One of them would be computed where it is not wanted."""
    text = """
    def @main(%x: Tensor[(1, 3, 5, 5), float32], %w: Tensor[(4, 3, 1, 1), float32]) {
      %0 = if (less(sum(%x), 0f)) { nn.conv2d(%x, %w) } else { tanh(nn.conv2d(%x, %w)) };
      (%0, nn.conv2d(%x, %w))
    }
    """
    assert counts(CombineParallelConv2D(2), text)["nn.conv2d"] == 3


def test_lets_are_joined_where_the_first_stood() -> None:
    """Weights are parameters, which are in scope there."""
    body = """let %p = nn.conv2d(%x, %w);
  let %q = nn.relu(%p);
  let %r = nn.conv2d(%x, %v);
  let %s = nn.relu(%r);
  (%q, %s)"""
    # the lets that held single results keep slices of the joined ones
    assert conv(body) == {"nn.conv2d": 1, "nn.relu": 1, "concatenate": 1, "strided_slice": 4}


DENSE = """
def @main(%x: Tensor[(2, 4), float32], %y: Tensor[(3, 4), float32], %w: Tensor[(3, 4), float32],
          %v: Tensor[(5, 4), float32], %a: Tensor[(3,), float32], %b: Tensor[(5,), float32]) {{
  {body}
}}
"""


@pytest.mark.parametrize(
    ("body", "products"),
    [
        ("(nn.dense(%x, %w), nn.dense(%x, %w), nn.dense(%y, %w))", 2),
        ("(nn.dense(%x, %w) + %a, nn.dense(%x, %v) + %b)", 1),
        ("(nn.dense(%x, %w), nn.dense(%x, %v), nn.dense(%x, %w))", 1),
        ("(nn.relu(nn.bias_add(nn.dense(%x, %w), %a)), nn.relu(nn.bias_add(nn.dense(%x, %v), %b)))", 1),
    ],
)
def test_products_of_one_value_are_joined(body: str, products: int) -> None:
    """CQ01, CQ02, CQ03, CQ04: of one value alone, with biases, of different sizes, with what follows."""
    assert counts(CombineParallelDense(2), DENSE.format(body=body))["nn.dense"] == products


def test_slices_are_taken_along_the_last_axis() -> None:
    """CQ05: data of rank 3."""
    text = """
    def @main(%x: Tensor[(2, 3, 4), float32], %w: Tensor[(3, 4), float32], %v: Tensor[(5, 4), float32]) {
      (nn.dense(%x, %w), nn.dense(%x, %v))
    }
    """
    assert counts(CombineParallelDense(2), text)["nn.dense"] == 1


@pytest.mark.parametrize(("attrs", "right"), [("", "(2, 4, 5)"), (", transpose_b=True", "(2, 5, 4)")])
def test_batched_products_are_joined(attrs: str, right: str) -> None:
    """CQ06, CQ07: right sides as they are, and transposed."""
    text = f"""
    def @main(%x: Tensor[(2, 3, 4), float32], %w: Tensor[{right}, float32], %v: Tensor[{right}, float32]) {{
      (nn.matmul(%x, %w{attrs}), nn.matmul(%x, %v{attrs}), nn.matmul(%x, %w{attrs}))
    }}
    """
    assert counts(CombineParallelBatchMatmul(), text)["nn.matmul"] == 1
