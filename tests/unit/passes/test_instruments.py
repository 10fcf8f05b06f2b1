"""What instruments are told and in which order, and the ones for every day."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from tracing import Recorder, log_function, tracing_pass

from relaybuild import relay
from relaybuild.errors import InternalError, UserError
from relaybuild.ir.expr import Function, Var
from relaybuild.ir.module import IRModule
from relaybuild.passes.infra import (
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    get_pass,
    module_pass,
    pass_instrument,
)
from relaybuild.passes.instruments import (
    ImmutabilityCheck,
    PassTimingInstrument,
    PrintAfter,
    PrintChanged,
    VerifyEach,
)


def failing_pass(log: list[str]) -> Pass:
    @module_pass(opt_level=0, name="fails")
    def fails(mod: IRModule, ctx: PassContext) -> IRModule:
        log.append("fails")
        raise UserError("no")

    made: Pass = fails
    return made


class TestHooks:
    def test_a_class_with_some_hooks_becomes_an_instrument(self) -> None:
        """PI02: by decoration and by derivation; told when the context is entered, before, after, and left."""
        log: list[str] = []

        @pass_instrument
        class Noting:
            def __init__(self, name: str) -> None:
                self.name = name

            def enter_pass_ctx(self) -> None:
                log.append(f"enter {self.name}")

            def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
                log.append(f"after {info.name} {self.name}")

        assert issubclass(Noting, PassInstrument)
        with PassContext(instruments=[Noting("1"), Recorder("2", log)]):
            tracing_pass("p", log)(IRModule())
        assert log == ["enter 1", "enter 2", "should p 2", "before p 2", "p", "after p 1", "after p 2", "exit 2"]

    def test_an_instrument_may_refuse_a_pass(self) -> None:
        """PI03: a pass that is refused does not run, and nobody is told before or after."""
        log: list[str] = []
        mod = IRModule()
        with PassContext(instruments=[Recorder("1", log, should=False)]):
            assert tracing_pass("p", log, changes=True)(mod) is mod
        assert log == ["enter 1", "should p 1", "exit 1"]

    @pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True), (False, False)])
    def test_all_must_agree(self, first: bool, second: bool) -> None:
        """PI04: every instrument is asked, and a pass runs only where all agree, or where it is required."""
        log: list[str] = []
        both = [Recorder("1", log, should=first), Recorder("2", log, should=second)]
        with PassContext(instruments=both):
            tracing_pass("p", log)(IRModule())
        assert log[2:4] == ["should p 1", "should p 2"]
        assert ("p" in log) is (first and second)
        log.clear()
        with PassContext(instruments=both, required_pass=["p"]):
            tracing_pass("p", log)(IRModule())
        assert "p" in log
        assert "should p 1" not in log

    def test_before_and_after_are_told_as_often(self) -> None:
        """PI05: over the default pipeline; nothing more is told after the context is left."""
        log: list[str] = []
        with PassContext(opt_level=3, instruments=[Recorder("1", log)]):
            relay.transform.Sequential([get_pass("InferType"), get_pass("FoldScaleAxis")])(log_function())
        counts = [sum(entry.startswith(hook) for entry in log) for hook in ("before", "after")]
        assert counts[0] == counts[1] >= 4
        log.clear()
        get_pass("InferType")(log_function())
        assert log == []

    def test_the_order_over_two_passes(self) -> None:
        """PI15: asked in order, told before in order, told after in order, pass by pass."""
        log: list[str] = []
        with PassContext(instruments=[Recorder("1", log), Recorder("2", log)]):
            for name in ("a", "b"):
                tracing_pass(name, log)(IRModule())
        one = ["should {} 1", "should {} 2", "before {} 1", "before {} 2", "{}", "after {} 1", "after {} 2"]
        both = [entry.format(name) for name in ("a", "b") for entry in one]
        assert log == ["enter 1", "enter 2", *both, "exit 1", "exit 2"]

    def test_required_passes_are_observed_and_not_twice(self) -> None:
        """PM10: told of the sequence, its children and what these require; not of a requirement that still holds."""
        log: list[str] = []
        tracing_pass("types", [])
        sequence = Sequential([tracing_pass(name, [], required=("types",)) for name in ("a", "b")], name="all")
        with PassContext(instruments=[Recorder("1", log)]):
            sequence(IRModule())
        told = [entry.split()[1] for entry in log if entry.startswith("before")]
        assert told == ["all", "types", "a", "b"]


class TestErrors:
    def run(self, log: list[str], *instruments: Recorder, made: Callable[[list[str]], Pass]) -> PassContext:
        context = PassContext(instruments=instruments)
        before = PassContext.current()
        with pytest.raises((RuntimeError, UserError)), context:
            made(log)(IRModule())
        assert PassContext.current() is before
        return context

    def test_entering(self) -> None:
        """PI07: those entered before are left, all are dropped, and the outer context stays."""
        log: list[str] = []
        instruments = [Recorder("1", log), Recorder("2", log, ("enter",)), Recorder("3", log)]
        context = self.run(log, *instruments, made=lambda log: tracing_pass("p", log))
        assert log == ["enter 1", "enter 2", "exit 1"]
        assert context.instruments == []

    def test_entering_by_override(self) -> None:
        """PI08: the same where a context's instruments are replaced."""
        log: list[str] = []
        context = PassContext.current()
        with pytest.raises(RuntimeError, match="enter"):
            context.override_instruments([Recorder("1", log), Recorder("2", log, ("enter",))])
        assert log == ["enter 1", "enter 2", "exit 1"]
        assert context.instruments == []

    def test_leaving(self) -> None:
        """PI09: those after it are not told, all are dropped, and the context is left."""
        log: list[str] = []
        instruments = [Recorder("1", log, ("exit",)), Recorder("2", log)]
        context = self.run(log, *instruments, made=lambda log: tracing_pass("p", log))
        assert log[-1] == "exit 1"
        assert "exit 2" not in log
        assert context.instruments == []

    def test_leaving_by_override(self) -> None:
        """PI10: the same where a context's instruments are replaced."""
        log: list[str] = []
        context = PassContext.current()
        context.override_instruments([Recorder("1", log, ("exit",)), Recorder("2", log)])
        with pytest.raises(RuntimeError, match="exit"):
            context.override_instruments([Recorder("3", log)])
        assert log == ["enter 1", "enter 2", "exit 1"]
        assert context.instruments == []

    def test_in_a_pass(self) -> None:
        """PI11: nobody is told after, all are told that it failed and are left; the error reaches the caller."""
        log: list[str] = []
        self.run(log, Recorder("1", log), Recorder("2", log), made=failing_pass)
        assert log[4:] == [
            "before fails 1",
            "before fails 2",
            "fails",
            "failed fails 1",
            "failed fails 2",
            "exit 1",
            "exit 2",
        ]

    def test_when_told_of_a_failure(self) -> None:
        """The others are told of it all the same."""
        log: list[str] = []
        instruments = [Recorder("1", log, ("failed",)), Recorder("2", log)]
        self.run(log, *instruments, made=failing_pass)
        assert log[7:] == ["failed fails 1", "failed fails 2", "exit 1", "exit 2"]

    def test_when_asked(self) -> None:
        """PI12: those after it are not asked; all are left."""
        log: list[str] = []
        instruments = [Recorder("1", log, ("should",)), Recorder("2", log)]
        self.run(log, *instruments, made=lambda log: tracing_pass("p", log))
        assert log == ["enter 1", "enter 2", "should p 1", "exit 1", "exit 2"]

    def test_when_told_before(self) -> None:
        """PI13: those after it are not told, and the pass does not run; who was told, is told that it failed."""
        log: list[str] = []
        instruments = [Recorder("1", log), Recorder("2", log, ("before",)), Recorder("3", log)]
        self.run(log, *instruments, made=lambda log: tracing_pass("p", log))
        assert log[6:] == ["before p 1", "before p 2", "failed p 1", "exit 1", "exit 2", "exit 3"]

    def test_when_told_after(self) -> None:
        """PI14: those after it are told that the pass failed instead."""
        log: list[str] = []
        instruments = [Recorder("1", log, ("after",)), Recorder("2", log)]
        self.run(log, *instruments, made=lambda log: tracing_pass("p", log))
        assert log[4:] == ["before p 1", "before p 2", "p", "after p 1", "failed p 2", "exit 1", "exit 2"]

    def test_override(self) -> None:
        log: list[str] = []
        with PassContext(instruments=[Recorder("1", log)]) as context:
            context.override_instruments([Recorder("2", log)])
            context.override_instruments(None)
            assert context.instruments == []
        assert log == ["enter 1", "exit 1", "enter 2", "exit 2"]


class TestTiming:
    def timed(self) -> PassTimingInstrument:
        ticks = iter(range(100))
        timing = PassTimingInstrument(clock=lambda: float(next(ticks)))
        with PassContext(instruments=[timing]):
            Sequential([tracing_pass("a", []), tracing_pass("b", [], changes=True)], name="all")(IRModule())
        return timing

    def test_the_table_outlives_the_context(self) -> None:
        """PI01: it has the passes' names, also after the instruments are dropped, until it is cleared."""
        timing = self.timed()
        assert timing.render() == (
            "   5000.00 ms 100%  all\n   1000.00 ms  20%    a (unchanged)\n   1000.00 ms  20%    b\n"
        )
        timing.clear()
        assert timing.render() == ""
        assert PassTimingInstrument().render() == ""

    def test_json(self) -> None:
        (whole,) = json.loads(json.dumps(self.timed().to_json()))
        children = whole.pop("children")
        assert whole == {"name": "all", "seconds": 5.0, "self_seconds": 3.0, "changed": True}
        assert [(child["name"], child["seconds"], child["changed"], child["children"]) for child in children] == [
            ("a", 1.0, False, []),
            ("b", 1.0, True, []),
        ]

    def test_a_pass_that_fails_is_timed_as_well(self) -> None:
        timing = PassTimingInstrument(clock=lambda: 0.0)
        with PassContext(instruments=[timing]):
            with pytest.raises(UserError):
                Sequential([failing_pass([])])(IRModule())
            tracing_pass("next", [])(IRModule())
        walked = [(depth, each.name) for top in timing.timings for depth, each in top.walk()]
        assert walked == [(0, "sequential"), (1, "fails"), (0, "next")]


def identities() -> IRModule:
    x = relay.var("x", shape=(2, 3))
    return IRModule({"main": relay.Function([x], relay.abs(relay.reshape(x, (2, 3))))})


class TestPrinting:
    def test_after_the_named_passes_or_all(self) -> None:
        for names, wanted in ((["a"], ["a"]), ([], ["a", "b", "sequential"])):
            stream = io.StringIO()
            with PassContext(instruments=[PrintAfter(names, stream)]):
                Sequential([tracing_pass("a", []), tracing_pass("b", [])])(log_function())
            lines = stream.getvalue().splitlines()
            assert [line.removeprefix("// after ") for line in lines if line.startswith("//")] == wanted
            assert stream.getvalue().count("log(%x)") == len(wanted)

    def test_what_changed_and_nothing_else(self) -> None:
        stream = io.StringIO()
        with PassContext(opt_level=3, instruments=[PrintChanged(stream, context=0)]):
            Sequential([get_pass("InferType"), get_pass("SimplifyExpr"), get_pass("FoldConstant")])(identities())
        assert stream.getvalue() == (
            "--- before SimplifyExpr\n"
            "+++ after SimplifyExpr\n"
            "@@ -3,2 +3 @@\n"
            "-  %0 = reshape(%x, newshape=[2, 3]);\n"
            "-  abs(%0)\n"
            "+  abs(%x)\n"
        )

    def test_colours(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        coloured, plain = Terminal(), Terminal()
        for stream, colour in ((coloured, None), (plain, False)):
            with PassContext(instruments=[PrintChanged(stream, colour, context=0)]):
                get_pass("SimplifyExpr")(identities())
        assert "\x1b[31m-  abs(%0)\x1b[0m\n\x1b[32m+  abs(%x)\x1b[0m\n" in coloured.getvalue()
        assert "\x1b" not in plain.getvalue()

    def test_a_pass_that_fails_is_skipped(self) -> None:
        stream = io.StringIO()
        with PassContext(instruments=[PrintChanged(stream)]):
            with pytest.raises(UserError):
                Sequential([failing_pass([])])(log_function())
            get_pass("SimplifyExpr")(identities())
        assert stream.getvalue().count("--- before") == 1


class TestChecks:
    def test_the_pass_that_breaks_the_module_is_named(self) -> None:
        @module_pass(opt_level=0, name="Break")
        def unbind(mod: IRModule, ctx: PassContext) -> IRModule:
            return mod.with_function("main", Function([], Var("y", relay.TensorType((), "float32"))))

        with PassContext(instruments=[VerifyEach()]), pytest.raises(InternalError) as caught:
            Sequential([tracing_pass("fine", []), unbind, tracing_pass("later", [])])(log_function())
        assert "'%y' is not bound" in caught.value.message
        assert caught.value.notes == ["found after Break", "while running Break", "while running sequential"]

    def test_a_module_that_is_broken_from_the_start(self) -> None:
        broken = IRModule({"main": Function([], Var("y", relay.TensorType((), "float32")))})
        with PassContext(instruments=[VerifyEach()]), pytest.raises(InternalError) as caught:
            tracing_pass("p", [])(broken)
        assert caught.value.notes[0] == "found before p"

    def test_types_can_be_asked_for(self) -> None:
        x = Var("x")
        untyped = IRModule({"main": Function([x], x)})
        with PassContext(instruments=[VerifyEach()]):
            tracing_pass("p", [])(untyped)
        with PassContext(instruments=[VerifyEach("typed")]), pytest.raises(InternalError, match="has no type"):
            tracing_pass("p", [])(untyped)

    def test_a_pass_that_changes_its_input_is_named(self) -> None:
        @module_pass(opt_level=0, name="Mutate")
        def mutate(mod: relay.Module, ctx: PassContext) -> IRModule:
            return mod.update({"more": mod["main"]})

        with PassContext(instruments=[ImmutabilityCheck()]):
            tracing_pass("fine", [], changes=True)(log_function())
            with pytest.raises(InternalError, match="pass 'Mutate' changed the module it was given"):
                mutate(relay.Module(log_function().functions))


@pytest.mark.parametrize("make", [PassTimingInstrument, lambda: PrintChanged(io.StringIO()), ImmutabilityCheck])
def test_a_pass_may_enter_a_context_with_the_same_instruments(make: Callable[[], PassInstrument]) -> None:
    instrument = make()

    @module_pass(opt_level=0, name="outer")
    def outer(mod: IRModule, ctx: PassContext) -> IRModule:
        with PassContext(instruments=ctx.instruments):
            return tracing_pass("inner", [], changes=True)(mod)

    with PassContext(instruments=[instrument]):
        outer(log_function())
    if isinstance(instrument, PassTimingInstrument):
        (timing,) = instrument.timings
        assert [(depth, each.name) for depth, each in timing.walk()] == [(0, "outer"), (1, "inner")]
