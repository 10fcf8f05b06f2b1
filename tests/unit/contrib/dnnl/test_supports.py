"""What oneDNN is asked to compute, and why it is not asked."""

from __future__ import annotations

import pytest
from runners.packed import typed

from relaybuild.contrib.dnnl import BACKEND
from relaybuild.contrib.dnnl.pooling import Pooling, pooling_of
from relaybuild.ir.expr import Call
from relaybuild.partition.backend import all_backends

PARAMS = """%x: Tensor[(2, 6, 9, 8), float32], %w: Tensor[(4, 6, 3, 3), float32], %g: Tensor[(6, 1, 3, 3), float32],
  %h: Tensor[(2, 9, 8, 6), float32], %k: Tensor[(3, 3, 6, 4), float32], %a: Tensor[(5, 7), float32],
  %d: Tensor[(3, 7), float32], %e: Tensor[(5, 7), float64], %f: Tensor[(3, 7), float64],
  %n: Tensor[(n, 7), float32], %z: Tensor[(0, 7), float32], %o: Tensor[(7,), float32],
  %r: Tensor[(1, 1, 1, 1, 1, 5, 7), float32], %i: Tensor[(2, 6, 9, 8), int32],
  %p: Tensor[(2, 1, 5, 7), float32], %q: Tensor[(3, 7, 4), float32], %t: Tensor[(2, 3, 7, 4), float32]"""


def call_of(text: str) -> Call:
    body = typed(f"def @main({PARAMS}) {{ {text} }}")["main"].body
    assert isinstance(body, Call)
    return body


@pytest.mark.parametrize(
    "text",
    [
        "nn.conv2d(%x, %w)",
        "nn.conv2d(%x, %g, groups=6, padding=[0, 1, 2, 3], dilation=[2, 1], strides=[1, 2])",
        "nn.dense(%a, %d)",
        "nn.dense(%o, %d)",
        "nn.matmul(%a, %d, transpose_b=True)",
        "nn.matmul(%x, %x, transpose_b=True)",
        "nn.matmul(%p, %t)",
        "nn.max_pool2d(%x, pool_size=[3, 3], padding=[1, 1, 1, 1], ceil_mode=True)",
        "nn.avg_pool2d(%x, pool_size=[2, 2], padding=[1, 0, 0, 0])",
        "nn.avg_pool2d(%x, pool_size=[2, 2], count_include_pad=True)",
        "nn.global_avg_pool2d(%x)",
    ],
)
def test_what_is_taken(text: str) -> None:
    assert BACKEND.supports(call_of(text)) is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nn.relu(%x)", False),
        ("nn.dense(%e, %f)", "found float64, expected float32"),
        ("nn.max_pool2d(%i, pool_size=[3, 3])", "found int32, expected float32"),
        ('nn.dense(%a, %d, out_dtype="float64")', "found float64, expected float32"),
        ("nn.dense(%n, %d)", "found Tensor[(n, 7), float32], expected tensors whose shapes are numbers"),
        ("nn.dense(%z, %d)", "found Tensor[(0, 7), float32], expected tensors with elements"),
        ("nn.matmul(%r, %d, transpose_b=True)", "found a tensor of rank 7, expected rank 6 at most"),
        (
            'nn.conv2d(%h, %k, data_layout="NHWC", kernel_layout="HWIO")',
            "found layouts NHWC, HWIO, NHWC, expected NCHW, OIHW, NCHW",
        ),
        (
            'nn.conv2d(%x, %w, out_layout="NHWC")',
            "found layouts NCHW, OIHW, NHWC, expected NCHW, OIHW, NCHW",
        ),
        ('nn.global_avg_pool2d(%h, layout="NHWC")', "found layout NHWC, expected NCHW"),
        ("nn.max_pool2d(%x, pool_size=[2, 2], dilation=[2, 1])", "found dilation (2, 1), expected (1, 1)"),
        (
            "nn.max_pool2d(%x, pool_size=[1, 2], padding=[1, 0, 0, 0])",
            "found padding (1, 0, 0, 0), expected less than the window (1, 2)",
        ),
        (
            "nn.matmul(%p, %q)",
            "found leading axes along which either operand is broadcast, expected one operand to have them all",
        ),
        (
            "nn.avg_pool2d(%x, pool_size=[2, 2], padding=[1, 0, 0, 0], count_include_pad=True)",
            "found padding that counts in the mean",
        ),
    ],
)
def test_what_is_declined_and_why(text: str, reason: bool | str) -> None:
    assert BACKEND.supports(call_of(text)) == reason


def test_windows_that_reach_beyond_the_image_are_padded() -> None:
    call = call_of("nn.max_pool2d(%x, pool_size=[2, 3], strides=[2, 2], padding=[0, 1, 0, 0], ceil_mode=True)")
    assert pooling_of(call) == Pooling((2, 3), (2, 2), (0, 1, 1, 0))


def test_rows_that_no_window_reaches_stay_unread() -> None:
    call = call_of("nn.max_pool2d(%x, pool_size=[3, 3], strides=[4, 4])")
    assert pooling_of(call) == Pooling((3, 3), (4, 4), (0, 0, 0, 0))


def test_the_backend_is_found_and_asked_before_cblas() -> None:
    backends = all_backends()
    assert backends["dnnl"] is BACKEND
    assert BACKEND.priority > backends["cblas"].priority > backends["host"].priority
