"""Types that construction alone does not know."""

import pytest

from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.adt import Constructor, Match, TypeData
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, Var, const, var
from relaybuild.ir.infer import infer_expr, infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import ParseError, parse
from relaybuild.ir.typer import Typer
from relaybuild.ir.types import FuncType, GlobalTypeVar, TensorType, TupleType, Type, TypeVar, scalar_type
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order

F3 = TensorType((3,), "float32")
INT = TensorType((), "int32")


def test_lets_without_annotation() -> None:
    x, a, b = var("x", (3,)), Var("a"), Var("b")
    body = Let(a, call_op("log", [x]), Let(b, Tuple([a, a]), call_op("exp", [a])))
    mod = IRModule.from_expr(Function([x], body))
    result = infer_types(mod)
    assert result is mod
    assert all(node.has_type for node in post_order(mod["main"]))
    assert b.checked_type == TupleType((F3, F3))


def test_globals_in_any_order_and_recursion() -> None:
    mod = infer_types(
        parse(
            """
            def @a(%x: float32) { @z(%x) }
            def @r(%x: int32) -> int32 { if (%x < 1) { 0 } else { @r(%x - 1) } }
            def @z(%x: float32) { (%x, @r(1)) }
            """
        )
    )
    assert mod["a"].checked_type == FuncType((TensorType(()),), TupleType((TensorType(()), INT)))


def test_polymorphic_functions_are_instantiated() -> None:
    mod = infer_types(
        parse(
            """
            def @apply[A](%f: fn (A) -> A, %x: A) -> A { %f(%x) }
            def @pair(%x: Tensor[(n, 3), float32]) -> (Tensor[(n, 3), float32], int32) { (%x, 1) }
            def @main(%x: Tensor[(5, 3), float32]) { @apply(fn (%y: int32) { %y + 1 }, @pair(%x).1) }
            def @main2(%x: Tensor[(5, 3), float32]) { @pair(%x).0 }
            """
        )
    )
    assert mod["main"].body.checked_type == INT
    assert mod["main2"].body.checked_type == TensorType((5, 3))


def test_a_function_used_under_other_globals_is_built_anew() -> None:
    user = Function([], Call(GlobalVar("g"), []))
    one = IRModule({"main": user, "g": Function([], const(1))})
    two = IRModule({"main": user, "g": Function([], const(1.0))})
    assert infer_types(one)["main"].body.checked_type == INT
    assert infer_types(two)["main"].body.checked_type == TensorType(())
    assert infer_types(one)["main"].body.checked_type == INT
    assert infer_types(one) is one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x) { %x }", "nothing says the type of '%x'"),
        ("def @f(%x: int32) { @f(%x) }", "m:1:1: nothing says the result type of '@f': write '-> type'"),
        (
            "def @main() { let %f = fn (%x: int32) { %f(%x) }; 1 }",
            "m:1:24: nothing says the result type of '%f': write '-> type'",
        ),
    ],
)
def test_what_nothing_says(text: str, message: str) -> None:
    with pytest.raises(TypeCheckError) as caught:
        infer_types(parse(text, "m"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @f(%x: int32) { %x } def @main() { @f(1f) }", "m:1:40: argument 0 has type float32, expected int32"),
        ("def @f(%x: int32) { %x } def @main() { @f() }", "a function of 1 parameters is called with 0 arguments"),
        ("def @main() -> int32 { 1f }", "the body has type float32, expected the declared int32"),
        ("def @main() { let %x: int32 = 1f; %x }", "'%x' is declared int32 and bound to a value of type float32"),
        ("def @main(%x: int32) { %x(1) }", "a value of type int32 is called, expected a function"),
        ("def @f() { 1 } def @main() { if (@f()) { 1 } else { 2 } }", "the condition has type int32, expected bool"),
        ("def @f() { 1 } def @main() { @f().0 }", "field 0 of int32, expected a tuple"),
        ("def @f() { 1 } def @main() { add(@f(), 1f) }", "'add' over (int32, float32)"),
    ],
)
def test_contradictions_are_found_when_parsing(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "m")
    assert message in str(caught.value)


def test_all_independent_mistakes_at_once() -> None:
    x, b = var("x", (3,)), var("b", (), "int32")
    g = GlobalVar("g")
    first = If(b, x, x)
    second = Call(g, [x, x])
    mod = IRModule({"main": Function([x, b], Tuple([first, second])), "g": Function([var("y", (3,))], const(1))})
    with pytest.raises(TypeCheckError) as caught:
        infer_types(mod)
    assert str(caught.value).splitlines() == [
        "2 type errors:",
        "  the condition has type int32, expected bool",
        "  a function of 1 parameters is called with 2 arguments, in a call of '@g'",
    ]


def test_a_single_expression() -> None:
    a = Var("a")
    found = infer_expr(Let(a, Call(GlobalVar("g"), []), a), {"g": FuncType((), INT)})
    assert found.checked_type == INT


LIST = "type List[A] { Cons(A, List[A]), Nil }\n"


def types_of(text: str) -> dict[str, str]:
    """The types of a module's functions, after checking that every node has one and that nothing is done twice."""
    mod = infer_types(parse(text, "m"))
    verify_module(mod, "typed")
    assert infer_types(mod) is mod
    assert infer_types(IRModule(mod.functions, mod.attrs, mod.type_definitions))["main"] is mod["main"]
    return {name: str(function.checked_type) for name, function in mod.functions.items()}


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("def @f(%x) { add(%x, %x) } def @main() { @f(1f) }", "fn() -> float32"),
        ("def @g(%x: int32) { %x } def @main(%x) { @g(%x) }", "fn(int32) -> int32"),
        ("def @main(%n: int32) { if (%n < 1) { 1 } else { %n * @main(%n - 1) } }", "fn(int32) -> int32"),
        (
            "def @main(%n: int32) { if (%n < 1) { True } else { @odd(%n - 1) } }"
            "def @odd(%n: int32) { if (%n < 1) { False } else { @main(%n - 1) } }",
            "fn(int32) -> bool",
        ),
        (
            "def @main(%x: int32) { let %f = fn (%n) { if (%n < 1) { 0 } else { %f(%n - 1) + %n } }; %f(%x) }",
            "fn(int32) -> int32",
        ),
        ("def @f(%p) { %p.0 } def @main() { @f((1, 2f)) }", "fn() -> int32"),
        ("def @f(%p) { %p.1.0 } def @main() { @f((1, (2f, 3))) }", "fn() -> float32"),
        ("def @adder(%x: int32) { fn (%y: int32) { %x + %y } } def @main() { @adder(1)(2) }", "fn() -> int32"),
        ("def @twice(%f, %x) { %f(%f(%x)) } def @main() { @twice(fn (%y) { %y + 1 }, 3) }", "fn() -> int32"),
        ("def @main(%x: int32) { let %r = ref(%x); ref_write(%r, ref_read(%r) + 1) }", "fn(int32) -> ()"),
        ("def @set(%r, %v) { ref_write(%r, %v) } def @main(%r: Ref[int8]) { @set(%r, 1i8) }", "fn(Ref[int8]) -> ()"),
        ("def @f(%x: int32) -> (_, int32) { (1f, %x) } def @main() { @f(1).0 }", "fn() -> float32"),
        ("def @main() { let %x: (_, int32) = (1f, 2); %x }", "fn() -> (float32, int32)"),
        ("def @main(%f: fn (_) -> int32) -> int32 { %f(1i8) }", "fn(fn(int8) -> int32) -> int32"),
    ],
)
def test_holes_are_solved_from_uses_and_calls(text: str, main: str) -> None:
    assert types_of(text)["main"] == main


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("def @main() { let %id = fn [A](%x: A) { %x }; (%id(1), %id(2f)) }", "fn() -> (int32, float32)"),
        ("def @id[A](%x: A) -> A { %x } def @main() { (@id(1), @id(@id)(2f)) }", "fn() -> (int32, float32)"),
        (
            "def @twice[A](%f: fn (A) -> A, %x: A) { %f(%f(%x)) } def @main() { @twice(fn (%y) { %y + 1 }, 3) }",
            "fn() -> int32",
        ),
        (
            "def @depth[A](%x: A, %n: int32) -> int32 { if (%n < 1) { 0 } else { @depth((%x, %x), %n - 1) } }"
            "def @main() { @depth(1, 3) }",
            "fn() -> int32",
        ),
        (
            "def @f(%g: fn [A](A) -> A) { (%g(1), %g(2f)) } def @main() { @f(fn [B](%b: B) { %b }) }",
            "fn() -> (int32, float32)",
        ),
        (
            "def @flip[A, B](%f: fn (A, B) -> A) { fn (%b: B, %a: A) { %f(%a, %b) } }"
            "def @main() { @flip(fn (%x: int32, %y: float32) { %x })(1f, 2) }",
            "fn() -> int32",
        ),
    ],
)
def test_declared_type_parameters_are_instantiated_at_each_use(text: str, main: str) -> None:
    assert types_of(text)["main"] == main


@pytest.mark.parametrize("result", [" -> List[B]", ""])
def test_algebraic_data_types(result: str) -> None:
    found = types_of(
        LIST
        + "def @map[A, B](%f: fn (A) -> B, %xs: List[A])"
        + result
        + "{ match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil() } }"
        + "def @main() { let %ys: List[_] = @map(fn (%x) { (%x, 1f) }, Cons(1, Nil())); %ys }"
        + "def @sum(%xs) { match (%xs) { Cons((%a, _), %rest) => %a + @sum(%rest), Nil => 0 } }"
        + "def @total() { @sum(@main()) }"
        + "def @apply[A, B](%f: fn (A) -> B, %x: A) { %f(%x) }"
        + "def @boxed(%x: int32) { @apply(fn (%y: int32) { Cons(%y, Nil()) }, %x) }"
    )
    assert found["map"] == "fn[A, B](fn(A) -> B, List[A]) -> List[B]"
    assert found["main"] == "fn() -> List[(int32, float32)]"
    assert found["sum"] == "fn(List[(int32, float32)]) -> int32"
    assert found["boxed"] == "fn(int32) -> List[int32]"


@pytest.mark.parametrize(
    ("params", "body", "result"),
    [
        ("%x: Tensor[(2, k), float32]", "@t(%x)", "Tensor[(k, 2), float32]"),
        ("%x: Tensor[(?, 3), float32]", "@t(%x)", "Tensor[(3, ?), float32]"),
        ("%x: Tensor[(m, n), float32]", "@t(%x)", "Tensor[(n, m), float32]"),
        ("%x: Tensor[(2, 3), float32]", "@t(@t(%x))", "Tensor[(2, 3), float32]"),
        (
            "%c: bool, %x: Tensor[(?, 2), int8], %y: Tensor[(3, 2), int8]",
            "if (%c) { %x } else { %y }",
            "Tensor[(?, 2), int8]",
        ),
        ("%c: bool, %x: Tensor[(n,), int8]", "if (%c) { %x } else { %x }", "Tensor[(n,), int8]"),
    ],
)
def test_extents_unify_by_name_and_unknown_ones_join(params: str, body: str, result: str) -> None:
    transpose = "def @t(%x: Tensor[(n, m), float32]) -> Tensor[(m, n), float32] { transpose(%x) }"
    mod = infer_types(parse(f"{transpose} def @main({params}) {{ {body} }}"))
    assert str(mod["main"].body.checked_type) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def @f(%x) { %x } def @main() { (@f(1f), @f(2)) }",
            "argument 0 has type int32, expected float32, in a call of '@f'",
        ),
        (
            "def @main() { let %i = fn (%x) { %x }; (%i(1), %i(2f)) }",
            "argument 0 has type float32, expected int32, in a call of '%i'",
        ),
        (
            LIST + "def @main() { Cons(1, Cons(2f, Nil())) }",
            "argument 1 has type List[float32], expected List[int32], in a call of 'Cons'",
        ),
        (
            LIST + "def @main(%x: List[int8]) { match (%x) { Cons(%a, _) => %a, Nil => 0f } }",
            "clause 1 has type float32, expected int8",
        ),
        (
            LIST + "type T { C(int8) } def @main(%x: List[int8]) { match (%x) { C(%a) => %a } }",
            "the pattern 'C' fits values of type T, found List[int8]",
        ),
        ("def @main(%x: int32) { match (%x) { (_, %a) => %a } }", "a pattern of 2 fields, found a value of type int32"),
        (
            "def @main(%x: int32) { match (%x) { %a: int8 => %a } }",
            "'%a' is declared int8 and matched with a value of type int32",
        ),
        ("def @main(%r: Ref[int32]) { ref_write(%r, 1f) }", "a value of type float32 is written to a cell of int32"),
        ("def @main(%x: int32) { ref_read(%x) }", "found a value of type int32, expected a reference"),
        ("def @main() { let %f = fn (%g) { %g(%g) }; 1 }", "'%g' is called with itself: its type would have no end"),
        (
            "def @f(%x: Tensor[(n, n), int8]) { 1 } def @main(%x: Tensor[(2, 3), int8]) { @f(%x) }",
            "expected Tensor[(2, 2), int8]",
        ),
        (
            "def @main(%x: Tensor[(n,), int8]) { let %f = fn (%y: Tensor[(n,), int8]) { 1 };"
            "%f(Tensor[(2,), int8](1, 2)) }",
            "argument 0 has type Tensor[(2,), int8], expected Tensor[(n,), int8]",
        ),
        (
            "def @main(%c: bool, %x: Tensor[(4,), int8], %y: Tensor[(3,), int8]) { if (%c) { %x } else { %y } }",
            "the branches have types Tensor[(4,), int8] and Tensor[(3,), int8], expected one type",
        ),
        (
            "def @f[A](%x: A) { let %y: int32 = %x; 1 } def @main() { 1 }",
            "'%y' is declared int32 and bound to a value of type A",
        ),
        (
            "def @f[A](%x: A) { fn [A](%y: A) { %y } } def @main() { 1 }",
            "the type parameter 'A' hides that of a function around it",
        ),
        (
            "def @f(%g: fn [A](A) -> A) { 1 } def @main() { @f(fn (%x: int32) { %x }) }",
            "argument 0 has type fn(int32) -> int32, expected fn[A](A) -> A",
        ),
    ],
)
def test_contradictions_name_the_call_and_both_types(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        infer_types(parse(text, "m"))
    assert message in str(caught.value)


def test_what_is_wrong_is_reported_once() -> None:
    text = """
    def @f(%x: int32) { %x }
    def @main(%c: bool) {
      let %a = @f(1f)
      let %b = %a + 1
      let %g = fn (%y) { %y * %b }
      if (%c) { %g(%a) } else { match (%b) { %z => %z } }
    }
    def @open(%u, %v) { (%u, @f(%v)) }
    """
    with pytest.raises(UserError) as caught:
        infer_types(parse(text, "m"))
    assert str(caught.value).count("argument 0 has type float32") == 1
    assert "2 type errors" not in str(caught.value)


def test_everything_left_open_is_named() -> None:
    with pytest.raises(TypeCheckError) as caught:
        infer_types(parse("def @f(%u, %v: int8, %w) { (add(%u, %u), %v, %w.0) }\ndef @g(%x: int8) { @g(%x) }", "m"))
    assert str(caught.value).splitlines() == [
        "3 type errors:",
        "  m:1:8: nothing says the type of '%u': write '%u: type'",
        "  m:1:22: nothing says the type of '%w': write '%w: type'",
        "  m:2:1: nothing says the result type of '@g': write '-> type'",
    ]


def test_a_type_argument_on_which_nothing_depends_is_the_unit_type() -> None:
    assert types_of(LIST + "def @main() { let %x = Nil(); %x }")["main"] == "fn() -> List[()]"


def test_a_type_argument_is_what_it_was_before() -> None:
    text = LIST + "def @main() { let %x: List[int8] = Nil(); match (%x) { Nil => 0, Cons(_, _) => 1 } }"
    let = infer_types(parse(text))["main"].body
    assert isinstance(let, Let)
    assert isinstance(let.body, Match)
    mod = IRModule({"main": Function([], Match(let.value, let.body.clauses))}, None, parse(LIST).type_definitions)
    assert str(infer_types(mod)["main"].body.children()[0].checked_type) == "List[int8]"


def test_a_type_argument_that_an_operator_needs_is_named() -> None:
    text = LIST + "def @main() { match (Nil()) { Nil => 0, Cons(%x, _) => %x + 1 } }"
    with pytest.raises(TypeCheckError, match="nothing says the type argument of 'Nil'"):
        infer_types(parse(text))


def test_callers_are_heard_again() -> None:
    callee = parse("def @f(%x) { %x }")["f"]
    for value, kind in ((1, "int32"), (2.0, "float32"), (3, "int32")):
        mod = infer_types(IRModule({"f": callee, "main": Function([], Call(GlobalVar("f"), [const(value)]))}))
        assert str(mod["main"].checked_type) == f"fn() -> {kind}"
        assert str(mod["f"].checked_type) == f"fn({kind}) -> {kind}"


def test_only_what_changed_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"def @f{index}(%x: int32) {{ @f{index + 1}(%x) }}" for index in range(5)]
    even = "def @g(%x: int32) { if (%x < 1) { 0 } else { @h(%x) } } def @h(%x: int32) { @g(%x - 1) }"
    mod = infer_types(parse("".join(texts) + "def @f5(%x: int32) { %x } def @main() { @f0(1) }" + even))
    walked: list[str | None] = []
    walk = Typer.walk
    monkeypatch.setattr(Typer, "walk", lambda self, root, name=None: (walked.append(name), walk(self, root, name))[1])
    x = var("x", (), "int32")
    assert infer_types(mod.with_function("f3", Function([x], Call(GlobalVar("f4"), [x]))))["main"] is mod["main"]
    assert walked == ["f3"]
    walked.clear()
    infer_types(mod.with_function("f5", Function([x], call_op("negative", [x]))))
    assert walked == ["f5"]
    walked.clear()
    changed = infer_types(mod.with_function("f3", Function([x], const(1.0))))
    assert str(changed["main"].checked_type) == "fn() -> float32"
    assert sorted(map(str, walked)) == ["f0", "f1", "f2", "f3", "main"]
    walked.clear()
    h = parse("def @g(%x: int32) { 0 } def @h(%x: int32) { @g(%x - 2) }")["h"]
    assert infer_types(mod.with_function("h", h))["h"].checked_type == mod["h"].checked_type
    assert sorted(map(str, walked)) == ["g", "h"]


def test_other_definitions_are_heard() -> None:
    function = infer_types(parse(LIST + "def @f() { Cons(1, Nil()) }"))["f"]
    other = parse("type List[A] { Cons(A, A), Nil } def @g() { 1 }")
    with pytest.raises(TypeCheckError, match="argument 1 has type List"):
        infer_types(other.with_function("f", function))


def test_types_written_for_other_definitions() -> None:
    with pytest.raises(TypeCheckError, match="the type 'List' is not defined"):
        infer_types(IRModule({"f": parse(LIST + "def @f(%x: List[int8]) { %x }")["f"]}))


def test_long_untyped_chains_of_every_form() -> None:
    x, c = Var("x"), var("c", (), "bool")
    y: Expr = x
    for index in range(20_000):
        y = (call_op("negative", [y]), Tuple([y])[0], Let(v := Var("v"), y, v), If(c, y, y))[index % 4]
    assert infer_types(
        IRModule({"f": Function([x, c], y), "main": Function([], Call(GlobalVar("f"), [const(1), const(True)]))})
    )["f"].checked_type == FuncType((INT, scalar_type("bool")), INT)


@pytest.mark.parametrize("typed", [True, False])
def test_types_as_deep_as_the_graph(typed: bool) -> None:
    x = Var("x", INT if typed else None)
    y: Expr = x
    for _ in range(5_000):
        y = Tuple([y, x])
    caller = Function([], Call(GlobalVar("f"), [const(1)])[1])
    assert infer_types(IRModule({"f": Function([x], y), "main": caller}))["main"].body.checked_type == INT


def test_long_chains() -> None:
    x = Var("x")
    y = call_op("negative", [x])
    for _ in range(20_000):
        y = call_op("negative", [y])
    x.set_checked_type(F3)
    assert infer_expr(y).checked_type == F3


def test_a_function_of_one_type_is_not_taken_for_one_of_every_type() -> None:
    with pytest.raises(UserError, match=r"declared fn\[A\]\(A, A\) -> A and bound to a value of type fn\[B\]"):
        parse("def @main(%x: int32) { let %f: fn[A](A, A) -> A = fn[B](%y: B, %z) { %y }; %f(%x, %x) }")


def test_type_parameters_in_annotations_are_in_scope() -> None:
    outer, inner = TypeVar("A"), TypeVar("B")
    x, y = Var("x", outer), Var("y", TupleType((inner,)))
    nested = Function([x], Let(Var("f", FuncType((outer,), outer)), Function([Var("z", outer)], x), x), outer, [outer])
    assert infer_types(IRModule({"main": nested}))["main"].checked_type == FuncType((outer,), outer, (outer,))
    with pytest.raises(TypeCheckError, match=r"the type \(B,\) speaks of 'B', a parameter of no function around it"):
        infer_types(IRModule({"main": Function([x, y], x, None, [outer])}))
    with pytest.raises(TypeCheckError, match="the type A speaks of 'A'"):
        infer_types(IRModule({"main": Function([x], Function([y], x, None, [inner]))}))
    with pytest.raises(UserError, match="constructor 'C' speaks of 'B', which type 'T' has not"):
        TypeData(GlobalTypeVar("T"), [outer], [Constructor("C", [FuncType((inner,), outer)], GlobalTypeVar("T"))])


@pytest.mark.parametrize("result", [None, INT])
def test_a_global_that_is_not_defined_is_named(result: Type | None) -> None:
    with pytest.raises(TypeCheckError, match=r"^'@missing' is not defined$"):
        infer_types(IRModule({"main": Function([], Call(GlobalVar("missing"), []), result)}))


def test_types_without_end_are_reported_once() -> None:
    with pytest.raises(ParseError) as caught:
        parse("def @main() { let %o = fn (%x) { %x(%x) }; %o(%o) }")
    assert [each.message for each in caught.value.errors] == ["'%x' is called with itself: its type would have no end"]
    with pytest.raises(ParseError, match="expected one that does not hold the function's own result"):
        parse("def @main(%x: int32) { @main }")
