"""What the host's rules make of operators without a kernel of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relaybuild.contrib.host.legalize import MOST_BETWEEN, legalize
from relaybuild.ir.expr import Call, Expr, Function, var
from relaybuild.ir.op import call_op
from relaybuild.ir.ops.resize2d import Resize2DAttrs
from relaybuild.ir.types import TensorType


def resized(shape: Sequence[int], dtype: str = "float32", **attrs: object) -> list[Resize2DAttrs]:
    """The attributes of the resizes that one becomes, the first first."""
    data = var("x", TensorType(tuple(shape), dtype))
    node: Expr = legalize(Function([data], call_op("image.resize2d", [data], **attrs))).body
    found: list[Resize2DAttrs] = []
    while isinstance(node, Call):
        assert isinstance(node.attrs, Resize2DAttrs)
        found.insert(0, node.attrs)
        node = node.args[0]
    return found


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_a_resize_is_one_of_columns_then_one_of_rows(method: str) -> None:
    columns, rows = resized((1, 3, 10, 20), size=(25, 30), method=method, scales=(2.45, 1.5))
    assert (columns.size, columns.scales) == ((10, 30), (1.0, 1.5))
    assert (rows.size, rows.scales) == ((25, 30), (2.45, 1.0))
    assert {columns.method, rows.method} == {method}


def test_scales_that_were_not_given_are_not_made_up() -> None:
    assert [attrs.scales for attrs in resized((1, 3, 10, 20), size=(20, 40))] == [(), ()]


@pytest.mark.parametrize(
    ("shape", "dtype", "attrs"),
    [
        ((1, 3, 10, 20), "float32", {"size": (20, 40), "method": "nearest_neighbor"}),
        ((1, 3, 10, 20), "float32", {"size": (10, 40)}),
        ((1, 3, 10, 20), "float32", {"size": (20, 20)}),
        ((1, 3, 10, 20), "int32", {"size": (20, 40)}),
        ((1, 3, 31, 20), "float32", {"size": (15, 40)}),
        ((1, 10, 5, MOST_BETWEEN // 400 + 1), "float32", {"size": (20, 10), "layout": "NHWC"}),
    ],
    ids=["nearest", "columns only", "rows only", "integers", "most rows left out", "too large between"],
)
def test_a_resize_stays_one_where_two_do_more(shape: tuple[int, ...], dtype: str, attrs: dict[str, object]) -> None:
    assert len(resized(shape, dtype, **attrs)) == 1
