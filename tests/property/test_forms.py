"""Passes over forms of programs keep the meaning where references, closures, matches and recursion are at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.ir.adt import Clause, Constructor, Match, PatternConstructor, PatternVar, PatternWildcard, TypeData
from relaybuild.ir.expr import (
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.structural import structural_digest
from relaybuild.ir.types import GlobalTypeVar, TypeCall, scalar_type
from relaybuild.ir.verifier import verify_module
from relaybuild.passes.infra import Pass, PassContext, Sequential, get_pass

INT = scalar_type("int32")
NUMBERS = GlobalTypeVar("Numbers")
CONS = Constructor("Cons", [INT, TypeCall(NUMBERS, ())], NUMBERS)
NIL = Constructor("Nil", [], NUMBERS)
DEFINITION = TypeData(NUMBERS, [], [CONS, NIL])


@dataclass(frozen=True)
class Names:
    """What may be used at some place of a program: numbers, references to numbers, functions of a number."""

    numbers: tuple[Expr, ...] = ()
    refs: tuple[Expr, ...] = ()
    functions: tuple[Expr, ...] = ()

    def with_number(self, each: Expr) -> Names:
        return Names((*self.numbers, each), self.refs, self.functions)

    def with_ref(self, each: Expr) -> Names:
        return Names(self.numbers, (*self.refs, each), self.functions)

    def with_function(self, each: Expr) -> Names:
        return Names(self.numbers, self.refs, (*self.functions, each))


@dataclass
class Programs:
    """Grows a program whose effects all stand in lets."""

    draw: Callable[[Any], Any]
    count: int = field(default=0)

    def var(self, name: str, annotation: Any = None) -> Var:
        self.count += 1
        return Var(f"{name}{self.count}", annotation)

    def body(self, names: Names, steps: int, depth: int) -> Expr:
        """A number after so many lets and dataflow nodes, of which the last few and every reference count."""
        lets: list[tuple[Var, Expr]] = []
        for _ in range(steps):
            names = self.draw(st.sampled_from(self.steps(names, depth)))(names, lets, depth)
        reads = [self.bind(lets, "v", RefRead(ref)) for ref in names.refs]
        result = self.number(names)
        for each in (*names.numbers[-2:], *reads):
            result = call_op("add", [call_op("multiply", [result, const(3, "int32")]), each])
        for variable, value in reversed(lets):
            result = Let(variable, value, result)
        return result

    def steps(self, names: Names, depth: int) -> list[Any]:
        found: list[Any] = [self.dataflow, self.dataflow, self.bound, self.new_ref]
        found += [self.read, self.write, self.write, self.write] if names.refs else []
        found += [self.call, self.call] if names.functions else []
        if depth < 3:
            found += [self.branch, self.closure, self.loop, self.block, self.match, self.pair]
        return found

    def number(self, names: Names) -> Expr:
        picks = [*names.numbers, const(self.draw(st.integers(-3, 3)), "int32")]
        left: Expr = self.draw(st.sampled_from(picks))
        if self.draw(st.booleans()):
            return left
        operator = self.draw(st.sampled_from(["add", "subtract", "multiply", "maximum"]))
        return call_op(operator, [left, self.draw(st.sampled_from(picks))])

    def bind(self, lets: list[tuple[Var, Expr]], name: str, value: Expr) -> Var:
        variable = self.var(name)
        lets.append((variable, value))
        return variable

    def inner(self, names: Names, depth: int) -> Expr:
        return self.body(names, self.draw(st.integers(0, 3)), depth + 1)

    def dataflow(self, names: Names, lets: Any, depth: int) -> Names:
        return names.with_number(self.number(names))

    def bound(self, names: Names, lets: Any, depth: int) -> Names:
        return names.with_number(self.bind(lets, "v", self.number(names)))

    def new_ref(self, names: Names, lets: Any, depth: int) -> Names:
        return names.with_ref(self.bind(lets, "r", RefCreate(self.number(names))))

    def read(self, names: Names, lets: Any, depth: int) -> Names:
        return names.with_number(self.bind(lets, "v", RefRead(self.draw(st.sampled_from(names.refs)))))

    def write(self, names: Names, lets: Any, depth: int) -> Names:
        self.bind(lets, "_", RefWrite(self.draw(st.sampled_from(names.refs)), self.number(names)))
        return names

    def call(self, names: Names, lets: Any, depth: int) -> Names:
        callee = self.draw(st.sampled_from(names.functions))
        return names.with_number(self.bind(lets, "v", Call(callee, [self.number(names)])))

    def branch(self, names: Names, lets: Any, depth: int) -> Names:
        cond = call_op("less", [self.number(names), self.number(names)])
        value = If(cond, self.inner(names, depth), self.inner(names, depth))
        return names.with_number(self.bind(lets, "v", value))

    def block(self, names: Names, lets: Any, depth: int) -> Names:
        value = call_op("add", [self.inner(names, depth), self.inner(names, depth)])
        return names.with_number(self.bind(lets, "v", value))

    def pair(self, names: Names, lets: Any, depth: int) -> Names:
        both = self.bind(lets, "t", Tuple([self.inner(names, depth), self.number(names)]))
        return names.with_number(TupleGetItem(both, self.draw(st.integers(0, 1))))

    def closure(self, names: Names, lets: Any, depth: int) -> Names:
        param = self.var("p", INT)
        function = Function([param], self.inner(names.with_number(param), depth))
        if self.draw(st.booleans()):
            return names.with_number(self.bind(lets, "v", Call(function, [self.number(names)])))
        return names.with_function(self.bind(lets, "f", function))

    def loop(self, names: Names, lets: Any, depth: int) -> Names:
        """A function that calls itself at most four times."""
        param, variable = self.var("i", INT), self.var("loop")
        fewer = call_op("subtract", [call_op("minimum", [param, const(3, "int32")]), const(1, "int32")])
        again = Let(self.var("_"), self.inner(names.with_number(param), depth), Call(variable, [fewer]))
        cond = call_op("less", [param, const(0, "int32")])
        lets.append((variable, Function([param], If(cond, self.number(names), again), INT)))
        return names.with_function(variable)

    def match(self, names: Names, lets: Any, depth: int) -> Names:
        numbers: Expr = Call(NIL, [])
        for _ in range(self.draw(st.integers(0, 2))):
            numbers = Call(CONS, [self.number(names), numbers])
        data = self.bind(lets, "l", numbers)
        head = self.var("h")
        first = Clause(
            PatternConstructor(CONS, (PatternVar(head), PatternWildcard())), self.inner(names.with_number(head), depth)
        )
        other = Clause(PatternConstructor(NIL, ()), self.inner(names, depth))
        return names.with_number(self.bind(lets, "v", Match(data, [first, other])))


@st.composite
def modules(draw: Callable[[Any], Any]) -> IRModule:
    """A module of three functions of which main calls the others; one of them can be inlined."""
    programs = Programs(draw)
    functions: dict[str, Function] = {}
    names = Names()
    for name, attrs in (("helper", {"Inline": 1}), ("other", {}), ("main", {})):
        param, ref = programs.var("x", INT), programs.var("r")
        inner = names.with_number(param).with_ref(ref)
        body = Let(ref, RefCreate(param), programs.body(inner, draw(st.integers(1, 6)), 1))
        functions[name] = Function([param], body, INT, attrs=attrs)
        names = names.with_function(GlobalVar(name))
    return infer_types(IRModule(functions, type_definitions=[DEFINITION]))


PASSES: list[Pass] = [
    get_pass("ToANormalForm"),
    get_pass("ToGraphNormalForm"),
    get_pass("ToBasicBlockNormalForm"),
    get_pass("LambdaLift"),
    get_pass("EtaExpand", expand_global_var=True),
    get_pass("Inline"),
    get_pass("Inline", once=True),
    get_pass("RemoveUnusedFunctions"),
    get_pass("DeadCodeElimination"),
    get_pass("DeadCodeElimination", inline_once=True),
    get_pass("EliminateCommonSubexpr"),
    get_pass("FoldConstant"),
    get_pass("FuseOps"),
    Sequential([get_pass("FuseOps"), get_pass("ToANormalForm"), get_pass("DefuseOps")], name="FuseBindDefuse"),
    Sequential([get_pass("ToANormalForm"), get_pass("ToGraphNormalForm")], name="BindUnbind"),
    Sequential(
        [get_pass("ToGraphNormalForm"), get_pass("EliminateCommonSubexpr"), get_pass("LambdaLift")], name="Lift"
    ),
    Sequential([get_pass("LambdaLift"), get_pass("Inline", once=True), get_pass("DeadCodeElimination")], name="Down"),
]
IDEMPOTENT = {"ToANormalForm", "ToBasicBlockNormalForm", "LambdaLift", "RemoveUnusedFunctions", "FuseOps"}


@pytest.mark.parametrize("count", [8, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("each", PASSES, ids=[f"{each.info.name}-{index}" for index, each in enumerate(PASSES)])
def test_passes_keep_values_and_effects(each: Pass, count: int) -> None:
    """AN06, DC11: reads and writes of references keep their order under every pass."""

    @settings(max_examples=count, deadline=None)
    @given(modules())
    def hold(mod: IRModule) -> None:
        before = structural_digest(mod)
        with PassContext(opt_level=3):
            after = each(mod)
            again = each(after)
        assert structural_digest(mod) == before
        after, again = infer_types(after), infer_types(again)
        verify_module(after, "typed")
        for value in (-1, 2):
            argument = np.array(value, "int32")
            wanted = interpret(mod, argument)
            np.testing.assert_array_equal(interpret(after, argument), wanted)
            np.testing.assert_array_equal(interpret(again, argument), wanted)
        if each.info.name in IDEMPOTENT:
            assert structural_digest(again) == structural_digest(after)

    hold()
