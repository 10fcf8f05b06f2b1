"""The programs by which Relay and its passes are introduced, written with the names Relay users know: all of them run.

What is compiled is also compared with the interpreter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaybuild
from relaybuild import relay
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.visitor import post_order

MULADD = """
def @muladd(%x, %y, %z) {
  %1 = mul(%x, %y)
  %2 = add(%1, %z)
  %2
}
def @myfunc(%x) {
  %1 = @muladd(%x, 1, 2)
  %2 = @muladd(%1, 2, 3)
  %2
}
"""

RECURSION = """
def @myfunc(%x) {
  %1 = equal(%x, 1)
  if (%1) {
    %x
  } else {
    %2 = sub(%x, 1)
    %3 = @myfunc(%2)
    %4 = add(%3, %3)
    %4
  }
}
"""

INT_MAIN = "def @main(%x: int32) -> int32 { @myfunc(%x) }"

CLOSURE = """
def @capture(%x: Tensor[(3), float32]) {
  BINDlog(%x);
  %2 = fn (%y: Tensor[(3), float32]) {
    add(%y, USE)
  };
  %2
}
def @main(%x: Tensor[(3), float32], %y: Tensor[(3), float32]) {
  let %f = @capture(%x);
  add(%f(%y), %f(%x))
}
"""


def compiled(mod: relay.Module, *inputs: Any) -> Any:
    """What the compiled program returns."""
    artifact = relaybuild.compile(mod, target="c", jobs=1)
    return relaybuild.load_module(artifact.path)(*inputs)


def kernel_text(mod: relay.Module, folder: Path) -> str:
    """The C code of the kernels."""
    relaybuild.compile(mod, target="c", jobs=1, save_temps=folder)
    return "\n".join(path.read_text() for path in sorted(folder.rglob("rb_*.c")))


def op_names(mod: relay.Module) -> list[str]:
    return [node.op_name for node in post_order(mod["main"]) if isinstance(node, relay.Call)]


def constant_program() -> relay.Module:
    """x + (c + c) * 2, to which c is added twice, in two nodes, and both are added."""
    data = np.array([1, 2, 3], "float32")
    c, x = relay.const(data), relay.var("x", relay.TensorType((1, 2, 3), "float32"))
    y = relay.add(x, relay.multiply(relay.add(c, c), relay.const(2, "float32")))
    return relay.Module({"main": relay.Function([x], relay.add(relay.add(y, c), relay.add(y, c)))})


def sequence(*further: Any) -> Any:
    return relay.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.FoldConstant(),
            *further,
            relay.transform.EliminateCommonSubexpr(),
            relay.transform.AlterOpLayout(),
        ]
    )


class TestPasses:
    def test_a_module_pass_adds_a_function_to_any_module(self) -> None:
        """PM01: a decorated function is a pass of its own name and level; both functions of the result run."""

        @relay.transform.module_pass(opt_level=2)
        def add_abs(mod: relay.Module, ctx: relay.PassContext) -> relay.Module:
            x = relay.var("x", relay.TensorType((10,), "float32"))
            result = relay.Module({relay.GlobalVar("abs"): relay.Function([x], relay.abs(x))})
            result.update(mod)
            return result

        assert isinstance(add_abs, relay.transform.ModulePass)
        assert (add_abs.info.name, add_abs.info.opt_level) == ("add_abs", 2)
        assert "add_abs" in repr(add_abs)
        assert list(add_abs(relay.Module())) == ["abs"]
        x = relay.var("x", shape=(10,))
        both = add_abs(relay.Module({"main": relay.Function([x], relay.log(x))}))
        assert list(both) == ["abs", "main"]
        values = np.arange(-4, 6, dtype="float32")
        only_abs = relay.Module({"main": both["abs"]})
        np.testing.assert_array_equal(relaybuild.interpret(only_abs, values), np.abs(values))
        np.testing.assert_array_equal(compiled(only_abs, values), np.abs(values))
        positive = values + 5
        np.testing.assert_allclose(compiled(both, positive), np.log(positive), rtol=1e-6)

    def test_a_class_of_function_passes_replaces_every_function(self) -> None:
        """PM02: a decorated class makes passes; each function of the module is replaced."""

        @relay.transform.function_pass(opt_level=1)
        class ReplaceAll:
            def __init__(self, replacement: relay.Function) -> None:
                self.replacement = replacement

            def transform_function(self, func: Any, mod: Any, ctx: Any) -> relay.Function:
                return self.replacement

        x = relay.var("x", shape=(10, 20))
        identity, logarithm = relay.Function([x], x), relay.Function([x], relay.log(x))
        replace = ReplaceAll(identity)
        assert isinstance(replace, relay.transform.FunctionPass)
        assert replace.info == relay.transform.PassInfo("ReplaceAll", 1)
        result = replace(relay.Module({"main": logarithm, "other": logarithm}))
        assert {name: result[name] for name in result} == {"main": identity, "other": identity}

    def test_a_sequence_folds_shares_and_alters(self) -> None:
        """PM07: at level 3 constants are folded, equal nodes are one, and nothing is left to alter."""
        before = constant_program()
        with relay.build_config(opt_level=3), relaybuild.target.create("x86-64-v2"):
            after = sequence()(before)
        x = relay.var("x", shape=(1, 2, 3))
        c = relay.const(np.array([1, 2, 3], "float32"))
        shared = relay.add(relay.add(x, relay.const(np.array([4, 8, 12], "float32"))), c)
        assert structural_equal(after, relay.Module({"main": relay.Function([x], relay.add(shared, shared))}))
        values = np.arange(6, dtype="float32").reshape(1, 2, 3)
        expected = relaybuild.interpret(before, values)
        np.testing.assert_array_equal(relaybuild.interpret(after, values), expected)
        np.testing.assert_array_equal(compiled(before, values), expected)

    def test_a_pass_disabled_by_name_does_not_run(self) -> None:
        with relay.build_config(opt_level=3, disabled_pass=["EliminateCommonSubexpr"]):
            after = sequence()(constant_program())
        # x + c12, its two sums with c, and their sum
        assert op_names(after) == ["add"] * 4
        with relay.build_config(opt_level=3):
            assert op_names(sequence()(constant_program())) == ["add"] * 3
        # without a context of level 3 it does not run either
        assert op_names(sequence()(constant_program())) == ["add"] * 4

    def test_print_ir_shows_the_module_between_passes(self, capsys: pytest.CaptureFixture[str]) -> None:
        """PM09: PrintIR in a sequence writes its name and the program to standard error."""
        with relay.build_config(opt_level=3):
            sequence(relay.transform.PrintIR())(constant_program())
        printed = capsys.readouterr().err
        assert printed.startswith("// PrintIR\n")
        # constants are folded by then, equal nodes are not yet one
        assert printed.count("add(") == 4
        assert "multiply" not in printed


class TestModules:
    def test_a_function_calls_another(self) -> None:
        mod = relaybuild.parse(MULADD + INT_MAIN)
        assert relaybuild.interpret(mod, np.int32(5)) == (5 * 1 + 2) * 2 + 3
        assert relaybuild.interpret(relaybuild.parse(mod.astext()), np.int32(5)) == 17

    def test_a_function_calls_another_compiled(self) -> None:
        assert compiled(relaybuild.parse(MULADD + INT_MAIN), np.int32(5)) == 17

    def test_a_function_calls_itself(self) -> None:
        mod = relaybuild.parse(RECURSION + INT_MAIN)
        for depth in (1, 2, 6):
            assert relaybuild.interpret(mod, np.int32(depth)) == 2 ** (depth - 1)

    def test_a_function_calls_itself_compiled(self) -> None:
        artifact = relaybuild.compile(relaybuild.parse(RECURSION + INT_MAIN), target="c", jobs=1)
        module = relaybuild.load_module(artifact.path)
        for depth in (1, 2, 30):
            assert module(np.int32(depth)) == 2 ** (depth - 1)

    def test_a_global_variable_can_be_called_before_it_is_defined(self) -> None:
        x, later = relay.var("x", shape=()), relay.GlobalVar("later")
        mod = relay.Module({"main": relay.Function([x], later(x), relay.scalar_type("float32"))})
        mod.update({later: relay.Function([x], relay.negative(x))})
        assert relaybuild.interpret(mod, np.float32(3)) == -3


@pytest.mark.parametrize(("bind", "use"), [("%1 = ", "%1"), ("let %v1 = ", "%v1")], ids=["dataflow", "let"])
class TestClosures:
    X, Y = np.array([1, 2, 3], "float32"), np.array([4, 5, 6], "float32")
    WANTED = Y + X + 2 * np.log(X)

    def program(self, bind: str, use: str) -> relay.Module:
        return relaybuild.parse(CLOSURE.replace("BIND", bind).replace("USE", use))

    def test_a_closure_over_a_logarithm(self, bind: str, use: str) -> None:
        found = relaybuild.interpret(self.program(bind, use), self.X, self.Y)
        np.testing.assert_allclose(found, self.WANTED, rtol=1e-6)

    def test_a_closure_over_a_logarithm_compiled(self, bind: str, use: str) -> None:
        np.testing.assert_allclose(compiled(self.program(bind, use), self.X, self.Y), self.WANTED, rtol=1e-6)


class TestSharing:
    def test_a_shared_node_is_printed_once_and_is_not_two_equal_ones(self) -> None:
        x = relay.var("x", shape=(8,))
        shared = relay.log(x)
        once = relay.Module({"main": relay.Function([x], relay.add(shared, shared))})
        twice = relay.Module({"main": relay.Function([x], relay.add(relay.log(x), relay.log(x)))})
        assert (once.astext().count("log("), twice.astext().count("log(")) == (1, 2)
        assert not structural_equal(once, twice)
        assert structural_equal(relaybuild.parse(once.astext()), once)
        with relay.build_config(opt_level=3):
            merged = relay.transform.EliminateCommonSubexpr()(twice)
        assert structural_equal(merged, once)

    def test_a_logarithm_used_twice_is_computed_once(self, tmp_path: Path) -> None:
        x = relay.var("x", shape=(8,))
        shared = relay.log(x)
        mod = relay.Module({"main": relay.Function([x], relay.add(shared, shared))})
        assert kernel_text(mod, tmp_path).count("logf(") == 1
        values = np.arange(1, 9, dtype="float32")
        np.testing.assert_allclose(compiled(mod, values), 2 * np.log(values), rtol=1e-6)

    def test_doubling_64_times_is_64_additions(self, tmp_path: Path) -> None:
        x = relay.var("x", shape=(8,))
        y = x
        for _ in range(64):
            y = y + y
        mod = relay.Module({"main": relay.Function([x], y)})
        # the additions of a kernel are of values, which are variables of their own
        additions = re.findall(r"\bv\d* \+ v\d*\b", kernel_text(mod, tmp_path))
        assert len(additions) == 64
        np.testing.assert_array_equal(compiled(mod, np.full(8, 3, "float32")), np.full(8, 3 * 2.0**64, "float32"))


class TestForms:
    def dataflow(self) -> relay.Module:
        x = relay.var("x", shape=(8,))
        shared = relay.log(x)
        return relay.Module({"main": relay.Function([x], relay.add(shared, relay.multiply(shared, x)))})

    def test_dataflow_to_a_normal_form_and_back(self) -> None:
        mod = relay.transform.InferType()(self.dataflow())
        lets = relay.transform.ToANormalForm()(mod)
        body = lets["main"].body
        bound = []
        while isinstance(body, relay.Let):
            assert not any(isinstance(arg, relay.Call) for arg in body.value.args)
            bound.append(body.value.op_name)
            body = body.body
        assert bound == ["log", "multiply", "add"]
        assert isinstance(body, relay.Var)
        back = relay.transform.ToGraphNormalForm()(lets)
        assert structural_equal(back, mod)
        values = np.arange(1, 9, dtype="float32")
        for form in (lets, back):
            np.testing.assert_array_equal(relaybuild.interpret(form, values), relaybuild.interpret(mod, values))

    def test_the_text_of_both_forms_differs_by_let_alone(self) -> None:
        mod = relay.transform.InferType()(self.dataflow())
        lets = relay.transform.ToANormalForm()(mod).astext()
        assert lets.count("let %") == 3
        assert (mod.astext().count("log("), lets.count("log(")) == (1, 1)


def test_structural_equality_is_reached_from_the_language() -> None:
    from relaybuild.ir import structural_equal as same

    assert same(constant_program(), constant_program())
