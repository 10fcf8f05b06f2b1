"""Contexts, requirements, names, sequences, counted rewrites, and passes made of functions and classes."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracing import log_function, tracing_pass

from relaybuild import relay
from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Expr, Function, Span, const
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.passes import infra
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import (
    ErrorReporter,
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass,
    get_pass,
    module_pass,
    register_config_key,
    register_pass,
    required_order,
)


class TestDecorators:
    def test_a_function_becomes_a_module_pass(self) -> None:
        """PM01: name and level are as given, or the function's own; the pass adds a function."""

        def add_abs(mod: IRModule, ctx: PassContext) -> IRModule:
            x = relay.var("x", relay.TensorType((10,), "float32"))
            return mod.with_function("abs", relay.Function([x], relay.abs(x)))

        named = module_pass(add_abs, opt_level=2, name="AddAbs")
        own = module_pass(opt_level=2)(add_abs)
        assert isinstance(named, ModulePass)
        assert (named.info, own.info) == (PassInfo("AddAbs", 2), PassInfo("add_abs", 2))
        assert repr(named) == "Run Module pass: AddAbs at the optimization level 2"
        result = named(log_function())
        assert list(result) == ["abs", "main"]
        values = np.arange(1, 11, dtype="float32")
        np.testing.assert_array_equal(interpret(IRModule({"main": result["abs"]}), -values), values)
        np.testing.assert_array_equal(interpret(result, values), np.log(values))

    def test_a_class_becomes_a_factory_of_function_passes(self) -> None:
        """PM02: the class's name is the pass's; every function is replaced."""

        @function_pass(opt_level=1)
        class Replace:
            """Puts one function in place of all."""

            def __init__(self, new_func: Function) -> None:
                self.new_func = new_func

            def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
                return self.new_func

        x = relay.var("x", shape=(10, 20))
        replace = Replace(relay.Function([x], x))
        assert isinstance(replace, FunctionPass)
        assert replace.info == PassInfo("Replace", 1)
        assert Replace.__doc__ == "Puts one function in place of all."
        mod = log_function().with_function("other", log_function()["main"])
        assert {id(replace(mod)[name]) for name in mod} == {id(replace.new_func)}

    def test_a_function_becomes_a_function_pass(self) -> None:
        """PM03: it is applied to each function, and is given the function, the module and the context."""
        seen: list[tuple[Function, IRModule, PassContext]] = []

        @function_pass(opt_level=1, name="See")
        def see(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            seen.append((func, mod, ctx))
            return func

        mod = log_function().with_function("other", log_function()["main"])
        with PassContext() as context:
            assert see(mod) is mod
        assert see.info == PassInfo("See", 1)
        assert seen == [(mod[name], mod, context) for name in mod]

    def test_a_class_becomes_a_factory_of_module_passes(self) -> None:
        """PM04: what its constructor is given decides whether the module is replaced."""

        @module_pass(opt_level=2)
        class Choose:
            def __init__(self, replacement: IRModule, replaces: bool) -> None:
                self.replacement, self.replaces = replacement, replaces

            def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
                return self.replacement if self.replaces else mod

        mod, other = log_function(), log_function()
        assert isinstance(Choose(other, True), ModulePass)
        assert Choose(other, False)(mod) is mod
        assert Choose(other, True)(mod) is other

    def test_mistakes_of_the_author(self) -> None:
        with pytest.raises(ValueError, match="opt_level"):
            module_pass(lambda mod, ctx: mod)
        with pytest.raises(TypeError, match="'required' must be a list or tuple"):
            module_pass(opt_level=0, required="InferType")
        with pytest.raises(TypeError, match="no method 'transform_function'"):
            function_pass(opt_level=0)(type("Empty", (), {}))
        nothing = module_pass(lambda mod, ctx: None, opt_level=0, name="Nothing")
        with pytest.raises(UserError, match="pass 'Nothing' returned a value of type 'NoneType', expected a mod"):
            nothing(IRModule())
        number = function_pass(lambda func, mod, ctx: 1, opt_level=0, name="Number")
        with pytest.raises(UserError, match="pass 'Number' returned a value of type 'int', expected a function"):
            number(log_function())

    def test_function_passes_leave_what_is_not_theirs(self) -> None:
        @function_pass(opt_level=0)
        def erase(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            return relay.Function([], relay.const(0))

        mod = log_function()
        kept = {name: mod["main"].with_attr(name, 1) for name in ("SkipOptimization", "Compiler", "Extern")}
        allowed = {"zero": mod["main"].with_attr("SkipOptimization", 0), "main": mod["main"]}
        result = erase(IRModule({**kept, **allowed}))
        assert [name for name in result if not result[name].params] == ["main", "zero"]

    def test_what_nothing_changes_stays_the_same_object(self) -> None:
        keep = function_pass(lambda func, mod, ctx: func, opt_level=0, name="Keep")
        mod = log_function()
        assert keep(mod) is mod

    def test_abstract_passes_cannot_be_made(self) -> None:
        with pytest.raises(TypeError):
            ModulePass()  # type: ignore[abstract]


class TestContext:
    def test_pass_info_has_three_fields(self) -> None:
        """PM05: name, level, and what is required."""
        info = PassInfo(opt_level=3, name="Name", required=("A", "B"))
        assert (info.name, info.opt_level, info.required) == ("Name", 3, ("A", "B"))
        assert PassInfo("Name") == PassInfo("Name", 0, ())

    def test_the_stack_is_nested_and_per_thread(self) -> None:
        default = PassContext.current()
        assert default.opt_level == 2
        assert PassContext.entered() is None
        with PassContext(opt_level=3) as outer:
            with PassContext(opt_level=0, disabled_pass=["A"]) as inner:
                assert PassContext.current() is PassContext.entered() is inner
            assert PassContext.current() is outer
            seen: list[int] = []
            thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
            thread.start()
            thread.join()
            assert seen == [2]
        assert PassContext.current() is default

    def test_an_error_leaves_the_context(self) -> None:
        with pytest.raises(RuntimeError), PassContext():
            raise RuntimeError
        assert PassContext.entered() is None

    def test_defaults(self) -> None:
        context = PassContext()
        assert (context.opt_level, context.required_pass, context.disabled_pass) == (2, (), ())
        assert (context.fallback_device, context.instruments, context.config) == ("cpu", [], {})

    def test_names_are_a_list(self) -> None:
        with pytest.raises(TypeError, match="'required_pass' must be a list or tuple of names, found 'A'"):
            PassContext(required_pass="A")

    def test_a_context_can_be_handed_to_a_pass(self) -> None:
        log: list[str] = []
        sequence = Sequential([tracing_pass("a", log), tracing_pass("b", log, level=3)])
        sequence(IRModule(), PassContext(opt_level=3, disabled_pass=["a"]))
        assert log == ["b"]

    def test_a_derived_context_shares_what_is_counted(self) -> None:
        context = PassContext(opt_level=1, disabled_pass=["A"], max_rewrites=1)
        derived = context.derived(opt_level=3, disabled_pass=["B"], config={"relaybuild.precise": True})
        assert (derived.opt_level, derived.disabled_pass) == (3, ("A", "B"))
        assert (context.opt_level, context.disabled_pass, context.config) == (1, ("A",), {})
        assert derived.get_config("relaybuild.precise") is True
        assert derived.allow_rewrite("one")
        assert not context.allow_rewrite("two")


class TestConfig:
    def test_values_and_defaults(self) -> None:
        """PI06: keys are registered with a type and can be listed."""
        register_config_key("test.depth", int, 256, "how deep")
        assert PassContext().get_config("test.depth") == 256
        assert PassContext(config={"test.depth": 3}).get_config("test.depth") == 3
        listed = PassContext.list_configs()
        assert list(listed) == sorted(listed)
        assert (listed["test.depth"].kind, listed["test.depth"].doc) == (int, "how deep")
        assert listed["relaybuild.precise"].kind is bool

    def test_unknown_keys_list_the_nearest(self) -> None:
        register_config_key("test.depth", int, 256, "how deep")
        with pytest.raises(UserError, match=r"unknown config key 'test\.deepth'; the nearest are test\.depth$"):
            PassContext(config={"test.deepth": 3})
        with pytest.raises(UserError, match=r"unknown config key 'zzz'; the keys are .*relaybuild\.precise, "):
            PassContext().get_config("zzz")

    @pytest.mark.parametrize(("value", "found"), [("3", "str"), (3.0, "float"), (True, "bool"), (None, "NoneType")])
    def test_wrong_types(self, value: object, found: str) -> None:
        register_config_key("test.depth", int, 256, "how deep")
        with pytest.raises(UserError, match=rf"config key 'test\.depth' got a value of type '{found}', expected 'int'"):
            PassContext(config={"test.depth": value})

    def test_a_key_is_registered_once(self) -> None:
        first = register_config_key("test.depth", int, 256, "how deep")
        assert register_config_key("test.depth", int, 256, "how deep") == first
        with pytest.raises(UserError, match=r"config key 'test\.depth' is registered already, with type 'int'"):
            register_config_key("test.depth", str, "", "another")
        with pytest.raises(TypeError, match=r"key 'test\.other' has a default of type 'str', expected 'int'"):
            register_config_key("test.other", int, "1", "wrong")


class TestReporter:
    def test_reported_errors_end_the_pass_together(self) -> None:
        call = call_op("abs", [const(1.0)], Span("a.relay", line=1, column=2))

        @module_pass(opt_level=0, name="Check")
        def check(mod: IRModule, ctx: PassContext) -> IRModule:
            ctx.error_reporter.report("too large", call)
            ctx.error_reporter.report("too odd", Span("m.onnx", "conv1"))
            ctx.error_reporter.report("too small")
            return mod

        with pytest.raises(UserError) as caught:
            check(IRModule())
        assert str(caught.value) == (
            "3 errors:\n"
            "  a.relay:1:2: too large\n"
            "  m.onnx: node 'conv1': too odd\n"
            "  too small\n"
            "  note: while running Check"
        )
        # nothing is left for the next pass
        tracing_pass("next", [])(IRModule())

    @pytest.mark.parametrize("on_disk", [True, False])
    def test_a_place_in_a_text_is_shown(self, on_disk: bool, tmp_path: Path) -> None:
        text = "def @main(%x: float32) {\n  exp(%x)\n}\n"
        path = tmp_path / "a.relay"
        if on_disk:
            path.write_text(text)

        @function_pass(opt_level=0, name="NoExp")
        def no_exp(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            ctx.error_reporter.report("'exp' is not allowed here", func.body)
            return func

        reporter = ErrorReporter(None if on_disk else {str(path): text})
        with PassContext(error_reporter=reporter), pytest.raises(UserError) as caught:
            no_exp(parse(text, str(path)))
        assert str(caught.value) == (
            f"{path}:2:3: 'exp' is not allowed here\n      exp(%x)\n      ^\n  note: while running NoExp"
        )

    def test_what_was_reported_is_told_with_the_error_that_ended_the_pass(self) -> None:
        @module_pass(opt_level=0, name="Check")
        def check(mod: IRModule, ctx: PassContext) -> IRModule:
            ctx.error_reporter.report("too small", "input 'x'")
            raise TypeCheckError("no such type")

        with PassContext(), pytest.raises(TypeCheckError) as caught:
            check(IRModule())
        assert caught.value.notes == ["reported before: input 'x': too small", "while running Check"]

    def test_warnings_stay(self) -> None:
        @module_pass(opt_level=0, name="Check")
        def check(mod: IRModule, ctx: PassContext) -> IRModule:
            ctx.error_reporter.warn("slow", "input 'x'")
            return mod

        with PassContext() as context:
            check(IRModule())
        assert [str(warning) for warning in context.error_reporter.warnings] == ["input 'x': slow"]


class TestSequential:
    def test_an_empty_one_is_the_identity(self) -> None:
        """PM06: it has the name "sequential"; a context can require a pass of a higher level."""
        mod = log_function()
        assert Sequential([])(mod) is mod
        assert Sequential().info == PassInfo("sequential", 0)
        log: list[str] = []
        sequence = Sequential([tracing_pass("high", log, level=3)], opt_level=1, name="mine", required=["InferType"])
        assert sequence.info == PassInfo("mine", 1, ("InferType",))
        with PassContext(opt_level=0):
            sequence(mod)
        assert log == []
        with PassContext(opt_level=0, required_pass=["high"]):
            sequence(mod)
        assert log == ["high"]

    def test_module_and_function_passes_compose(self) -> None:
        """PM06: a module pass, then a function pass over what it added; the results run."""

        @module_pass(opt_level=1)
        def add_abs(mod: IRModule, ctx: PassContext) -> IRModule:
            x = relay.var("x", shape=(10,))
            return mod.with_function("abs", relay.Function([x], relay.abs(x)))

        @function_pass(opt_level=1)
        def negate(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            return func.with_body(relay.negative(func.body))

        result = Sequential([add_abs, negate])(log_function())
        values = np.arange(1, 11, dtype="float32")
        np.testing.assert_array_equal(interpret(result, values), -np.log(values))
        np.testing.assert_array_equal(interpret(IRModule({"main": result["abs"]}), values), -values)

    def test_levels_gate_the_children_at_any_depth(self) -> None:
        log: list[str] = []
        deep = Sequential([Sequential([tracing_pass("high", log, level=3), tracing_pass("low", log, level=1)])])
        with PassContext(opt_level=2):
            deep(IRModule())
        with PassContext(opt_level=0, required_pass=["high"]):
            deep(IRModule())
        assert log == ["low", "high"]

    def test_a_nested_one_simplifies(self) -> None:
        """PM08: at level 1 a Sequential within another runs SimplifyExpr, which merges a chain of reshapes."""
        x = relay.var("x", shape=(1, 16, 8))
        chain = relay.reshape(relay.reshape(x, (1, 128)), (2, 64))
        mod = IRModule({"main": relay.Function([x], chain)})
        with PassContext(opt_level=1):
            result = Sequential([Sequential([get_pass("InferType"), get_pass("SimplifyExpr")], opt_level=1)])(mod)
        assert result["main"].body.args == (x,)

    def test_its_own_list_disables_at_any_depth(self) -> None:
        log: list[str] = []
        one, two = tracing_pass("one", log), tracing_pass("two", log)
        Sequential([one, Sequential([one, two])], disabled=["one"])(IRModule())
        assert log == ["two"]
        one(IRModule())
        assert log == ["two", "one"]

    def test_what_is_not_a_pass_is_refused(self) -> None:
        with pytest.raises(TypeError, match="Sequential 'sequential' got 'InferType' among its passes"):
            Sequential(["InferType"])  # type: ignore[list-item]

    def test_it_says_what_it_runs(self) -> None:
        assert repr(Sequential([get_pass("InferType"), get_pass("FoldConstant")])) == (
            "Run Sequential pass: sequential at the optimization level 0. "
            "The passes will be executed are: [InferType FoldConstant]"
        )

    def test_print_ir(self) -> None:
        stream = io.StringIO()
        mod = log_function()
        assert Sequential([PrintIR(header="here", stream=stream)])(mod) is mod
        assert stream.getvalue().startswith("// PrintIR here\n#[version")
        assert stream.getvalue().count("log(%x)") == 1

    def test_an_error_tells_the_way_to_it(self) -> None:
        @module_pass(opt_level=0, name="Fails")
        def fails(mod: IRModule, ctx: PassContext) -> IRModule:
            raise UserError("no")

        with pytest.raises(UserError) as caught:
            Sequential([Sequential([fails], name="inner")], name="outer")(IRModule())
        assert caught.value.notes == ["while running Fails", "while running inner", "while running outer"]


class TestWhetherAPassRuns:
    def test_a_pass_that_is_called_runs_at_any_level(self) -> None:
        log: list[str] = []
        with PassContext(opt_level=0):
            tracing_pass("high", log, level=3)(IRModule())
        assert log == ["high"]

    def test_a_disabled_pass_runs_nowhere(self) -> None:
        log: list[str] = []
        one = tracing_pass("one", log)
        with PassContext(disabled_pass=["one"], required_pass=["one"]):
            one(IRModule())
            Sequential([Sequential([one])])(IRModule())
        assert log == []


class TestRequirements:
    def test_they_run_first_transitively_and_once(self) -> None:
        log: list[str] = []
        tracing_pass("a", log, changes=True)
        tracing_pass("b", log, required=("a",), changes=True)
        tracing_pass("c", log, required=("a",))
        tracing_pass("d", log, required=("b", "c"))(IRModule())
        assert log == ["a", "b", "c", "d"]

    def test_they_run_again_only_when_the_module_has_changed(self) -> None:
        log: list[str] = []
        tracing_pass("a", log)
        quiet = tracing_pass("quiet", log, required=("a",))
        loud = tracing_pass("loud", log, required=("a",), changes=True)
        with PassContext():
            Sequential([quiet, loud, quiet, quiet])(IRModule())
        assert log == ["a", "quiet", "loud", "a", "quiet", "quiet"]

    def test_a_level_does_not_gate_them(self) -> None:
        log: list[str] = []
        tracing_pass("a", log, level=3)
        with PassContext(opt_level=0):
            Sequential([tracing_pass("b", log, required=("a",))])(IRModule())
        assert log == ["a", "b"]

    @pytest.mark.parametrize("direct", [True, False])
    def test_disabling_one_that_is_required_names_both(self, direct: bool) -> None:
        tracing_pass("a", [])
        tracing_pass("b", [], required=("a",))
        needs = tracing_pass("c", [], required=("a",) if direct else ("b",))
        with PassContext(disabled_pass=["a"]), pytest.raises(UserError, match="requires 'a', which is disabled"):
            needs(IRModule())

    def test_disabling_both_is_no_error(self) -> None:
        tracing_pass("a", [])
        with PassContext(disabled_pass=["a", "b"]):
            Sequential([tracing_pass("b", [], required=("a",))])(IRModule())

    def test_a_sequence_that_disables_one_that_is_required(self) -> None:
        tracing_pass("a", [])
        with pytest.raises(UserError, match="pass 'b' requires 'a', which is disabled"):
            Sequential([tracing_pass("b", [], required=("a",))], disabled=["a"])(IRModule())

    def test_an_unknown_one_is_an_error(self) -> None:
        with pytest.raises(UserError, match="unknown pass 'InferTypes'; the nearest are InferType"):
            tracing_pass("b", [], required=("InferTypes",))(IRModule())

    def test_a_cycle_is_an_error(self) -> None:
        tracing_pass("a", [], required=("b",))
        tracing_pass("b", [], required=("a",))
        with pytest.raises(UserError, match="cycle: a -> b -> a"):
            required_order(PassInfo("a", 0, ("b",)))
        with pytest.raises(UserError, match="cycle: self -> self"):
            tracing_pass("self", [], required=("self",))(IRModule())

    def test_a_long_chain_is_no_recursion(self) -> None:
        for index in range(3000):
            register_pass(lambda i=index: tracing_pass(f"p{i}", [], required=(f"p{i - 1}",) if i else ()), f"p{index}")
        assert len(required_order(PassInfo("last", 0, ("p2999",)))) == 3000

    def test_one_with_options_is_required_as_it_was_registered(self) -> None:
        log: list[str] = []
        register_pass(tracing_pass("plain", log), "configured")
        tracing_pass("user", log, required=("configured",))(IRModule())
        assert log == ["plain", "user"]


class TestNames:
    def test_spellings_and_options(self) -> None:
        assert get_pass("FoldConstant") == get_pass("fold-constant", fold_weights=True)
        assert repr(get_pass("FoldConstant")) == "Run Function pass: FoldConstant at the optimization level 2"
        with pytest.raises(UserError, match="unknown pass 'FoldConstants'; the nearest are FoldConstant"):
            get_pass("FoldConstants")
        with pytest.raises(UserError, match="unknown pass 'zzz'; known are AlterOpLayout, "):
            get_pass("zzz")
        with pytest.raises(UserError, match="its options are fold_weights"):
            get_pass("FoldConstant", deep=True)

    def test_the_latest_of_a_name_holds(self) -> None:
        log: list[str] = []
        tracing_pass("mine", log)
        second = tracing_pass("mine", log, level=3)
        assert get_pass("mine") is second

    def test_own_names_cannot_be_taken(self) -> None:
        with pytest.raises(UserError, match="'InferType' is a pass of relaybuild"):
            register_pass(lambda: tracing_pass("InferType", []))

    def test_a_mistake_inside_a_pass_is_not_taken_for_a_wrong_option(self) -> None:
        def make() -> Pass:
            raise TypeError("inside")

        register_pass(make, "broken")
        with pytest.raises(TypeError, match="inside"):
            get_pass("broken")

    def test_every_pass_has_its_files_name(self) -> None:
        for name, factory in infra.builtin_passes().items():
            module: Any = factory.__module__
            if not name.endswith("FoldScaleAxis") and name != "PrintIR":
                assert module.rsplit(".", 1)[1].replace("_", "") == name.lower()

    def test_every_pass_can_be_made_and_has_a_docstring(self) -> None:
        for name in infra.builtin_passes():
            assert get_pass(name).info.name == name
            assert type(get_pass(name)).__doc__
            assert all(required in infra.builtin_passes() for required in get_pass(name).info.required)


def doubling(ctx: PassContext, node: Expr) -> Expr:
    return relay.add(node.args[0], node.args[0]) if getattr(node, "op_name", "") == "exp" else node


@function_pass(opt_level=0, name="Double")
def double(func: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Every exp becomes a sum."""
    result = rewrite_under(ctx, func, lambda node: doubling(ctx, node))
    assert isinstance(result, Function)
    return result


class TestRewrites:
    def chain(self, length: int) -> IRModule:
        x = relay.var("x", shape=())
        y: Expr = x
        for line in range(1, length + 1):
            y = call_op("exp", [y], Span("a.relay", line=line, column=3))
        return IRModule({"main": relay.Function([x], y)})

    @pytest.mark.parametrize("limit", [0, 1, 3, 5, 9])
    def test_the_first_ones_are_allowed(self, limit: int) -> None:
        with PassContext(max_rewrites=limit) as context:
            result = double(self.chain(5))
        text = str(result)
        assert (text.count("add("), text.count("exp(")) == (min(limit, 5), max(5 - limit, 0))
        assert context.rewrites.asked == 5
        assert context.rewrites.allowed == min(limit, 5)
        last = context.rewrites.last_allowed
        assert str(last) == (
            f"rewrite {min(limit, 5)}, Double: exp becomes add at a.relay:{min(limit, 5)}:3" if limit else "None"
        )

    def test_without_a_limit_they_are_counted(self) -> None:
        with PassContext() as context:
            double(self.chain(5))
        assert (context.rewrites.asked, context.rewrites.allowed) == (5, 5)

    def test_a_pass_that_does_not_ask_makes_one_per_function(self) -> None:
        erase = function_pass(lambda func, mod, ctx: Function([], const(0)), opt_level=0, name="Erase")
        mod = log_function().with_function("other", log_function()["main"])
        with PassContext(max_rewrites=1) as context:
            result = erase(mod)
        assert [len(result[name].params) for name in ("main", "other")] == [0, 1]
        assert str(context.rewrites.last_allowed) == "rewrite 1, Erase: the function '@main'"

    def test_a_module_pass_that_does_not_ask_makes_one(self) -> None:
        empty = module_pass(lambda mod, ctx: IRModule(), opt_level=0, name="Empty")
        mod = log_function()
        with PassContext(max_rewrites=1) as context:
            assert len(empty(mod)) == 0
            assert empty(mod) is mod
        assert str(context.rewrites.last_allowed) == "rewrite 1, Empty: the module"

    def test_types_are_no_rewrite(self) -> None:
        x = relay.var("x", shape=())
        callee = relay.GlobalVar("f")
        mod = IRModule({"f": relay.Function([x], x), "main": relay.Function([x], relay.Call(callee, [x]))})
        with PassContext(max_rewrites=0) as context:
            typed = get_pass("InferType")(mod)
        assert typed["main"].body.has_type
        assert context.rewrites.asked == 0


def test_a_context_knows_the_keys_of_passes_that_were_not_used_yet() -> None:
    script = (
        "from relaybuild.passes.infra import PassContext\n"
        "print(PassContext(config={'relay.FuseOps.max_depth': 3}).config)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout == "{'relay.FuseOps.max_depth': 3}\n"


def test_a_pass_is_found_without_importing_all_others() -> None:
    script = (
        "import sys\n"
        "from relaybuild.passes.infra import get_pass\n"
        "get_pass('InferType')\n"
        "print('relaybuild.passes.alter_op_layout' in sys.modules, 'relaybuild.ir.pattern' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout == "False False\n"
