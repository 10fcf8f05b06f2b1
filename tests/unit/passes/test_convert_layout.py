"""The options of ConvertLayout, and that what it makes can be compiled; the text tests show where layouts go."""

from __future__ import annotations

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.passes.convert_layout import ConvertLayout

NETWORK = """
def @main(%x: Tensor[(1, 3, 6, 6), float32], %w: Tensor[(3, 3, 3, 3), float32]) {
  nn.relu(nn.conv2d(nn.conv2d(%x, %w, padding=[1]), %w, padding=[1]))
}
"""


def layouts(each: ConvertLayout) -> list[str]:
    return [
        node.attrs.data_layout  # type: ignore[union-attr]
        for node in post_order(each(parse(NETWORK))["main"].body)
        if isinstance(node, Call) and node.op_name == "nn.conv2d"
    ]


def test_layers_can_be_skipped() -> None:
    """Positions count the calls that would be converted."""
    wanted = {"nn.conv2d": ["NHWC", "default"]}
    assert layouts(ConvertLayout(wanted)) == ["NHWC", "NHWC"]
    assert layouts(ConvertLayout(wanted, skip_layers=(0,))) == ["NCHW", "NHWC"]


def test_the_text_form_means_the_same() -> None:
    """`operator: layouts; operator: layouts`, for the command line."""
    mod = parse(NETWORK)
    table = ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"], "nn.max_pool2d": ["NHWC"]})(mod)
    assert structural_equal(table, ConvertLayout("nn.conv2d: NHWC HWIO; nn.max_pool2d: NHWC")(mod))


def test_converting_back_undoes_it() -> None:
    """Changes of layout meet and disappear, as far as values go."""
    back = ConvertLayout("nn.conv2d: NCHW OIHW")(ConvertLayout("nn.conv2d: NHWC HWIO")(parse(NETWORK)))
    names = [node.op_name for node in post_order(back["main"].body) if isinstance(node, Call)]
    assert names == ["nn.conv2d", "nn.conv2d", "nn.relu"]


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        ({"nn.conv": ["NHWC", "HWIO"]}, "unknown operator 'nn.conv'"),
        ({"nn.relu": ["NHWC"]}, "'nn.relu' has no layouts to convert"),
        ({"nn.conv2d": ["NHWC"]}, "'nn.conv2d' wants 2 layouts \\(data_layout and kernel_layout\\), found 1"),
        ({"nn.conv2d": ["NHWX", "HWIO"]}, "expected a layout out of the letters NCHW, found 'NHWX'"),
    ],
)
def test_mistakes_are_named(desired: dict[str, list[str]], message: str) -> None:
    """What was found, and what was expected."""
    with pytest.raises(UserError, match=message):
        ConvertLayout(desired)(parse(NETWORK))


def test_an_empty_reversed_slice_stays_empty() -> None:
    """A begin before the first position is not one that counts from the end."""
    mod = parse(
        "def @main(%x: Tensor[(1, 4, 4, 4), float32], %w: Tensor[(4, 4, 1, 1), float32]) {\n"
        "  %0 = nn.conv2d(%x, %w);\n"
        "  strided_slice(%0, begin=[-3], end=[-6], strides=[-1], axes=[0])\n"
        "}"
    )
    after = ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
    assert after["main"].body.checked_type == TensorType((0, 4, 4, 4), "float32")
