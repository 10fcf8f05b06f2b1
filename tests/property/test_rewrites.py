"""Rewrites with options, over generated programs: layouts, joined siblings, mixed kinds of norms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from random_programs import arguments, modules

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.printer import print_module
from relaybuild.ir.verifier import verify_module
from relaybuild.passes.alter_op_layout import AlterOpLayout, with_layouts
from relaybuild.passes.infra import PassContext, get_pass
from relaybuild.passes.op_rewrites import scoped_op_rewrite

EXAMPLES = settings(max_examples=40, deadline=None)


def packed(layouts: list[str]) -> Callable[[IRModule], IRModule]:
    def run(mod: IRModule) -> IRModule:
        def rule(call: Call) -> Expr:
            return with_layouts(call, layouts)

        with scoped_op_rewrite("alter_op_layout", "nn.conv2d", rule):
            return AlterOpLayout()(mod)

    return run


REWRITES: dict[str, Callable[[IRModule], IRModule]] = {
    "NCHW2c": packed(["NCHW2c", "OIHW2i4o"]),
    "CHWN": packed(["CHWN", "IHWO"]),
    "NHWC": get_pass("ConvertLayout", desired_layouts="nn.conv2d: NHWC HWIO"),
    "NHWC and back": lambda mod: get_pass("ConvertLayout", desired_layouts="nn.conv2d: NCHW OIHW")(
        get_pass("ConvertLayout", desired_layouts="nn.conv2d: NHWC HWIO")(mod)
    ),
    "layouts simplified": lambda mod: get_pass("SimplifyExpr")(packed(["NCHW4c", "OIHW4i4o"])(mod)),
    "siblings": get_pass("CombineParallelConv2D", min_num_branches=2),
    "scales": get_pass("FoldScaleAxis"),
    "scales unread": get_pass("FoldScaleAxis", read_weights=False),
    "normal form": lambda mod: get_pass("FoldScaleAxis")(get_pass("ToANormalForm")(mod)),
    "simplified normal form": lambda mod: get_pass("SimplifyExpr")(get_pass("ToANormalForm")(mod)),
    "packed normal form": lambda mod: packed(["NCHW2c", "OIHW2i2o"])(get_pass("ToANormalForm")(mod)),
    "siblings in normal form": lambda mod: get_pass("CombineParallelConv2D", min_num_branches=2)(
        get_pass("ToANormalForm")(mod)
    ),
}


@pytest.mark.parametrize("name", REWRITES)
@EXAMPLES
@given(mod=modules())
def test_rewrites_keep_types_and_values(name: str, mod: IRModule) -> None:
    text = print_module(mod)
    with PassContext(opt_level=4):
        after = REWRITES[name](mod)
    verify_module(after, "typed")
    assert print_module(mod) == text
    assert after["main"].checked_type == mod["main"].checked_type
    for expected, found in zip(interpret(mod, *arguments()), interpret(after, *arguments())):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
