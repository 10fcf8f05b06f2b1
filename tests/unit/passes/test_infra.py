"""Contexts, requirements, instruments, and passes made of functions and classes."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest

from relaybuild import relay
from relaybuild.errors import InternalError, UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.structural import structural_equal
from relaybuild.passes import _base, _config, infra
from relaybuild.passes.infra import (
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    PrintIR,
    Sequential,
    function_pass,
    get_pass,
    module_pass,
    pass_instrument,
    register_config_key,
    register_pass,
    required_order,
)
from relaybuild.passes.instruments import PassTimingInstrument, PrintAfter
from relaybuild.passes.pipelines import default_pipeline


@pytest.fixture(autouse=True)
def _own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes and keys registered by a test are gone after it."""
    monkeypatch.setattr(_base, "_user_passes", {})
    monkeypatch.setattr(_config, "_keys", dict(_config._keys))


def tracing_pass(
    name: str, log: list[str], level: int = 0, required: tuple[str, ...] = (), changes: bool = False
) -> Pass:
    """A pass that notes its name, and gives a new module where it `changes`."""

    @module_pass(opt_level=level, name=name, required=required)
    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        log.append(name)
        return IRModule(mod.functions) if changes else mod

    made: Pass = transform
    return made


def log_function() -> IRModule:
    x = relay.var("x", shape=(10,))
    return IRModule({"main": relay.Function([x], relay.log(x))})


class TestDecorators:
    def test_a_function_becomes_a_module_pass(self) -> None:
        @relay.transform.module_pass(opt_level=2)
        def transform(mod: IRModule, ctx: PassContext) -> IRModule:
            x = relay.var("x", relay.TensorType((10,), "float32"))
            new_mod = relay.Module({relay.GlobalVar("abs"): relay.Function([x], relay.abs(x))})
            new_mod.update(mod)
            return new_mod

        assert isinstance(transform, relay.transform.ModulePass)
        assert transform.info == PassInfo("transform", 2)
        assert list(transform(relay.Module())) == ["abs"]
        assert list(transform(log_function())) == ["abs", "main"]

    def test_a_class_becomes_a_factory_of_function_passes(self) -> None:
        @relay.transform.function_pass(opt_level=1)
        class TestReplaceFunc:
            def __init__(self, new_func: Function) -> None:
                self.new_func = new_func

            def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
                return self.new_func

        x = relay.var("x", shape=(10, 20))
        fpass = TestReplaceFunc(relay.Function([x], x))
        assert isinstance(fpass, FunctionPass)
        assert fpass.info == PassInfo("TestReplaceFunc", 1)
        assert fpass(log_function())["main"] is fpass.new_func

    def test_mistakes_of_the_author(self) -> None:
        with pytest.raises(ValueError, match="opt_level"):
            module_pass(lambda mod, ctx: mod)
        with pytest.raises(TypeError, match="'required' must be a list or tuple"):
            module_pass(opt_level=0, required="InferType")
        with pytest.raises(TypeError, match="no method 'transform_function'"):
            function_pass(opt_level=0)(type("Empty", (), {}))
        nothing = module_pass(lambda mod, ctx: None, opt_level=0, name="Nothing")
        with pytest.raises(InternalError, match="pass 'Nothing' returned a value of type 'NoneType'"):
            nothing(IRModule())

    def test_function_passes_leave_what_is_not_theirs(self) -> None:
        @function_pass(opt_level=0)
        def erase(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            return relay.Function([], relay.const(0))

        mod = log_function()
        kept = {name: mod["main"].with_attr(name, 1) for name in ("SkipOptimization", "Compiler", "Extern")}
        result = erase(IRModule({**kept, "main": mod["main"]}))
        assert [name for name in result if not result[name].params] == ["main"]

    def test_what_nothing_changes_stays_the_same_object(self) -> None:
        keep = function_pass(lambda func, mod, ctx: func, opt_level=0, name="Keep")
        mod = log_function()
        assert keep(mod) is mod


class TestContext:
    def test_the_stack_is_nested_and_per_thread(self) -> None:
        default = PassContext.current()
        assert default.opt_level == 2
        with PassContext(opt_level=3) as outer:
            with relay.build_config(opt_level=0, disabled_pass=["A"]) as inner:
                assert PassContext.current() is inner
            assert PassContext.current() is outer
            seen: list[int] = []
            thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
            thread.start()
            thread.join()
            assert seen == [2]
        assert PassContext.current() is default

    def test_levels_gate_the_children_of_a_sequential_at_any_depth(self) -> None:
        log: list[str] = []
        deep = Sequential([Sequential([tracing_pass("high", log, level=3), tracing_pass("low", log, level=1)])])
        with PassContext(opt_level=2):
            deep(IRModule())
        with PassContext(opt_level=0, required_pass=["high"]):
            deep(IRModule())
        assert log == ["low", "high"]

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

    def test_config_is_checked(self) -> None:
        register_config_key("relay.FuseOps.max_depth", int, 256, "how deep")
        assert PassContext().get_config("relay.FuseOps.max_depth") == 256
        assert PassContext(config={"relay.FuseOps.max_depth": 3}).get_config("relay.FuseOps.max_depth") == 3
        with pytest.raises(UserError, match=r"unknown config key 'depth'; the keys are relay\.FuseOps\.max_depth,"):
            PassContext(config={"depth": 3})
        with pytest.raises(UserError, match="got a str, expected a int"):
            PassContext(config={"relay.FuseOps.max_depth": "3"})
        assert list(PassContext.list_configs()) == ["relay.FuseOps.max_depth", "relaybuild.precise"]

    def test_reported_errors_end_the_pass_together(self) -> None:
        @module_pass(opt_level=0, name="Check")
        def check(mod: IRModule, ctx: PassContext) -> IRModule:
            ctx.error_reporter.report("too large", where="a.relay:1:2")
            ctx.error_reporter.report("too small")
            return mod

        with pytest.raises(UserError) as caught:
            check(IRModule())
        assert str(caught.value) == "2 errors:\n  a.relay:1:2: too large\n  too small\n  note: while running Check"


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

    def test_disabling_one_that_is_required_names_both(self) -> None:
        tracing_pass("a", [])
        needs = tracing_pass("b", [], required=("a",))
        with (
            PassContext(disabled_pass=["a"]),
            pytest.raises(UserError, match="pass 'b' requires 'a', which is disabled"),
        ):
            needs(IRModule())

    def test_a_cycle_is_an_error(self) -> None:
        tracing_pass("a", [], required=("b",))
        tracing_pass("b", [], required=("a",))
        with pytest.raises(UserError, match="cycle: a -> b -> a"):
            required_order(PassInfo("a", 0, ("b",)))

    def test_a_long_chain_is_no_recursion(self) -> None:
        for index in range(3000):
            register_pass(lambda i=index: tracing_pass(f"p{i}", [], required=(f"p{i - 1}",) if i else ()), f"p{index}")
        assert len(required_order(PassInfo("last", 0, ("p2999",)))) == 3000


class TestNames:
    def test_spellings_and_options(self) -> None:
        assert get_pass("FoldConstant") == get_pass("fold-constant", fold_weights=True)
        assert repr(get_pass("FoldConstant")) == "Run Function pass: FoldConstant at the optimization level 2"
        with pytest.raises(UserError, match="unknown pass 'FoldConstants'; the nearest are FoldConstant"):
            get_pass("FoldConstants")
        with pytest.raises(UserError, match="its options are fold_weights"):
            get_pass("FoldConstant", deep=True)

    def test_own_names_cannot_be_taken(self) -> None:
        with pytest.raises(UserError, match="'InferType' is a pass of relaybuild"):
            register_pass(lambda: tracing_pass("InferType", []))

    def test_every_pass_has_its_files_name(self) -> None:
        for name, factory in infra.builtin_passes().items():
            module: Any = factory.__module__
            if name not in ("PrintIR", "BackwardFoldScaleAxis"):
                assert module.rsplit(".", 1)[1].replace("_", "") == name.lower()


class TestInstruments:
    def test_the_order_of_hooks(self) -> None:
        log: list[str] = []

        @pass_instrument
        class Noting:
            def __init__(self, name: str) -> None:
                self.name = name

            def enter_pass_ctx(self) -> None:
                log.append(f"enter {self.name}")

            def exit_pass_ctx(self) -> None:
                log.append(f"exit {self.name}")

            def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
                log.append(f"before {info.name} {self.name}")

            def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
                log.append(f"after {info.name} {self.name}")

        with PassContext(instruments=[Noting("1"), Noting("2")]):
            tracing_pass("p", log)(IRModule())
        assert log == [
            "enter 1", "enter 2", "before p 1", "before p 2", "p", "after p 1", "after p 2", "exit 1", "exit 2",
        ]  # fmt: skip

    def test_every_instrument_is_asked_and_any_may_refuse(self) -> None:
        asked: list[str] = []

        class Refusing(PassInstrument):
            def __init__(self, name: str, answer: bool) -> None:
                self.name, self.answer = name, answer

            def should_run(self, mod: IRModule, info: PassInfo) -> bool:
                asked.append(self.name)
                return self.answer

        log: list[str] = []
        both = [Refusing("no", False), Refusing("yes", True)]
        with PassContext(instruments=both):
            tracing_pass("p", log)(IRModule())
        assert asked == ["no", "yes"]
        assert log == []
        with PassContext(instruments=both, required_pass=["p"]):
            tracing_pass("p", log)(IRModule())
        assert log == ["p"]

    def test_one_that_fails_to_enter(self) -> None:
        log: list[str] = []

        class Failing(PassInstrument):
            def enter_pass_ctx(self) -> None:
                raise RuntimeError("no")

        class Good(PassInstrument):
            def exit_pass_ctx(self) -> None:
                log.append("exit")

        context = PassContext(instruments=[Good(), Failing(), Good()])
        before = PassContext.current()
        with pytest.raises(RuntimeError), context:
            pass
        assert log == ["exit"]
        assert context.instruments == []
        assert PassContext.current() is before

    def test_timing_outlives_the_context(self) -> None:
        ticks = iter(range(100))
        timing = PassTimingInstrument(clock=lambda: float(next(ticks)))
        with PassContext(instruments=[timing]):
            Sequential([tracing_pass("a", []), tracing_pass("b", [], changes=True)], name="all")(IRModule())
        assert timing.render() == (
            "   5000.00 ms 100%  all\n   1000.00 ms  20%    a (unchanged)\n   1000.00 ms  20%    b\n"
        )

    def test_timing_survives_a_pass_that_fails(self) -> None:
        timing = PassTimingInstrument(clock=lambda: 0.0)

        @module_pass(opt_level=0, name="Fails")
        def fails(mod: IRModule, ctx: PassContext) -> IRModule:
            raise UserError("no")

        with PassContext(instruments=[timing]):
            with pytest.raises(UserError):
                Sequential([fails])(IRModule())
            tracing_pass("next", [])(IRModule())
        walked = [(depth, each.name) for top in timing.timings for depth, each in top.walk()]
        assert walked == [(0, "sequential"), (1, "Fails"), (0, "next")]

    def test_printing(self) -> None:
        stream = io.StringIO()
        Sequential([PrintIR(header="here", stream=stream)])(log_function())
        with PassContext(instruments=[PrintAfter(["a"], stream)]):
            Sequential([tracing_pass("a", []), tracing_pass("b", [])])(log_function())
        assert stream.getvalue().count("log(%x)") == 2
        assert stream.getvalue().startswith("// PrintIR here\n#[version")

    def test_override(self) -> None:
        log: list[str] = []

        class Noting(PassInstrument):
            def enter_pass_ctx(self) -> None:
                log.append("enter")

            def exit_pass_ctx(self) -> None:
                log.append("exit")

        with PassContext(instruments=[Noting()]) as context:
            context.override_instruments([Noting()])
            context.override_instruments(None)
        assert log == ["enter", "exit", "enter", "exit"]


def test_sequential_says_what_it_runs() -> None:
    found = repr(Sequential([get_pass("InferType"), get_pass("FoldConstant")]))
    assert found == (
        "Run Sequential pass: sequential at the optimization level 0. "
        "The passes will be executed are: [InferType FoldConstant]"
    )


def test_the_pipeline_of_a_level() -> None:
    ran = []
    for level in (0, 2, 3):
        timing = PassTimingInstrument()
        with PassContext(opt_level=level, instruments=[timing]):
            default_pipeline()(log_function())
        ran.append([child.name for child in timing.timings[0].children])
    assert "FoldConstant" not in ran[0]
    assert "FoldScaleAxis" not in ran[1]
    assert ran[1].count("FoldConstant") == ran[2].count("FoldConstant") == 2
    assert ran[2][0] == "InferType"
    assert "FoldScaleAxis" in ran[2]


def test_a_users_pipeline() -> None:
    shape = (1, 2, 3)
    c = relay.const([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], "float32")
    x = relay.var("x", relay.TensorType(shape, "float32"))
    y = relay.multiply(relay.add(c, c), relay.const(2, "float32"))
    y = relay.add(x, y)
    func = relay.Function([x], relay.add(relay.add(y, c), relay.add(y, c)))
    sequence = relay.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.FoldConstant(),
            relay.transform.EliminateCommonSubexpr(),
        ]
    )
    with relay.build_config(opt_level=3):
        result = sequence(relay.Module({"main": func}))
    z = relay.add(relay.add(x, relay.const(4 * c.data)), c)
    assert structural_equal(result["main"], relay.Function([x], relay.add(z, z)))


def test_abstract_passes_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        ModulePass()  # type: ignore[abstract]
