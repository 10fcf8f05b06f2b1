"""What the text tests of single passes do not show."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.ir.expr import Call, Expr, Function, Let, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_digest, structural_equal, weight_slots
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.passes.canonicalize_ops import CanonicalizeOps
from relaybuild.passes.dead_code_elimination import DeadCodeElimination
from relaybuild.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.infra import Pass, PassContext
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.passes.simplify_expr import SimplifyExpr


def network(seed: int) -> IRModule:
    """A convolution with bias, batch norm and relu, with weights of a seed."""
    random = np.random.default_rng(seed)

    def weight(*shape: int) -> Expr:
        return const((random.random(shape) + 0.5).astype("float32"))

    x = var("x", (1, 3, 8, 8))
    conv = relay.nn.bias_add(relay.nn.conv2d(x, weight(4, 3, 3, 3), padding=1), weight(4))
    norm = relay.nn.batch_norm(conv, weight(4), weight(4), weight(4), weight(4))
    return IRModule({"main": Function([x], relay.nn.relu(relay.TupleGetItem(norm, 0)))})


def optimized(mod: IRModule) -> IRModule:
    with PassContext(opt_level=3):
        return default_pipeline()(mod)


def test_the_pipeline_gives_a_retrained_model_the_same_program() -> None:
    one, two = optimized(network(0)), optimized(network(1))
    assert structural_digest(one) == structural_digest(two)
    assert not structural_equal(one, two)


def test_the_pipeline_evaluates_no_weights() -> None:
    mod = network(0)
    before = {id(weight) for weight in weight_slots(mod)}
    assert {id(weight) for weight in weight_slots(optimized(mod))} <= before


def test_batch_norm_leaves_one_addition_behind_a_convolution() -> None:
    names = []
    node: Expr = optimized(network(0))["main"].body
    while isinstance(node, Call):
        names.append(node.op_name)
        node = node.args[0]
    assert names == ["nn.relu", "add", "nn.conv2d"]


@pytest.mark.parametrize(
    "each",
    [FoldConstant(), SimplifyExpr(), CanonicalizeOps(), EliminateCommonSubexpr(), DeadCodeElimination()],
    ids=lambda each: each.info.name,
)
def test_what_needs_no_change_stays_the_same_object(each: Pass) -> None:
    mod = parse(
        """
        def @main(%x: Tensor[(3,), float32], %c: bool) {
          let %f = fn (%y: Tensor[(3,), float32]) { %y * %x };
          if (%c) { %f(%x) } else { exp(%x) }
        }
        """
    )
    assert each(mod) is mod


def test_kept_copies() -> None:
    x = var("x", (3,))
    mod = IRModule.from_expr(Function([x], relay.add(relay.exp(x), relay.exp(x))))

    def is_exp(node: Expr) -> bool:
        return isinstance(node, Call) and node.op_name == "exp"

    assert EliminateCommonSubexpr(fskip=is_exp)(mod) is mod
    merged = EliminateCommonSubexpr()(mod)["main"]
    assert sum(is_exp(node) for node in post_order(merged)) == 1


def test_a_module_without_entry_keeps_its_functions() -> None:
    mod = parse("def @a() { 1 } def @b() { 2 }")
    assert DeadCodeElimination()(mod) is mod
    assert list(DeadCodeElimination(entry_functions=("a",))(mod)) == ["a"]


def test_long_chains_pass_through() -> None:
    x = var("x", (3,))
    body: Expr = x
    for index in range(5_000):
        body = relay.tanh(body) if index % 2 else call_op("negative", [body])
    for _ in range(5_000):
        v = Var("v", TensorType((3,)))
        body = Let(v, body, v)
    assert len(list(post_order(optimized(IRModule.from_expr(Function([x], body)))["main"]))) > 5_000


def test_precise_keeps_the_order_of_operations() -> None:
    text = """
    def @main(%x: Tensor[(2, 3), float32], %n: int32) {
      %0 = nn.dense(%x, meta[relay.Constant][0]) * 0.5f;
      (%0 + 1f + 2f, %n + 1 + 2)
    }
    #[metadata] {"relay.Constant": [{"dtype": "float32", "shape": [4, 3]}]}
    """
    mod = parse(text, weights=[np.ones((4, 3), "float32")])
    with PassContext(opt_level=3, config={"relaybuild.precise": True}):
        after = str(default_pipeline()(mod))
    assert "nn.dense(%x, meta[relay.Constant][0]);" in after
    assert "3f" not in after
    assert "add(%n, 3)" in after
    assert "3f" in str(optimized(mod))
