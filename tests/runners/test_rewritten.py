"""Programs rewritten for layouts and speed are compiled by the host and still compute what they did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, const, var
from relaybuild.ir.module import IRModule
from relaybuild.passes.alter_op_layout import AlterOpLayout, with_layouts
from relaybuild.passes.combine_parallel_conv2d import CombineParallelConv2D
from relaybuild.passes.convert_layout import ConvertLayout
from relaybuild.passes.fast_math import FastMath
from relaybuild.passes.fold_scale_axis import FoldScaleAxis
from relaybuild.passes.infra import PassContext
from relaybuild.passes.op_rewrites import scoped_op_rewrite
from runners.compiled import Batch, call, runnable_targets

SHAPE = (1, 16, 12, 12)


def network() -> IRModule:
    """Convolutions of several kinds, pools, a sum, a product, a softmax."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Constant:
        return const((random.normal(size=shape) * 0.3).astype("float32"))

    x = var("x", SHAPE)
    first = call("nn.relu", call("nn.bias_add", call("nn.conv2d", x, weight(32, 16, 3, 3), padding=1), weight(32)))
    pooled = call("nn.max_pool2d", first, pool_size=2, strides=2)
    depthwise = call("nn.conv2d", pooled, weight(32, 1, 3, 3), padding=1, groups=32)
    scaled = call("multiply", call("tanh", call("add", pooled, depthwise)), weight(32, 1, 1))
    branches: list[Expr] = [call("nn.conv2d", scaled, weight(outs, 32, 1, 1)) for outs in (8, 16, 24)]
    joined = call("concatenate", Tuple(branches), axis=1)
    rows = call("nn.dense", call("nn.batch_flatten", call("nn.global_avg_pool2d", joined)), weight(10, 48))
    return IRModule({"main": Function([x], call("nn.softmax", rows))})


def packed(mod: IRModule) -> IRModule:
    def pack(node: Call) -> Expr:
        depthwise = node.attrs is not None and getattr(node.attrs, "groups", 1) > 1
        return with_layouts(node, ["NCHW8c", "OIHW1i8o" if depthwise else "OIHW8i8o"])

    with scoped_op_rewrite("alter_op_layout", "nn.conv2d", pack):
        return AlterOpLayout()(mod)


REWRITES: dict[str, Callable[[IRModule], IRModule]] = {
    "channels-last": ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"], "nn.max_pool2d": ["NHWC"]}),
    "packed": packed,
    "approximated": FastMath(),
    "combined": CombineParallelConv2D(),
    "scales-folded": FoldScaleAxis(),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewritten_network_compiles_to_the_same_function(name: str) -> None:
    before = network()
    with PassContext(opt_level=3):
        after = REWRITES[name](before)
    assert after is not before
    batch = Batch()
    batch.params = list(after["main"].params)
    batch.arguments = [np.random.default_rng(1).normal(size=SHAPE).astype("float32")]
    batch.add(name, after["main"].body)
    batch.compare(runnable_targets()[-1])
