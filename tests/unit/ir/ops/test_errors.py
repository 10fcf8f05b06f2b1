"""Each type relation refuses what does not fit, and says what was found and what was expected."""

from __future__ import annotations

import pytest

from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Call, Span, Var
from relaybuild.ir.op import call_op, get_op
from relaybuild.ir.types import Dim, TensorType, TupleType, Type

N = Dim("n")


def t(*shape: int | Dim, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


MISMATCHES = [
    (
        "nn.conv2d",
        [t(1, 64, 8, 8), t(8, 32, 3, 3)],
        {},
        "expected weight's input channels 64 (data channels 64 / groups 1), found 32",
    ),
    (
        "nn.conv2d",
        [t(1, 7, 8, 8), t(8, 3, 3, 3)],
        {"groups": 2},
        "expected weight's input channels (data channels 7 / groups 2), found 3",
    ),
    (
        "nn.conv2d",
        [t(1, 8, 8, 8), t(7, 4, 3, 3)],
        {"groups": 2},
        "expected weight's output channels a multiple of groups 2, found 7",
    ),
    (
        "nn.conv2d",
        [t(1, 3, N, 8), t(8, 3, 3, 3)],
        {},
        "expected a number as data's extent H, found the symbolic extent 'n'",
    ),
    (
        "nn.conv2d",
        [t(1, 3, 2, 8), t(8, 3, 5, 5)],
        {"padding": 1},
        "expected at most 4 (extent 2 and padding 2) as the window's extent, found 5",
    ),
    ("nn.conv2d", [t(3, 8, 8), t(8, 3, 3, 3)], {}, "expected data of rank 4, found rank 3"),
    (
        "nn.conv2d",
        [t(1, 3, 8, 8), t(8, 3, 3, 3)],
        {"strides": 0},
        "expected positive values in 'strides', found (0, 0)",
    ),
    (
        "nn.conv2d",
        [t(1, 3, 8, 8), t(8, 3, 3, 3)],
        {"padding": (1, 1, 1)},
        "expected 4 values in 'padding', found 3: (1, 1, 1)",
    ),
    (
        "nn.conv2d",
        [t(1, 3, 8, 8), t(8, 3, 3, 3)],
        {"data_layout": "NCHWD"},
        "expected a layout out of the letters NCHW, found 'NCHWD'",
    ),
    (
        "nn.conv2d_transpose",
        [t(1, 4, 8, 8), t(5, 4, 3, 3)],
        {},
        "expected weight's input channels 4 (data channels), found 5",
    ),
    (
        "nn.conv2d_transpose",
        [t(1, 4, 1, 1), t(4, 4, 1, 1)],
        {"padding": 1},
        "expected a positive output extent, found -1 (padding (1, 1))",
    ),
    ("nn.dense", [t(2, 3), t(5, 4)], {}, "expected weight's input units 3, found 4"),
    ("nn.matmul", [t(2, 3), t(4, 5)], {}, "expected the second argument's inner extent 3, found 4"),
    ("nn.matmul", [t(3), t(3, 5)], {}, "expected tensors of rank 2 or more, found rank 1"),
    (
        "nn.matmul",
        [t(2, 4, 3), t(3, 3, 5)],
        {},
        "shapes (2) and (3) do not broadcast: expected equal extents (or 1) at -1, found 2 and 3",
    ),
    (
        "add",
        [t(2, 3), t(2, 4)],
        {},
        "shapes (2, 3) and (2, 4) do not broadcast: expected equal extents (or 1) at -1, found 3 and 4",
    ),
    (
        "add",
        [t(2), t(2, dtype="int64")],
        {},
        "expected one dtype, found float32 and, at 1, int64: insert a cast",
    ),
    ("logical_and", [t(2), t(2)], {}, "expected argument of dtype bool, found float32"),
    ("add", [TupleType((t(2),)), t(2)], {}, "expected a tensor as argument 0, found (Tensor[(2,), float32],)"),
    ("cast", [t(2)], {"dtype": "float"}, "found 'float'"),
    ("nn.bias_add", [t(2, 3), t(4)], {}, "expected bias' extent 3, found 4"),
    ("nn.bias_add", [t(2, 3), t(3)], {"axis": 2}, "expected 'axis' in [-2, 2), found 2"),
    (
        "nn.batch_norm",
        [t(1, 3, 2, 2), t(3), t(3), t(4), t(3)],
        {},
        "expected the extent of moving_mean 3, found 4",
    ),
    ("nn.max_pool2d", [t(1, 3, 8)], {"pool_size": 2}, "expected data of rank 4, found rank 3"),
    (
        "nn.group_norm",
        [t(1, 5, 2), t(5), t(5)],
        {"num_groups": 2},
        "expected channels a multiple of num_groups 2, found 5",
    ),
    ("nn.softmax", [t(2, 3)], {"axis": 2}, "expected 'axis' in [-2, 2), found 2"),
    ("sum", [t(2, 3)], {"axis": (1, -1)}, "expected distinct axes, found (1, -1)"),
    ("sum", [t(2, 3)], {"exclude": True}, "expected 'axis' where 'exclude' is set, found none"),
    ("argmax", [t(2, 0)], {"axis": 1}, "expected elements to choose from, found extent 0"),
    (
        "reshape",
        [t(2, 3)],
        {"newshape": (4, 2)},
        "expected as many elements as (2, 3) has in 'newshape', found (4, 2)",
    ),
    ("reshape", [t(2, 3)], {"newshape": (-1, 4)}, "expected a multiple of 4 elements for 'newshape' (-1, 4): (2, 3)"),
    ("reshape", [t(2, 3)], {"newshape": (-1, -1)}, "at most one -1 in 'newshape', found (-1, -1)"),
    (
        "reshape",
        [t(2)],
        {"newshape": (2, 0)},
        "expected an extent to keep at position 1 of 'newshape', found only 1 axes",
    ),
    ("transpose", [t(2, 3)], {"axes": (0, 0)}, "expected a permutation of 2 axes, found (0, 0)"),
    ("squeeze", [t(2, 1)], {"axis": 0}, "expected extent 1 at axis 0, found 2"),
    ("concatenate", [TupleType((t(2, 3), t(3, 3)))], {"axis": 1}, "expected extent 2 at axis 0 of field 1, found 3"),
    ("concatenate", [t(2)], {}, "expected a tuple of at least one tensor, found Tensor[(2,), float32]"),
    ("stack", [TupleType((t(2), t(3)))], {}, "expected extent 2 at axis 0 of field 1, found 3"),
    ("split", [t(2, 7)], {"indices_or_sections": 3, "axis": 1}, "divides into 3 equal sections, found 7"),
    ("split", [t(7)], {"indices_or_sections": (4, 2)}, "expected ascending cuts between 0 and 7, found (4, 2)"),
    ("strided_slice", [t(4)], {"begin": (0,), "end": (4, 4)}, "of one length, found 1, 2, 1 and 1"),
    ("strided_slice", [t(4)], {"begin": (0,), "end": (4,), "strides": (0,)}, "expected strides other than 0"),
    ("strided_slice", [t(N)], {"begin": (0,), "end": (4,)}, "found the symbolic extent 'n'"),
    ("take", [t(4), t(2)], {"axis": 0}, "expected indices of dtype int16 or"),
    ("take", [t(0, 2), t(3, dtype="int64")], {"axis": 0}, "expected elements to take, found extent 0"),
    ("gather", [t(2, 3), t(3, 3, dtype="int64")], {"axis": 1}, "expected indices' extent at most 2 at axis 0, found 3"),
    ("gather_nd", [t(2), t(3, 2, dtype="int64")], {}, "expected index tuples of at most 1, found 2"),
    (
        "scatter_nd",
        [t(4, 5), t(3, 1, dtype="int64"), t(3, 4)],
        {},
        "expected updates of type Tensor[(3, 5), float32], found Tensor[(3, 4), float32]",
    ),
    (
        "broadcast_to",
        [t(2, 3)],
        {"shape": (3,)},
        "expected a shape that Tensor[(2, 3), float32] broadcasts to, found (3,)",
    ),
    ("nn.pad", [t(2, 3)], {"pad_width": ((1, 1),)}, "expected 2 values in 'pad_width', found 1"),
    (
        "nn.pad",
        [t(2)],
        {"pad_width": ((2, 0),), "pad_mode": "reflect"},
        "expected padding below the extent 2 of axis 0",
    ),
    ("nn.pad", [t(2)], {"pad_width": ((-3, 0),)}, "expected at most 2 elements cut off axis 0, found 3"),
    ("nn.depth_to_space", [t(1, 6, 2, 2)], {"block_size": 2}, "expected channels a multiple of 4, found 6"),
    ("full", [], {"shape": (-1,), "fill_value": 0}, "expected extents of 0 or more in 'shape', found (-1,)"),
    ("arange", [], {"stop": 3, "step": 0}, "expected a step other than 0"),
    ("arange", [], {"stop": 3, "step": 0.5, "dtype": "int64"}, "expected whole numbers for int64"),
    (
        "image.resize2d",
        [t(1, 1, 2, 2)],
        {"size": 4, "method": "area"},
        "expected 'method' to be one of nearest_neighbor",
    ),
    ("topk", [t(3)], {"k": 4}, "expected 'k' at most 3 (the extent of axis 0), found 4"),
]


@pytest.mark.parametrize(("name", "types", "attrs", "message"), MISMATCHES, ids=[str(row[0]) for row in MISMATCHES])
def test_mismatch_is_refused(name: str, types: list[Type], attrs: dict[str, object], message: str) -> None:
    op = get_op(name)
    with pytest.raises(TypeCheckError) as caught:
        op.check(types, op.make_attrs(attrs), Span("model.onnx", "node"))
    assert message in caught.value.message
    assert caught.value.where == "model.onnx: node 'node'"


def test_error_names_the_call_and_the_types_found() -> None:
    with pytest.raises(TypeCheckError) as caught:
        call_op("nn.dense", [Var("x", t(2, 3)), Var("w", t(5, 4))], Span("m.onnx", "fc"))
    assert str(caught.value) == (
        "m.onnx: node 'fc': 'nn.dense' over (Tensor[(2, 3), float32], Tensor[(5, 4), float32]): "
        "expected weight's input units 3, found 4"
    )


def test_unknown_attribute_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'nn\.conv2d' has no attribute 'stride'; did you mean 'strides'"):
        get_op("nn.conv2d").make_attrs({"stride": 2})


def test_call_without_types_is_not_checked_yet() -> None:
    assert not Call(get_op("add"), [Var("x"), Var("y", t(2))]).has_type
