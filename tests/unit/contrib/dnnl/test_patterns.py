"""What becomes one operation of oneDNN, and what does not."""

from __future__ import annotations

import pytest
from runners.packed import typed

from relaybuild.contrib.dnnl.patterns import PATTERNS
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order
from relaybuild.partition.merge_composite import MergeComposite, unmerged
from relaybuild.partition.pattern_table import table_of

PARAMS = """%x: Tensor[(2, 6, 9, 8), float32], %w: Tensor[(4, 6, 3, 3), float32], %b: Tensor[(4, 1, 1), float32],
  %v: Tensor[(4,), float32], %s: Tensor[(2, 4, 7, 6), float32], %a: Tensor[(5, 7), float32],
  %d: Tensor[(3, 7), float32], %e: Tensor[(3,), float32], %r: Tensor[(5, 3), float32], %m: Tensor[(7, 3), float32],
  %z: Tensor[(7,), float32], %q: Tensor[(2, 1, 7, 6), float32], %p: Tensor[(1, 6, 1, 1), float32],
  %t: Tensor[(4, 6, 1, 1), float32], %y: Tensor[(4, 4, 1, 1), float32],
  %l: Tensor[(2, 4, 10, 6), float32]"""
CONV = "%0 = nn.conv2d(%x, %w); "
BIASED = CONV + "%1 = add(%0, %b); "
DENSE = "%0 = nn.dense(%a, %d); %1 = add(%0, %e); "
ERF = "%2 = divide(%1, 1.4142135f); %3 = erf(%2); %4 = add(%3, 1f); "


def merged(text: str) -> IRModule:
    return MergeComposite(PATTERNS)(typed(f"def @main({PARAMS}) {{ {text} }}"))


def names(text: str) -> list[str]:
    """The composite functions that a program becomes calls of, then the operators that are left, operands first."""
    # functions that have been cut out are not looked into
    module = merged(text)
    inner = {
        id(node)
        for call in post_order(module["main"])
        if isinstance(call, Call) and isinstance(call.op, Function)
        for node in post_order(call.op)
    }
    calls = [each for each in post_order(module["main"]) if isinstance(each, Call) and id(each) not in inner]
    composites = [str(each.op.attrs["Composite"]) for each in calls if isinstance(each.op, Function)]
    return composites + [each.op_name for each in calls if each.op_name]


def test_where_windows_see_padding_alone_no_activation_follows_a_sum() -> None:
    conv = "%0 = nn.conv2d(%x, %w, padding=[0, 0, 3, 0]); "
    assert names(conv + "%1 = add(%0, %l); nn.relu(%1)") == ["dnnl.conv2d_sum", "nn.relu"]
    assert names(conv + "nn.relu(%0)") == ["dnnl.conv2d_relu"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CONV + "add(%0, %b)", "dnnl.conv2d_bias"),
        (CONV + "add(%b, %0)", "dnnl.conv2d_bias"),
        (CONV + "nn.bias_add(%0, %v)", "dnnl.conv2d_bias"),
        (CONV + "nn.bias_add(%0, %v, axis=-3)", "dnnl.conv2d_bias"),
        (CONV + "nn.relu(%0)", "dnnl.conv2d_relu"),
        (CONV + "add(%0, %s)", "dnnl.conv2d_sum"),
        (CONV + "%1 = add(%s, %0); nn.relu(%1)", "dnnl.conv2d_sum_relu"),
        (BIASED + "nn.relu(%1)", "dnnl.conv2d_bias_relu"),
        (BIASED + "nn.leaky_relu(%1, alpha=0.1f)", "dnnl.conv2d_bias_leaky_relu"),
        (BIASED + "clip(%1, a_min=0f, a_max=6f)", "dnnl.conv2d_bias_clip"),
        (BIASED + "clip(%1, a_min=0f)", "dnnl.conv2d_bias_clip"),
        (BIASED + "sigmoid(%1)", "dnnl.conv2d_bias_sigmoid"),
        (BIASED + "tanh(%1)", "dnnl.conv2d_bias_tanh"),
        (BIASED + "%2 = sigmoid(%1); multiply(%1, %2)", "dnnl.conv2d_bias_swish"),
        (BIASED + "%2 = sigmoid(%1); multiply(%2, %1)", "dnnl.conv2d_bias_swish"),
        (BIASED + "%2 = add(%1, %s); nn.relu(%2)", "dnnl.conv2d_bias_sum_relu"),
        (BIASED + "add(%s, %1)", "dnnl.conv2d_bias_sum"),
        (DENSE + "nn.relu(%1)", "dnnl.dense_bias_relu"),
        (DENSE + ERF + "multiply(%1, %4)", "dnnl.dense_bias_gelu"),
        (DENSE + ERF + "%5 = multiply(%1, %4); multiply(%5, 0.5f)", "dnnl.dense_bias_gelu"),
        (DENSE + ERF + "%5 = multiply(%1, 0.5f); multiply(%4, %5)", "dnnl.dense_bias_gelu"),
        (DENSE + ERF + "%5 = multiply(0.5f, %4); multiply(%1, %5)", "dnnl.dense_bias_gelu"),
        (
            DENSE + "%2 = multiply(%1, 0.70710678f); %3 = erf(%2); %4 = add(1f, %3); multiply(%4, %1)",
            "dnnl.dense_bias_gelu",
        ),
        ("%0 = nn.matmul(%a, %m); %1 = add(%e, %0); %2 = add(%1, %r); tanh(%2)", "dnnl.matmul_bias_sum_tanh"),
    ],
)
def test_a_whole_chain_is_one_operation(text: str, name: str) -> None:
    assert names(text) == [name]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (CONV + "nn.bias_add(%0, %z, axis=2)", ["nn.conv2d", "nn.bias_add"]),
        (CONV + "add(%0, 1f)", ["nn.conv2d", "add"]),
        (CONV + "add(%0, %q)", ["nn.conv2d", "add"]),
        (CONV + "%1 = tanh(%0); add(%1, %0)", ["nn.conv2d", "tanh", "add"]),
        (CONV + "clip(%0, a_min=6f, a_max=0f)", ["nn.conv2d", "clip"]),
        (CONV + "%1 = sigmoid(%0); multiply(%1, %s)", ["dnnl.conv2d_sigmoid", "multiply"]),
        ("nn.relu(%x)", ["nn.relu"]),
        (
            DENSE + "%2 = divide(%1, 1.5f); %3 = erf(%2); %4 = add(%3, 1f); multiply(%1, %4)",
            ["dnnl.dense_bias", "divide", "erf", "add", "multiply"],
        ),
    ],
)
def test_what_only_looks_alike_is_left(text: str, left: list[str]) -> None:
    assert names(text) == left


def test_the_larger_of_two_convolutions_takes_the_other_as_its_bias() -> None:
    """A result of one pixel is no sum with one of many, whichever comes first in the program."""
    text = "%0 = nn.conv2d(%p, %t); %1 = nn.conv2d(%x, %w); add(%0, %1)"
    module = merged(text)
    body = module["main"].body
    assert isinstance(body, Call)
    assert isinstance(body.op, Function)
    assert body.op.attrs["Composite"] == "dnnl.conv2d_bias"
    assert body.checked_type == typed(f"def @main({PARAMS}) {{ {text} }}")["main"].body.checked_type


def test_nothing_is_computed_twice() -> None:
    """The sum belongs to the convolution at its end, not to the one at its beginning, of which both operands are."""
    text = BIASED + "%2 = nn.conv2d(%1, %y); %3 = add(%2, %b); add(%1, %3)"
    assert names(text) == ["dnnl.conv2d_bias", "dnnl.conv2d_bias_sum"]


def test_of_two_sums_one_convolution_takes_each() -> None:
    text = BIASED + "%2 = nn.conv2d(%x, %w); %3 = add(%2, %b); %4 = add(%1, %3); nn.relu(%4)"
    assert sorted(names(text)) == ["dnnl.conv2d_bias", "dnnl.conv2d_bias_sum_relu"]


def test_names_are_of_the_backend_and_stand_once() -> None:
    found = [entry.name for entry in table_of("dnnl")]
    assert len(set(found)) == len(found)
    assert all(name.startswith("dnnl.") for name in found)


def test_why_a_pattern_did_not_take_a_call() -> None:
    module = merged(CONV + "clip(%0, a_min=6f, a_max=0f)")
    (reason,) = [each.reason for each in unmerged(module, PATTERNS) if each.call.op_name == "clip"]
    assert "found the limits 6.0 and 0.0, expected them in order" in reason


def test_a_call_that_is_not_taken_alone_is_in_no_pattern() -> None:
    text = "%0 = nn.conv2d(%x, %w, data_layout='NHWC', kernel_layout='HWIO'); nn.relu(%0)"
    params = "%x: Tensor[(2, 9, 8, 6), float32], %w: Tensor[(3, 3, 6, 4), float32]"
    module = MergeComposite(PATTERNS)(typed(f"def @main({params}) {{ {text} }}".replace("'", '"')))
    found = [each.op_name for each in post_order(module["main"]) if isinstance(each, Call)]
    assert found == ["nn.conv2d", "nn.relu"]
