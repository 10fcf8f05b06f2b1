"""Passes as steps: what is in their keys, which run again after a change, and what they give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from property.random_programs import modules

from relaybuild.build.cache.journal import MissReason
from relaybuild.compilation.passes import PassRunner
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.passes.dead_code_elimination import DeadCodeElimination
from relaybuild.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.infer_type import InferType
from relaybuild.passes.infra import FunctionPass, ModulePass, Pass, PassContext, PassInfo, Sequential, register_pass
from relaybuild.passes.legalize import Legalize
from relaybuild.passes.op_rewrites import scoped_op_rewrite
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.passes.simplify_expr import SimplifyExpr

from .stepping import Site

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "cache")


def typed(text: str) -> IRModule:
    return infer_types(parse(text))


PLAIN = "def @main(%x: Tensor[(2, 3), float32]) { add(nn.relu(%x), multiply(2f, 3f)) }"


def run(
    site: Site, module: IRModule, passes: Sequence[Pass], context: PassContext | None = None, **options: Any
) -> IRModule:
    """The module behind passes, which is that of the passes alone."""
    used = context or PassContext(opt_level=3)
    plain = PassContext(
        used.opt_level, used.required_pass, used.disabled_pass, config=used.config, fallback_device=used.fallback_device
    )
    wanted = infer_types(Sequential(passes, **options)(module, plain))
    with site.run(module) as current:
        found = PassRunner(current.actions, used, current.known).run(Sequential(passes, **options), current.program)
        assert print_module(infer_types(found.module)) == print_module(wanted)
    assert list(map(str, used.error_reporter.warnings)) == list(map(str, plain.error_reporter.warnings))
    return found.module


def passes() -> list[Pass]:
    return [InferType(), FoldConstant(fold_weights=False), SimplifyExpr(), DeadCodeElimination()]


ALL = ["0-InferType", "1-FoldConstant", "2-SimplifyExpr", "3-DeadCodeElimination"]


def test_passes_run_once(site: Site) -> None:
    run(site, typed(PLAIN), passes())
    assert site.executed("pass") == ALL
    run(site, typed(PLAIN), passes())
    assert site.executed("pass") == []


def test_a_change_that_a_pass_takes_away_stops_there(site: Site) -> None:
    run(site, typed(PLAIN), passes())
    run(site, typed(PLAIN.replace("multiply(2f, 3f)", "multiply(3f, 2f)")), passes())
    assert site.executed("pass") == ALL[:2]


def test_what_is_found_is_the_very_program_where_nothing_changed(site: Site) -> None:
    module = typed("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }")
    for _ in range(2):
        with site.run(module) as current:
            runner = PassRunner(current.actions, PassContext(opt_level=3), current.known)
            assert runner.run(Sequential(passes()), current.program) is current.program
    assert site.executed("pass") == []


@pytest.mark.parametrize(
    ("first", "second", "component"),
    [
        (PassContext(opt_level=3), PassContext(opt_level=2), "option.opt_level"),
        (PassContext(3), PassContext(3, fallback_device="gpu"), "option.fallback_device"),
        (
            PassContext(3, config={"relaybuild.precise": False}),
            PassContext(3, config={"relaybuild.precise": True}),
            "option.config.relaybuild.precise",
        ),
    ],
    ids=["level", "device", "config"],
)
def test_what_a_pass_sees_of_the_context_counts(
    site: Site, first: PassContext, second: PassContext, component: str
) -> None:
    run(site, typed(PLAIN), passes(), first)
    run(site, typed(PLAIN), passes(), second)
    assert site.executed("pass") == ALL
    assert component in site.changes("pass")
    run(site, typed(PLAIN), passes(), first)
    assert site.executed("pass") == []


def test_the_options_of_a_pass_count(site: Site) -> None:
    run(site, typed(PLAIN), [FoldConstant(fold_weights=False)])
    run(site, typed(PLAIN), [FoldConstant(fold_weights=True)])
    assert site.changes("pass") == {"option/pass"}


def test_passes_that_do_not_run_are_no_steps(site: Site) -> None:
    run(site, typed(PLAIN), passes(), PassContext(opt_level=0))
    assert "1-FoldConstant" not in site.executed("pass")
    run(site, typed(PLAIN), passes(), PassContext(3, disabled_pass=["SimplifyExpr"]))
    assert not [slot for slot in site.executed("pass") if "SimplifyExpr" in slot]
    run(site, typed(PLAIN), passes(), disabled=["SimplifyExpr"])
    assert not [slot for slot in site.executed("pass") if "SimplifyExpr" in slot]
    run(site, typed(PLAIN), passes(), PassContext(3, disabled_pass=["sequential"]))
    assert site.executed("pass") == []


def weighted(*numbers: float) -> IRModule:
    """A sum of weights and of the input."""
    x = var("x", (2, 3), "float32")
    total: Expr = x
    for number in numbers:
        weight = call_op("negative", [const(np.full((2, 3), number, "float32"))])
        total = call_op("add", [total, weight])
    return infer_types(IRModule({"main": Function([x], total)}))


def test_new_weights_repeat_no_pass_that_does_not_ask(site: Site) -> None:
    run(site, weighted(1, 2), [FoldConstant(fold_weights=False), SimplifyExpr()])
    run(site, weighted(3, 4), [FoldConstant(fold_weights=False), SimplifyExpr()])
    assert site.executed("pass") == []


def test_weights_that_a_pass_reads_are_in_its_key_and_what_it_made_of_them_in_the_next(site: Site) -> None:
    for numbers, executed in (((1, 2), 2), ((1, 2), 0), ((3, 2), 2), ((1, 2), 0), ((3, 2), 0), ((3, 3), 2)):
        run(site, weighted(*numbers), [FoldConstant(), EliminateCommonSubexpr()])
        assert len(site.executed("pass")) == executed, numbers
    # -3 and -3 are told apart from -3 and -2
    assert "in/module" in site.changes("pass")


class Deaf(ModulePass):
    """Changes what it makes by a number."""

    info: ClassVar[PassInfo] = PassInfo("Deaf", 0)

    def __init__(self, number: float) -> None:
        self.number = number

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        main = mod["main"]
        return IRModule({"main": Function(main.params, call_op("add", [main.body, const(self.number, "float32")]))})


def test_a_pass_of_others_counts_by_its_content(site: Site) -> None:
    for number, executed in ((1, 1), (1, 0), (2, 1), (1, 0)):
        run(site, typed(PLAIN), [Deaf(number)])
        assert len(site.executed("pass")) == executed
    run(site, typed(PLAIN), [Deaf(3)])
    assert site.changes("pass") == {"plugin/pass"}


def test_a_pass_without_content_is_not_looked_up(site: Site) -> None:
    class Opaque(Deaf):
        def __init__(self) -> None:
            super().__init__(1.0)
            self.lock = __import__("threading").Lock()

    for _ in range(2):
        run(site, typed(PLAIN), [Opaque(), SimplifyExpr()])
        (looked,) = [event for event in site.journal.looked if event.name == "Deaf"]
        assert looked.reason is MissReason.BYPASSED
        assert looked.detail.startswith("plugin-without-id: Deaf: ")
    assert site.executed("pass") == ["0-Deaf"]


def test_what_a_pass_requires_counts(site: Site) -> None:
    class Needy(Deaf):
        info: ClassVar[PassInfo] = PassInfo("Needy", 0, ("Needed",))

    def needed(number: float) -> Pass:
        class Needed(Deaf):
            info: ClassVar[PassInfo] = PassInfo("Needed", 0)

        return Needed(number)

    for number, executed in ((1.0, 1), (1.0, 0), (5.0, 1), (1.0, 0)):
        register_pass(needed(number))
        run(site, typed(PLAIN), [Needy(2)])
        assert len(site.executed("pass")) == executed


@dataclass(frozen=True, repr=False)
class Doubting(FunctionPass):
    """Warns of every call."""

    info: ClassVar[PassInfo] = PassInfo("Doubting", 0)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        ctx.error_reporter.warn("doubtful", func.body)
        return func


def test_warnings_are_given_again(site: Site) -> None:
    for text in (PLAIN, THREE):
        for _ in range(2):
            context = PassContext(opt_level=3)
            context.error_reporter.warn("before")
            module = typed(text)
            with site.run(module) as current:
                PassRunner(current.actions, context, current.known).run(
                    Sequential([Doubting(), Doubting()]), current.program
                )
            said = [str(warning) for warning in context.error_reporter.warnings]
            assert said[0] == "before"
            assert len(said) == 1 + 2 * len(module.functions)
            assert all("doubtful" in each for each in said[1:])
        assert site.executed("pass") == []


def test_a_pass_that_fails_is_not_kept(site: Site) -> None:
    class Failing(Deaf):
        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            raise UserError("it is broken")

    for _ in range(2):
        with (
            pytest.raises(UserError, match="it is broken"),
            site.run(typed(PLAIN)) as current,
        ):
            PassRunner(current.actions, PassContext(3), current.known).run(Sequential([Failing(1)]), current.program)
    assert not site.journal.executed


def test_rewrites_that_are_registered_count_and_are_named(site: Site) -> None:
    def rule(call: Call) -> Expr | None:
        return call_op("maximum", [call.args[0], const(0.0, "float32")])

    def other(call: Call) -> Expr | None:
        return call_op("maximum", [call.args[0], const(1.0, "float32")])

    run(site, typed(PLAIN), [Legalize()])
    for rewrite, executed in ((rule, 1), (rule, 0), (other, 1), (rule, 0)):
        with scoped_op_rewrite("legalize", "nn.relu", rewrite):
            run(site, typed(PLAIN), [Legalize()])
        assert len(site.executed("pass")) == executed
    run(site, typed(PLAIN), [Legalize()])
    assert site.executed("pass") == []
    with scoped_op_rewrite("legalize", "nn.relu", lambda call: call_op("abs", [call.args[0]])):
        run(site, typed(PLAIN), [Legalize()])
    assert site.changes("pass") == {"plugin/scoped-rewrites"}


THREE = """
def @main(%x: Tensor[(2, 3), float32]) { add(@left(%x), @right(%x)) }
def @left(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { add(nn.relu(%x), multiply(2f, 3f)) }
def @right(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { add(tanh(%x), multiply(4f, 5f)) }
"""


def test_of_functions_those_run_again_that_changed_and_those_that_reach_them(site: Site) -> None:
    only = [FoldConstant(fold_weights=False)]
    run(site, typed(THREE), only)
    # the module's is first to be looked up, and last to be done
    assert sorted(site.executed("pass")) == [
        "0-FoldConstant",
        "0-FoldConstant/left",
        "0-FoldConstant/main",
        "0-FoldConstant/right",
    ]
    run(site, typed(THREE.replace("2f", "7f")), only)
    assert sorted(site.executed("pass")) == ["0-FoldConstant", "0-FoldConstant/left", "0-FoldConstant/main"]
    assert site.changes("pass") == {"in/module", "in/function"}
    run(site, typed(THREE.replace("tanh", "sigmoid")), only)
    assert sorted(site.executed("pass")) == ["0-FoldConstant", "0-FoldConstant/main", "0-FoldConstant/right"]


def two_weighted(first: float, second: float, head: str = "add") -> IRModule:
    """Two functions with a weight each."""
    weights = [np.full((2, 3), number, "float32") for number in (first, second)]
    text = f"""#[version = "0.0.5"]
    def @main(%x: Tensor[(2, 3), float32]) {{ {head}(@left(%x), @right(%x)) }}
    def @left(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{
      add(%x, negative(meta[relay.Constant][0]))
    }}
    def @right(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{
      add(%x, negative(meta[relay.Constant][1]))
    }}
#[metadata]
{{"relay.Constant": [{{"dtype": "float32", "shape": [2, 3]}}, {{"dtype": "float32", "shape": [2, 3]}}]}}
"""
    return infer_types(parse(text, weights=weights))


def test_weights_that_a_function_read_when_it_was_transformed_count_for_the_module(site: Site) -> None:
    run(site, two_weighted(1, 2), [FoldConstant()])
    # both functions are found, and main alone is transformed
    run(site, two_weighted(1, 2, "subtract"), [FoldConstant()])
    assert sorted(site.executed("pass")) == ["0-FoldConstant", "0-FoldConstant/main"]
    run(site, two_weighted(1, 5, "subtract"), [FoldConstant()])
    assert "0-FoldConstant" in site.executed("pass")
    assert "0-FoldConstant/left" not in site.executed("pass")


def test_functions_of_other_compilers_are_left_alone(site: Site) -> None:
    text = THREE.replace(
        "def @left(%x: Tensor[(2, 3), float32])", "def @left(%x: Tensor[(2, 3), float32], Compiler='a')"
    )
    module = typed(text.replace("'", '"'))
    run(site, module, [FoldConstant(fold_weights=False)])
    assert "0-FoldConstant/left" not in site.executed("pass")


def test_a_disabled_requirement_is_said_for_any_number_of_functions(site: Site) -> None:
    @dataclass(frozen=True, repr=False)
    class Wanting(FunctionPass):
        info: ClassVar[PassInfo] = PassInfo("Wanting", 0, ("SimplifyExpr",))

        def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
            return func

    for text in (PLAIN, THREE):
        run(site, typed(text), [Wanting()])
        for _ in range(2):
            context = PassContext(3, disabled_pass=["SimplifyExpr"])
            with (
                pytest.raises(UserError, match="requires 'SimplifyExpr', which is disabled"),
                site.run(typed(text)) as current,
            ):
                PassRunner(current.actions, context, current.known).run(Sequential([Wanting()]), current.program)


def test_a_sequence_with_requirements_is_one_step_by_all_that_is_in_it(site: Site) -> None:
    def sequence(*inner: Pass) -> list[Pass]:
        return [Sequential(inner, name="inner", required=["InferType"])]

    run(site, typed(PLAIN), sequence(FoldConstant(), SimplifyExpr()))
    assert site.executed("pass") == ["0-inner"]
    run(site, typed(PLAIN), sequence(FoldConstant(), SimplifyExpr()))
    assert site.executed("pass") == []
    run(site, typed(PLAIN), sequence(FoldConstant()))
    assert site.executed("pass") == ["0-inner"]
    run(site, typed(PLAIN), sequence(FoldConstant(), SimplifyExpr()), PassContext(3, disabled_pass=["FoldConstant"]))
    assert site.executed("pass") == ["0-inner"]
    assert "option.disabled" in site.changes("pass")
    run(site, typed(PLAIN), sequence(SimplifyExpr(), Deaf(1)))
    run(site, typed(PLAIN), sequence(SimplifyExpr(), Deaf(2)))
    assert site.executed("pass") == ["0-inner"]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(modules())
def test_random_programs_through_the_pipeline(site: Site, module: IRModule) -> None:
    module = infer_types(module)
    run(site, module, [default_pipeline()])
    run(site, module, [default_pipeline()])
    assert site.executed("pass") == []


def test_a_pipeline_that_is_watched_is_seen_as_it_is(site: Site) -> None:
    module = typed(PLAIN)
    for _ in range(2):
        with site.run(module) as current:
            runner = PassRunner(current.actions, PassContext(3), current.known)
            found = runner.run_observed(Sequential(passes(), name="all"), current.program, "somebody watches")
            assert print_module(found.module) == print_module(Sequential(passes())(module, PassContext(3)))
        (looked,) = site.journal.looked
        assert (looked.reason, looked.detail) == (MissReason.BYPASSED, "somebody watches")
        assert site.executed("pass") == ["all"]


def test_what_was_found_computes_with_the_new_weights(site: Site) -> None:
    x = np.ones((2, 3), "float32")
    for numbers in ((1.0, 2.0), (3.0, 5.0)):
        found = run(site, weighted(*numbers), [FoldConstant(fold_weights=False), SimplifyExpr()])
        np.testing.assert_array_equal(interpret(found["main"], x), x - sum(numbers))
    assert site.executed("pass") == []
