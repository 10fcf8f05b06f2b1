"""Which calls come to stand in one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.ir.expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_digest, structural_equal
from relaybuild.ir.types import TensorType
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import free_vars, post_order
from relaybuild.passes.defuse_ops import DefuseOps
from relaybuild.passes.fuse_ops import FuseOps
from relaybuild.passes.infra import PassContext


def fused(body: Expr, *params: Var, **config: object) -> IRModule:
    """A function of that body, fused."""
    mod = IRModule.from_expr(Function(params or tuple(free_vars(body)), body))
    with PassContext(config={f"relay.FuseOps.{name}": value for name, value in config.items()}):
        result = FuseOps()(mod)
    verify_module(result, "typed")
    return result


def groups(mod: IRModule, entry: str = "main") -> list[list[str]]:
    """The operators of each fused function, in order of evaluation."""
    return [operators(node.op) for node in post_order(mod[entry]) if is_fused_call(node)]  # type: ignore[attr-defined]


def is_fused_call(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Function) and node.op.attrs.get("Primitive") == 1


def operators(root: Expr) -> list[str]:
    return [node.op_name for node in post_order(root) if isinstance(node, Call) and isinstance(node.op, Op)]


def chain(names: Sequence[str], start: Expr) -> Expr:
    for name in names:
        start = call_op(name, [start])
    return start


def weight(*shape: int) -> Expr:
    return const(np.ones(shape, "float32"))


def test_a_chain_becomes_one_function_of_its_inputs() -> None:
    """FU01: add, exp, squeeze are one function marked Primitive; the scalar stands in it."""
    x = var("x", (10, 1))
    mod = fused(relay.squeeze(relay.exp(x + 1.0)), x)
    assert groups(mod) == [["add", "exp", "squeeze"]]
    call: Any = mod["main"].body
    assert dict(call.op.attrs) == {"Primitive": 1}
    assert [param.checked_type for param in call.op.params] == [TensorType((10, 1))]


def test_convolutions_take_their_epilogues() -> None:
    """FU02: an addition that joins convolutions goes with one of them."""
    x = var("x", (1, 16, 8, 8))
    first = relay.nn.relu(relay.nn.conv2d(x, weight(16, 16, 3, 3), padding=1) + 1.0)
    second = relay.nn.conv2d(first, weight(16, 16, 1, 1))
    third = relay.nn.conv2d(first, weight(16, 16, 3, 3), padding=1)
    mod = fused(second + third, x)
    assert sorted(map(tuple, groups(mod))) == [("nn.conv2d",), ("nn.conv2d", "add"), ("nn.conv2d", "add", "nn.relu")]


def test_concatenation_takes_what_it_reads() -> None:
    """FU03: pooling stands alone; resampling, concatenation and addition are one."""
    x = var("x", (1, 2, 4, 4))
    pooled = relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    mod = fused(relay.concatenate([relay.tile(pooled, reps=(1, 1, 2, 2)), x], axis=1) + 1.0, x)
    assert groups(mod) == [["nn.max_pool2d"], ["tile", "concatenate", "add"]]


def test_level_0_fuses_nothing_and_leaves_no_free_variable() -> None:
    """FU03: every call has a function of its own, which is closed."""
    x = var("x", (4,))
    mod = FuseOps(fuse_opt_level=0)(IRModule.from_expr(Function([x], chain(["exp", "log", "tanh"], x))))
    assert groups(mod) == [["exp"], ["log"], ["tanh"]]
    assert not free_vars(mod["main"])
    with PassContext(opt_level=0):
        assert structural_equal(FuseOps()(IRModule.from_expr(Function([x], chain(["exp", "log", "tanh"], x)))), mod)


def test_the_tuple_that_is_returned_stays_outside() -> None:
    """FU04: its fields are functions, the tuple is none."""
    x = var("x", (4,))
    first = relay.exp(x)
    mod = fused(Tuple([first, relay.log(first)]), x)
    assert groups(mod) == [["exp"], ["log"]]
    assert isinstance(mod["main"].body, Tuple)


def test_stop_fusion_ends_a_group() -> None:
    """FU05: what stands before the annotation is apart from what stands behind, and the annotation is gone."""
    x = var("x", (4,))
    mod = fused(relay.tanh(call_op("annotation.stop_fusion", [relay.exp(x)])), x)
    assert groups(mod) == [["exp"], ["tanh"]]


def test_conditionals_over_functions_stay() -> None:
    """FU06: the comparison is fused, and the branches that are functions are as they were."""
    mod = parse(
        """
        def @main(%x: int32, %y: int32) {
          %0 = if (%x < %y) { fn () { %x } } else { fn () { %y + 1 * %x } };
          %0()
        }
        """
    )
    after = FuseOps()(mod)
    assert groups(after) == [["less"], ["multiply", "add"]]
    assert interpret(after, np.array(3, "int32"), np.array(2, "int32")) == 5


def test_fields_of_a_split_are_read_in_one_function() -> None:
    """FU07: split and what combines its parts."""
    x, w = var("x", (2, 8)), var("w", (12, 8))
    parts = relay.split(relay.nn.dense(x, w), indices_or_sections=3, axis=1)
    gates = [TupleGetItem(parts, number) for number in range(3)]
    mod = fused(relay.sigmoid(gates[0]) + relay.tanh(gates[1]) * relay.exp(gates[2]), x, w)
    assert groups(mod) == [["nn.dense"], ["split", "sigmoid", "tanh", "exp", "multiply", "add"]]


def test_a_returned_field_goes_with_its_split() -> None:
    """FU08: the projection is the function's result."""
    x, w = var("x", (2, 8)), var("w", (12, 8))
    parts = relay.split(relay.nn.dense(x, w), indices_or_sections=3, axis=1)
    assert groups(fused(TupleGetItem(parts, 0), x, w)) == [["nn.dense"], ["split"]]


def test_tuples_within_are_fused() -> None:
    """FU09: injective operators around an inner concatenation are one function."""
    x = var("x", (1, 4, 4))
    parts = [relay.reshape(relay.squeeze(x) + 1.0, newshape=(2, 8)), relay.reshape(x, newshape=(2, 8))]
    assert len(groups(fused(relay.transpose(relay.concatenate(parts)) * 2.0, x))) == 1


def test_consecutive_tuples() -> None:
    """FU10: nested concatenations are one function; what reads it twice is apart; the returned tuple is none."""
    x = var("x", (1, 2, 8, 8))
    inner = relay.concatenate([x, x, x], axis=1)
    outer = relay.concatenate([inner, inner, x], axis=1)
    pooled = relay.nn.max_pool2d(outer, pool_size=(2, 2), strides=(2, 2))
    mod = fused(Tuple([pooled + 1.0, pooled + 2.0]), x)
    assert groups(mod) == [["concatenate", "concatenate"], ["nn.max_pool2d"], ["add"], ["add"]]


def test_inception_like_graphs() -> None:
    """FU11: each convolution has its activation, each concatenation a function."""

    def conv(data: Expr) -> Expr:
        channels = data.tensor_type.static_shape[1]
        return relay.nn.relu(relay.nn.conv2d(data, weight(4, channels, 3, 3), padding=1))

    x = var("x", (1, 4, 8, 8))
    first = relay.concatenate([conv(x), conv(x)], axis=1)
    second = relay.concatenate([conv(first), conv(first)], axis=1)
    found = groups(fused(second, x))
    assert found.count(["nn.conv2d", "nn.relu"]) == 4
    assert found.count(["concatenate"]) == 2


def test_a_diamond_of_injective_operators_is_one_group() -> None:
    """FU12: both arms go with the node at which they meet."""
    x = var("x", (4, 4))
    top = relay.squeeze(x, axis=())
    mod = fused(relay.transpose(top) + relay.reshape(top, newshape=(4, 4)), x)
    assert groups(mod) == [["squeeze", "transpose", "reshape", "add"]]


def test_the_input_is_not_changed() -> None:
    """FU13: the module given is what it was."""
    x = var("x", (4,))
    mod = IRModule.from_expr(Function([x], relay.tanh(relay.exp(x))))
    before = structural_digest(mod)
    FuseOps()(mod)
    assert structural_digest(mod) == before


def test_fused_programs_are_well_formed_and_fused_once() -> None:
    """FU14: a split with its fields; a second run changes nothing."""
    x = var("x", (6,))
    parts = relay.split(x, indices_or_sections=3)
    mod = fused(Tuple([relay.exp(TupleGetItem(parts, 0)), TupleGetItem(parts, 2)]), x)
    assert FuseOps()(mod) is mod


@pytest.mark.parametrize(("limit", "sizes"), [(256, [256, 44]), (10, [10] * 30), (1, [1] * 300)])
def test_groups_have_at_most_so_many_nodes(limit: int, sizes: list[int]) -> None:
    """FU15: a long chain is cut where the limit says."""
    x = var("x", (2,))
    assert [len(group) for group in groups(fused(chain(["exp"] * 300, x), x, max_depth=limit))] == sizes


@pytest.mark.parametrize("name", ["take", "gather_nd"])
def test_constants_of_a_gather(name: str) -> None:
    """FU16, FU17: a scalar index stands in the function; with link_params any constant does."""
    x = var("x", (4, 5))
    body = relay.take(x, const(2), axis=0) if name == "take" else relay.gather_nd(x, const([[1, 2], [3, 4]]))
    params = [len(fused(relay.exp(body), x, link_params=link)["main"].body.op.params) for link in (False, True)]  # type: ignore[attr-defined]
    assert params == ([1, 1] if name == "take" else [2, 1])


def test_a_broadcast_goes_with_the_sum_behind_it() -> None:
    """FU18: a reduction to a scalar."""
    x = var("x", (4, 5))
    assert groups(fused(relay.sum(relay.exp(x) * x), x)) == [["exp", "multiply", "sum"]]


@pytest.mark.parametrize("limit", range(2, 9))
def test_a_limit_cuts_no_diamond(limit: int) -> None:
    """FU19: where the arms do not fit, the group ends before they part."""
    x = var("x", (4,))
    body: Expr = x
    for _ in range(6):
        top = relay.exp(body)
        body = relay.tanh(relay.sin(top)) + relay.cos(top)
    mod = fused(body, x, max_depth=limit)
    assert max(len(group) for group in groups(mod)) <= limit
    ones = np.ones(4, "float32")
    np.testing.assert_allclose(interpret(mod, ones), interpret(Function([x], body), ones))


def test_named_extents_are_fused() -> None:
    """FU20: shapes that are not numbers."""
    mod = parse("def @main(%x: Tensor[(1, n), float32]) { exp(squeeze(%x, axis=[0])) * 2f }")
    after = FuseOps()(mod)
    assert groups(after) == [["squeeze", "exp", "multiply"]]
    data = np.arange(3, dtype="float32").reshape(1, 3)
    np.testing.assert_array_equal(interpret(after, data), interpret(mod, data))


def test_softmax_takes_the_cast_behind_it() -> None:
    """FU21: a reduction along an axis that stays has an epilogue."""
    x = var("x", (4, 4))
    assert groups(fused(relay.cast(relay.nn.softmax(x), dtype="float16"), x)) == [["nn.softmax", "cast"]]


@pytest.mark.parametrize(("limit", "most"), [(0, 9), (5, 5), (3, 3)])
def test_groups_read_and_write_so_many_tensors(limit: int, most: int) -> None:
    """FU22: a sum of many inputs is split so that no function has more arguments than allowed."""
    inputs = [var(f"x{number}", (4,)) for number in range(8)]
    body: Expr = inputs[0]
    for each in inputs[1:]:
        body = body + each
    mod = fused(body, *inputs, max_function_args=limit)
    calls = [node for node in post_order(mod["main"]) if is_fused_call(node)]
    assert max(len(node.args) + 1 for node in calls) == most  # type: ignore[attr-defined]


def test_extents_that_are_no_numbers_count_as_arguments() -> None:
    """FU22: two unknown extents on either side are as many arguments more."""
    mod = parse("def @main(%x: Tensor[(n, m), float32]) { log(exp(%x)) }")
    for limit, count in ((6, 1), (5, 2)):
        with PassContext(config={"relay.FuseOps.max_function_args": limit}):
            assert len(groups(FuseOps()(mod))) == count


def test_long_programs_are_fused_and_defused() -> None:
    x = var("x", (2,))
    body: Expr = x
    late: list[Expr] = []
    for _ in range(4_000):
        body = relay.exp(body)
        late.append(body)
    for each in reversed(late):
        body = body + each
    for _ in range(4_000):
        v = Var("v", TensorType((2,)))
        body = Let(v, relay.tanh(body), v)
    mod = IRModule.from_expr(Function([x], body))
    assert structural_equal(DefuseOps()(FuseOps()(mod)), mod)
