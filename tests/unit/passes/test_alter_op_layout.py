"""Packed layouts: what rules put in, how far it is carried, where it is taken back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import functions_text
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.alter_op_layout import AlterOpLayout, with_layouts
from relaybuild.passes.convert_layout import ConvertLayout
from relaybuild.passes.infra import PassContext
from relaybuild.passes.op_rewrites import scoped_op_rewrite
from relaybuild.passes.simplify_inference import SimplifyInference

Rule = Callable[[Call], "Expr | None"]


def pack(block: int = 16) -> Rule:
    layouts = [f"NCHW{block}c", f"OIHW{block}i{block}o"]
    return lambda call: with_layouts(call, layouts)


def altered(text: str, rule: Rule, op: str = "nn.conv2d") -> tuple[str, IRModule]:
    """The text and module after the pass, which has kept types and values."""
    mod = parse(text)
    before = functions_text(mod)
    with scoped_op_rewrite("alter_op_layout", op, rule):
        after = AlterOpLayout()(mod)
    assert functions_text(mod) == before
    verify_module(after, "typed")
    same_values(mod, after)
    return functions_text(after), after


def same_values(mod: IRModule, after: IRModule) -> None:
    random = np.random.default_rng(0)
    kinds = [param.tensor_type for param in mod["main"].params]
    args = [np.asarray(random.normal(size=kind.static_shape)).astype(kind.dtype) for kind in kinds]
    wanted, found = interpret(mod, *args), interpret(after, *args)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (wanted, found))):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-3)


def names(mod: IRModule, function: str = "main") -> list[str]:
    return [node.op_name for node in post_order(mod[function].body) if isinstance(node, Call)]


def transforms(mod: IRModule) -> list[tuple[str, str]]:
    return [
        (node.attrs.src_layout, node.attrs.dst_layout)  # type: ignore[union-attr]
        for node in post_order(mod["main"].body)
        if isinstance(node, Call) and node.op_name == "layout_transform"
    ]


CONV = """
def @main(%x: Tensor[(1, 32, 6, 6), float32], %w: Tensor[(32, 32, 3, 3), float32], %b: Tensor[(32, 1, 1), float32]) {{
  %0 = nn.conv2d(%x, %w, padding=[1]);
  {rest}
}}
"""


def test_a_rule_replaces_the_call_directly() -> None:
    """AL01: a registered rule multiplies the weight by 2 in place."""

    def double(call: Call) -> Expr:
        return Call(call.op, [call.args[0], call_op("multiply", [call.args[1], const(2.0)])], call.attrs)

    mod = parse(CONV.format(rest="nn.relu(%0)"))
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", double):
        after = AlterOpLayout()(mod)
    assert names(after) == ["multiply", "nn.conv2d", "nn.relu"]


def test_a_rule_without_opinion_is_asked_and_changes_nothing() -> None:
    """AL02: a rule that returns None has been called, and the graph stays the same object."""
    asked: list[str] = []
    mod = parse(CONV.format(rest="nn.relu(%0)"))
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", lambda call: asked.append(call.op_name)):  # type: ignore[func-returns-value]
        assert AlterOpLayout()(mod) is mod
    assert asked == ["nn.conv2d"]


def test_pools_and_elementwise_users_stay_packed_up_to_a_reshape() -> None:
    """AL03: bias, relu, pool and cast follow; a tuple that is taken apart at once goes; batch_flatten gets NCHW."""
    text, after = altered(
        CONV.format(
            rest="""%1 = (nn.relu(%0 + %b), %b);
  %2 = nn.max_pool2d(%1.0, pool_size=[2, 2]);
  nn.batch_flatten(cast(%2, dtype="int32"))"""
        ),
        pack(),
    )
    assert transforms(after) == [
        ("NCHW", "NCHW16c"),
        ("OIHW", "OIHW16i16o"),
        ("NCHW", "NCHW16c"),
        ("NCHW16c", "NCHW"),
    ]
    assert names(after)[-2:] == ["layout_transform", "nn.batch_flatten"]
    assert 'nn.max_pool2d(%6, layout="NCHW16c", pool_size=[2, 2])' in text
    assert "%1.0" not in text


def test_a_weight_layout_may_split_two_axes_and_one_of_them_twice() -> None:
    """AL04: OHWI16i64o2i."""
    text, _ = altered(
        """
        def @main(%x: Tensor[(1, 4, 4, 64), float32], %w: Tensor[(3, 3, 64, 64), float32]) {
          nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO", padding=[1])
        }
        """,
        lambda call: with_layouts(call, ["NHWC", "OHWI16i64o2i"]),
    )
    assert 'dst_layout="OHWI16i64o2i", src_layout="HWIO"' in text


def test_lrn_gets_its_data_back_in_nchw() -> None:
    """AL05: lrn cannot follow channel blocks."""
    _, after = altered(CONV.format(rest="nn.relu(nn.lrn(nn.max_pool2d(%0, pool_size=[2, 2])))"), pack())
    assert names(after)[-4:] == ["nn.max_pool2d", "layout_transform", "nn.lrn", "nn.relu"]


def test_one_path_stays_packed_while_the_other_falls_back() -> None:
    """AL06: of two outputs one is packed up to its end, the other is taken back before lrn."""
    _, after = altered(CONV.format(rest="%1 = nn.relu(%0); (nn.lrn(%1), exp(%1))"), pack())
    assert names(after).index("nn.lrn") == names(after).index("layout_transform", 3) + 1
    assert names(after)[-2:] == ["exp", "layout_transform"]


def test_equal_changes_of_one_value_are_made_once() -> None:
    """AL07: two convolutions of one value in a residual block share its packed form."""
    _, after = altered(CONV.format(rest="%1 = nn.conv2d(%x, %w, padding=[1]); nn.global_avg_pool2d(%0 + %1)"), pack())
    assert transforms(after) == [("NCHW", "NCHW16c"), ("OIHW", "OIHW16i16o"), ("NCHW16c", "NCHW")]


def test_operands_on_either_side_are_expanded_and_packed() -> None:
    """AL08: a bias on the left, a scale on the right."""
    _, after = altered(CONV.format(rest="nn.relu(%b + %0) * %b"), pack())
    assert names(after).count("expand_dims") == 1
    assert transforms(after).count(("NCHW", "NCHW16c")) == 2


@pytest.mark.parametrize("shape", ["(1,)", "(1, 1)", "()"])
def test_operands_of_one_element_need_no_change(shape: str) -> None:
    """AL09, AL10: shapes (1,), (1, 1) and scalars, NHWC to NCHW16c."""
    kind = f"Tensor[{shape}, float32]" if shape != "()" else "float32"
    _, after = altered(
        f"""
        def @main(%x: Tensor[(1, 6, 6, 32), float32], %w: Tensor[(3, 3, 32, 32), float32], %b: {kind}) {{
          nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO") + %b
        }}
        """,
        lambda call: with_layouts(call, ["NCHW16c", "OIHW16i16o"]),
    )
    assert transforms(after) == [("NHWC", "NCHW16c"), ("HWIO", "OIHW16i16o"), ("NCHW16c", "NHWC")]
    assert names(after)[-2:] == ["add", "layout_transform"]


def test_reductions_over_channels_after_conversion_and_batch_norm() -> None:
    """AL11: ConvertLayout, SimplifyInference and AlterOpLayout in turn; the reduction runs over both parts."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Expr:
        return const((random.random(shape) + 0.5).astype("float32"))

    x = var("x", (1, 6, 6, 16))
    conv = relay.nn.conv2d(x, weight(3, 3, 16, 16), data_layout="NHWC", kernel_layout="HWIO")
    norm = relay.TupleGetItem(relay.nn.batch_norm(conv, *(weight(16) for _ in range(4)), axis=3), 0)
    mod = IRModule({"main": Function([x], relay.mean(norm, axis=(3,)) + relay.sum(norm, axis=(3,)))})
    converted = SimplifyInference()(ConvertLayout({"nn.conv2d": ["NCHW", "default"]})(mod))
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", pack()):
        after = AlterOpLayout()(converted)
    same_values(mod, after)
    assert "axis=[1, 4]" in functions_text(after)


@pytest.mark.parametrize(("layout", "axis", "shape"), [("NCHW", 1, "(1, 32, 6, 6)"), ("NHWC", 3, "(1, 6, 6, 32)")])
def test_concatenation_of_channels_joins_the_outer_parts(layout: str, axis: int, shape: str) -> None:
    """AL12: axis 1 of NCHW stays 1, axis 3 of NHWC becomes 1."""
    weight = {"NCHW": ("OIHW", "(16, 32, 1, 1)"), "NHWC": ("HWIO", "(1, 1, 32, 16)")}[layout]
    text, after = altered(
        f"""
        def @main(%x: Tensor[{shape}, float32], %w: Tensor[{weight[1]}, float32]) {{
          %0 = nn.conv2d(%x, %w, data_layout="{layout}", kernel_layout="{weight[0]}");
          concatenate((%0, exp(%0)), axis={axis})
        }}
        """,
        pack(),
    )
    assert "axis=1)" in text
    assert names(after)[-2:] == ["concatenate", "layout_transform"]


def test_concatenation_of_what_blocks_do_not_divide_is_not_packed() -> None:
    """A field of 3 channels cannot be joined to packed ones."""
    mod = """
    def @main(%x: Tensor[(1, 16, 4, 4), float32], %w: Tensor[(16, 16, 1, 1), float32],
              %y: Tensor[(1, 3, 4, 4), float32]) {
      concatenate((nn.conv2d(%x, %w), %y), axis=1)
    }
    """
    _, after = altered(mod, pack())
    assert names(after)[-2:] == ["layout_transform", "concatenate"]


def test_resizing_follows_packed_channels() -> None:
    """AL13: the layout attribute of the resize becomes the packed one."""
    text, after = altered(CONV.format(rest="image.resize2d(%0, size=[12, 12])"), pack())
    assert 'image.resize2d(%2, layout="NCHW16c", size=[12, 12])' in text
    assert names(after)[-2:] == ["image.resize2d", "layout_transform"]


def test_slices_of_whole_blocks_follow() -> None:
    """AL15: begin and end along channels are divided by the block."""
    text, _ = altered(CONV.format(rest="strided_slice(%0, begin=[0, 16], end=[1, 32], strides=[1, 1])"), pack())
    assert "begin=[0, 1], end=[1, 2]" in text


def test_slices_along_named_axes_of_nhwc_follow() -> None:
    """AL16: channels 16 to 32 become blocks 4 to 8."""
    text, _ = altered(
        """
        def @main(%x: Tensor[(1, 6, 6, 32), float32], %w: Tensor[(1, 1, 32, 32), float32]) {
          %0 = nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO");
          strided_slice(%0, begin=[16], end=[32], strides=[1], axes=[3])
        }
        """,
        lambda call: with_layouts(call, ["NHWC4c", "HWIO4i4o"]),
    )
    assert "axes=[3], begin=[4], end=[8]" in text


def test_depthwise_convolutions_may_be_packed() -> None:
    """AL17: kernel layout OIHW1i8o."""
    text, _ = altered(
        """
        def @main(%x: Tensor[(1, 32, 6, 6), float32], %w: Tensor[(32, 1, 3, 3), float32]) {
          nn.conv2d(%x, %w, groups=32)
        }
        """,
        lambda call: with_layouts(call, ["NCHW8c", "OIHW1i8o"]),
    )
    assert 'nn.conv2d(%0, %1, data_layout="NCHW8c", groups=32, kernel_layout="OIHW1i8o")' in text


def test_prelu_gets_its_data_back() -> None:
    """AL18: one slope per channel does not follow blocks of channels."""
    mod = """
    def @main(%x: Tensor[(1, 16, 4, 4), float32], %w: Tensor[(16, 16, 1, 1), float32], %a: Tensor[(16,), float32]) {
      nn.prelu(nn.conv2d(%x, %w), %a)
    }
    """
    _, after = altered(mod, pack())
    assert names(after)[-2:] == ["layout_transform", "nn.prelu"]


def test_padding_follows_unless_it_pads_the_split_axis() -> None:
    """AL19: rows and columns are padded packed, channels are not."""
    text, after = altered(CONV.format(rest="nn.pad(%0, pad_width=[[0, 0], [0, 0], [1, 1], [2, 0]])"), pack())
    assert "pad_width=[[0, 0], [0, 0], [1, 1], [2, 0], [0, 0]]" in text
    _, after = altered(CONV.format(rest="nn.pad(%0, pad_width=[[0, 0], [1, 1], [0, 0], [0, 0]])"), pack())
    assert names(after)[-2:] == ["layout_transform", "nn.pad"]


@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d"])
def test_pools_follow(name: str) -> None:
    """AL20: the layout attribute of every pool follows."""
    attrs = "" if "global" in name else ", pool_size=[2, 2], padding=[1]"
    text, _ = altered(CONV.format(rest=f"{name}(%0{attrs})"), pack())
    assert f'{name}(%2, layout="NCHW16c"' in text


@pytest.mark.parametrize("name", ["sum", "mean", "max", "variance"])
def test_reductions_run_over_all_parts_of_an_axis(name: str) -> None:
    """AL21: channels become axes 1 and 4; with keepdims the result is NCHW1c and taken back."""
    text, after = altered(CONV.format(rest=f"({name}(%0, axis=[1]), {name}(%0, axis=[1], keepdims=True))"), pack())
    assert f"{name}(%2, axis=[1, 4])" in text
    assert ("NCHW1c", "NCHW") in transforms(after)
    text, _ = altered(CONV.format(rest=f"{name}(%0, axis=[1], exclude=True)"), pack())
    assert f"{name}(%2, axis=[0, 2, 3])" in text


def test_a_rule_that_declines_a_layout_leaves_it() -> None:
    """AL22: NHWC convolutions for which a rule has no layout stay."""
    mod = parse(
        """
        def @main(%x: Tensor[(1, 6, 6, 32), float32], %w: Tensor[(1, 1, 32, 32), float32]) {
          nn.avg_pool2d(nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO"), pool_size=[2, 2], layout="NHWC")
        }
        """
    )
    with scoped_op_rewrite(
        "alter_op_layout",
        "nn.conv2d",
        lambda call: pack()(call) if call.attrs.data_layout == "NCHW" else call,  # type: ignore[union-attr]
    ):
        assert AlterOpLayout()(mod) is mod


def test_only_the_function_that_calls_the_operator_changes() -> None:
    """AL24: a convolution inside a global function; its caller stays as it is."""
    text = """
    def @conv(%x: Tensor[(1, 32, 6, 6), float32], %w: Tensor[(32, 32, 1, 1), float32])
        -> Tensor[(1, 32, 6, 6), float32] {
      nn.relu(nn.conv2d(%x, %w))
    }
    def @main(%x: Tensor[(1, 32, 6, 6), float32], %w: Tensor[(32, 32, 1, 1), float32]) {
      @conv(%x, %w) + 1f
    }
    """
    mod = parse(text)
    _, after = altered(text, pack())
    assert structural_equal(after["main"], mod["main"])
    assert names(after, "conv").count("layout_transform") == 3


def test_dense_gets_a_packed_weight() -> None:
    """AL25: dense becomes contrib_dense_pack over NC16n."""

    def pack_dense(call: Call) -> Expr:
        weight = call_op("layout_transform", [call.args[1]], src_layout="NC", dst_layout="NC16n")
        return call_op("nn.contrib_dense_pack", [call.args[0], weight], weight_layout="NC16n")

    mod = "def @main(%x: Tensor[(2, 64), float32], %w: Tensor[(48, 64), float32]) { nn.relu(nn.dense(%x, %w)) }"
    _, after = altered(mod, pack_dense, "nn.dense")
    assert names(after) == ["layout_transform", "nn.contrib_dense_pack", "nn.relu"]


def test_the_input_is_not_changed() -> None:
    """AL26: attributes of the pool in the input program are as before."""
    mod = parse(CONV.format(rest="nn.max_pool2d(%0, pool_size=[2, 2])"))
    pool = mod["main"].body
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", pack()):
        after = AlterOpLayout()(mod)
    assert pool.attrs.layout == "NCHW"  # type: ignore[attr-defined]
    assert "NCHW16c" in functions_text(after)


def test_squeezed_images_are_taken_back_as_matrices() -> None:
    """AL27: convolution, global pool, squeeze, then NC8c to NC before dense."""
    mod = """
    def @main(%x: Tensor[(1, 16, 4, 4), float32], %w: Tensor[(16, 16, 1, 1), float32], %d: Tensor[(5, 16), float32]) {
      nn.dense(squeeze(nn.global_avg_pool2d(nn.conv2d(%x, %w)), axis=[2, 3]), %d)
    }
    """
    _, after = altered(mod, pack(8))
    assert transforms(after)[-1] == ("NC8c", "NC")
    assert names(after)[-3:] == ["squeeze", "layout_transform", "nn.dense"]


@pytest.mark.parametrize(("begin", "end", "stride"), [(1, 17, 1), (0, 32, 3), (31, 0, -1)])
def test_slices_that_cut_blocks_do_not_follow(begin: int, end: int, stride: int) -> None:
    """AL28, AL29: a cut inside a block, a stride of 3, a backward slice."""
    rest = f"strided_slice(%0, begin=[{begin}], end=[{end}], strides=[{stride}], axes=[1])"
    _, after = altered(CONV.format(rest=rest), pack())
    assert names(after)[-2:] == ["layout_transform", "strided_slice"]


def test_a_search_over_channels_gets_its_data_back() -> None:
    """AL30: argmin over the split axis."""
    _, after = altered(CONV.format(rest="(argmin(%0, axis=1), argmin(%0, axis=2))"), pack())
    assert names(after)[-4:] == ["layout_transform", "argmin", "argmin", "layout_transform"]


def test_operands_with_one_channel_are_packed_by_one() -> None:
    """AL31: a (1, 6, 6) operand becomes NCHW1c."""
    mod = """
    def @main(%x: Tensor[(1, 16, 6, 6), float32], %w: Tensor[(16, 16, 1, 1), float32],
              %y: Tensor[(1, 6, 6), float32]) {
      nn.conv2d(%x, %w) + %y
    }
    """
    _, after = altered(mod, pack())
    assert ("NCHW", "NCHW1c") in transforms(after)


BLOCKED = """
def @main(%x: Tensor[(1, 8, 3, 3, 4), float32], %w: Tensor[(1, 8, 1, 1, 4, 4), float32], %b: Tensor[{bias}, float32]) {{
  nn.conv2d(%x, %w, data_layout="NCHW4c", kernel_layout="OIHW4i4o") + %b
}}
"""


@pytest.mark.parametrize("bias", ["(1, 1, 1, 1, 4)", "(1, 1, 3, 3, 4)", "(3, 3, 4)"])
def test_programs_that_are_blocked_already_stay(bias: str) -> None:
    """AL32, AL33: an altering rule that wants the layout that is there."""
    mod = parse(BLOCKED.format(bias=bias))
    rule: Rule = lambda call: with_layouts(call, ["NCHW4c", "OIHW4i4o"])  # noqa: E731
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", rule):
        after = AlterOpLayout()(mod)
    assert "layout_transform" not in names(after)
    same_values(mod, after)


@pytest.mark.parametrize("bias", ["(1, 1, 1, 1, 4)", "(3, 3, 4)"])
def test_blocks_may_be_changed_for_other_blocks(bias: str) -> None:
    """AL34, AL35: NCHW4c to NCHW2c and back before an addition that broadcasts over blocks."""
    _, after = altered(BLOCKED.format(bias=bias), lambda call: with_layouts(call, ["NCHW2c", "OIHW2i2o"]))
    assert transforms(after) == [("NCHW4c", "NCHW2c"), ("OIHW4i4o", "OIHW2i2o"), ("NCHW2c", "NCHW4c")]
    assert names(after)[-2:] == ["layout_transform", "add"]


def test_operands_of_two_layouts_are_brought_together() -> None:
    """AL36: reductions over different axes, then their sum."""
    altered(CONV.format(rest="sum(%0, axis=[3]) + max(%0, axis=[2])"), pack())
    altered(CONV.format(rest="sum(%0, axis=[1], keepdims=True) * max(%0, axis=[3], keepdims=True) + %0"), pack())


def test_axes_that_change_their_meaning_between_convolutions() -> None:
    """AL37: a transpose between two convolutions."""
    mod = """
    def @main(%x: Tensor[(1, 16, 16, 16), float32], %w: Tensor[(16, 16, 1, 1), float32]) {
      nn.conv2d(transpose(nn.conv2d(%x, %w), axes=[0, 2, 3, 1]), %w)
    }
    """
    _, after = altered(mod, pack())
    assert transforms(after)[2][0].startswith("N")


def test_calls_of_inner_functions_get_plain_arguments() -> None:
    """AL38: a closure called with a packed value."""
    mod = CONV.format(
        rest="""let %f = fn (%y: Tensor[(1, 32, 6, 6), float32]) { %y + 1f };
  %f(%0)"""
    )
    _, after = altered(mod, pack())
    assert transforms(after)[-1] == ("NCHW16c", "NCHW")


def test_resize_mean_and_reshape_in_a_row() -> None:
    """AL39: resize, mean over rows, then an operator that cannot follow."""
    altered(CONV.format(rest="reshape(mean(image.resize2d(%0, size=[4, 4]), axis=[2]), newshape=[1, -1])"), pack())


def test_variables_of_lets_hold_packed_values() -> None:
    """A let's variable is bound to what is stored, also where it is annotated."""
    mod = CONV.format(
        rest="""let %a: Tensor[(1, 32, 6, 6), float32] = nn.relu(%0);
  let %c = nn.conv2d(%a, %w, padding=[1]);
  %c"""
    )
    _, after = altered(mod, pack())
    assert len(transforms(after)) == 3


def test_a_layout_that_does_not_fit_leaves_the_call() -> None:
    """Blocks of 16 do not divide 3 channels; a text that is no layout is an error."""
    mod = parse(
        "def @main(%x: Tensor[(1, 3, 6, 6), float32], %w: Tensor[(16, 3, 1, 1), float32]) { nn.conv2d(%x, %w) }"
    )
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", pack()):
        assert AlterOpLayout()(mod) is mod
    with (
        scoped_op_rewrite("alter_op_layout", "nn.conv2d", lambda call: with_layouts(call, ["NCX", "OIHW"])),
        pytest.raises(UserError, match="expected a layout out of the letters NCHW, found 'NCX'"),
    ):
        AlterOpLayout()(mod)


def test_a_replacement_of_another_type_is_an_error() -> None:
    """The message names the operator and both types."""
    mod = parse("def @main(%x: Tensor[(2,), float32]) { nn.relu(%x) }")
    with (
        scoped_op_rewrite("alter_op_layout", "nn.relu", lambda call: call_op("sum", [call])),
        pytest.raises(UserError, match=r"replacement of 'nn.relu' has type float32, expected Tensor\[\(2,"),
    ):
        AlterOpLayout()(mod)


def test_long_chains_are_walked_in_linear_time() -> None:
    """20,000 element-wise nodes behind a packed convolution follow, without recursion."""
    x, w = var("x", (1, 16, 2, 2)), var("w", (16, 16, 1, 1))
    body: Expr = call_op("nn.conv2d", [x, w])
    for _ in range(20_000):
        body = call_op("add", [body, body])
    mod = IRModule({"main": Function([x, w], body)})
    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", pack()), PassContext(opt_level=3):
        after = AlterOpLayout()(mod)
    assert len(transforms(after)) == 3
    assert after["main"].body.checked_type == TensorType((1, 16, 2, 2), "float32")
