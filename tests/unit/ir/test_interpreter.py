"""Programs run by their reference semantics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, If, Let, TupleGetItem, Var, const, var
from relaybuild.ir.interpreter import Closure, ConstructorValue, Reference, interpret
from relaybuild.ir.op import Attrs, Op, OpKind, call_op
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.types import scalar_type


def run(body: str, *args: object) -> object:
    params = ", ".join(f"%{name}: int32" for name, _ in zip("xyz", args))
    return interpret(parse(f"def @main({params}) {{ {body} }}"), *(np.int32(arg) for arg in args))


@pytest.mark.parametrize(
    ("body", "args", "expected"),
    [
        ("%x + %y * 2", (1, 2), 5),
        ("let %a = %x; let %b = %a + %a; %b * %b", (3,), 36),
        ("if (%x < %y) { %x } else { %y }", (4, 3), 3),
        ("let %f = fn (%a: int32) { %a + %x }; %f(%f(1))", (10,), 21),
        ("fn (%a: int32) { fn (%b: int32) { %a - %b } }(%x)(%y)", (7, 2), 5),
        ("let %f = fn (%n: int32) -> int32 { if (%n < 1) { 0 } else { %f(%n - 1) + %n } }; %f(%x)", (10,), 55),
        ("((%x, %y), %y).0.1", (1, 2), 2),
        ("let %f = fn (%p: (int32, int32)) { %p.0 - %p.1 }; %f((%x, %y))", (9, 4), 5),
    ],
)
def test_values(body: str, args: tuple[int, ...], expected: int) -> None:
    assert run(body, *args) == expected


def test_tuples_and_closures_are_results() -> None:
    found = run("(%x, (), (%x + 1,))", 1)
    assert isinstance(found, tuple)
    assert found == (1, (), (2,))
    assert isinstance(run("fn (%a: int32) { %a }"), Closure)


def test_functions_of_a_module() -> None:
    mod = parse(
        """
        def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }
        def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }
        """
    )
    assert interpret(mod, np.int32(1001), entry="odd")
    with pytest.raises(UserError, match="no function '@main'"):
        interpret(mod, np.int32(1))


def test_free_variables_are_parameters() -> None:
    assert interpret(parse_expr("free_var %a: float32; %a * 2f"), np.float32(4)) == 8


def test_each_shared_node_once_and_only_the_branch_taken() -> None:
    counted: list[int] = []

    def evaluate(values: object, attrs: object) -> object:
        counted.append(1)
        return np.asarray(1.0, "float32")

    op = Op("test.count", 0, lambda types, attrs: scalar_type("float32"), evaluate, OpKind.OPAQUE)
    node: Expr = Call(op, [], Attrs())
    for _ in range(40):
        node = call_op("add", [node, node])
    assert interpret(Function([], node)) == 2.0**40
    assert len(counted) == 1
    assert interpret(If(const(True), const(3.0), Call(op, [], Attrs()))) == 3
    assert len(counted) == 1


def test_long_graphs_and_deep_recursion() -> None:
    x = var("x", (), "float32")
    y: Expr = x
    for _ in range(20_000):
        y = call_op("add", [y, const(1.0)])
    assert interpret(Function([x], y), np.float32(0)) == 20_000
    assert run("let %f = fn (%n: int32) -> int32 { if (%n < 1) { 0 } else { %f(%n - 1) + 1 } }; %f(%x)", 5000) == 5000


LIST = """
type List[A] { Cons(A, List[A]), Nil }
def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil() }
}
def @sum(%xs: List[int32]) -> int32 { match (%xs) { Cons(%x, %rest) => %x + @sum(%rest), Nil => 0 } }
def @range(%n: int32) -> List[int32] { if (%n < 1) { Nil() } else { Cons(%n, @range(%n - 1)) } }
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("@sum(@map(fn (%x: int32) { %x * %x }, @range(4)))", 30),
        ("match (@range(3)) { Cons(%a, Cons(%b, _)) => %a * 10 + %b, _ => 0 }", 32),
        ("match ((@range(0), 5)) { (Cons(_, _), %n) => 0, (Nil, %n) => %n }", 5),
        ("match (3) { %x => %x + 1 }", 4),
        ("let %f = Cons; @sum(%f(1, Nil()))", 1),
        ("@sum(match? (@range(2)) { Cons(_, %rest) => %rest })", 1),
        ("match (Cons((1, 2), Nil())) { Cons((%a, %b), _) => %b - %a, Nil => 0 }", 1),
    ],
)
def test_algebraic_data_types(body: str, expected: int) -> None:
    assert interpret(parse(LIST + f"def @main() {{ {body} }}")) == expected


def test_values_of_algebraic_data_types_go_in_and_out() -> None:
    mod = parse(LIST)
    made = interpret(mod, np.int32(2), entry="range")
    assert isinstance(made, ConstructorValue)
    assert repr(made) == "Cons(array(2, dtype=int32), Cons(array(1, dtype=int32), Nil()))"
    assert interpret(mod, made, entry="sum") == 3
    with pytest.raises(UserError, match=r"'%xs' got int32, expected List\[int32\]"):
        interpret(mod, np.int32(1), entry="sum")
    doubled = interpret(mod, interpret(parse("def @main() { fn (%x: int32) { %x + %x } }")), made, entry="map")
    assert interpret(mod, doubled, entry="sum") == 6


def test_a_value_that_fits_no_clause() -> None:
    mod = parse(LIST + "def @main(%n: int32) {\n  match? (@range(%n)) { Nil => 0 }\n}", "m")
    assert interpret(mod, np.int32(0)) == 0
    with pytest.raises(UserError) as caught:
        interpret(mod, np.int32(2))
    assert str(caught.value) == "m:9:3: no clause of the match fits Cons(int32, …)"


def test_long_lists_and_matches_in_deep_recursion() -> None:
    mod = parse(LIST + "def @main(%n: int32) { @sum(@map(fn (%x: int32) { 1 }, @range(%n))) }")
    assert interpret(mod, np.int32(3000)) == 3000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("let %r = ref(%x); let %a = ref_read(%r); let %u = ref_write(%r, %a + 1); (%a, ref_read(%r))", (5, 6)),
        ("let %r = ref(%x); let %s = %r; let %u = ref_write(%s, 9); (ref_read(%r), %x)", (9, 5)),
        (
            "let %r = ref(%x); let %f = fn () { ref_write(%r, ref_read(%r) * 2); 0 };"
            "let %a = %f(); let %b = %f(); (ref_read(%r), %a)",
            (20, 0),
        ),
        (
            "let %r = ref(0); let %u = if (%x < 0) { ref_write(%r, 1) } else { ref_write(%r, 2) }; (ref_read(%r), 0)",
            (2, 0),
        ),
        ("let %r = ref(%x); ({ ref_write(%r, 1); ref_read(%r) }, 0)", (1, 0)),
        ("let %r = ref((%x, 1)); let %u = ref_write(%r, (ref_read(%r).1, 7)); ref_read(%r)", (1, 7)),
    ],
)
def test_references_follow_the_order_of_lets(body: str, expected: tuple[int, int]) -> None:
    assert run(body, 5) == expected


def test_each_evaluation_of_a_reference_is_a_cell_of_its_own() -> None:
    cells = "let %a = @cell(1); let %b = @cell(1)"
    text = f"def @main() {{ {cells}; ref_write(%a, 2); (ref_read(%a), ref_read(%b)) }}"
    assert interpret(parse(f"def @cell(%x: int32) {{ ref(%x) }} {text}")) == (2, 1)
    cell = interpret(parse("def @main() { ref(3) }"))
    assert isinstance(cell, Reference)
    increment = parse("def @main(%r: Ref[int32]) { ref_write(%r, ref_read(%r) + 1) }")
    assert interpret(increment, cell) == ()
    assert cell.value == 4
    with pytest.raises(UserError, match=r"'%r' got a tuple of 0 fields, expected Ref\[int32\]"):
        interpret(increment, ())


class _Counted:
    """An operator that counts how often it is computed."""

    def __init__(self) -> None:
        self.count = 0
        self.op = Op("test.count", 1, lambda types, attrs: types[0], self._evaluate, OpKind.OPAQUE)

    def _evaluate(self, values: Sequence[Any], attrs: object) -> Any:
        self.count += 1
        return values[0]


@pytest.mark.parametrize("taken", [True, False])
def test_a_node_that_both_branches_use_is_computed_before_them_and_another_within(taken: bool) -> None:
    counted = _Counted()
    c, x = var("c", (), "bool"), var("x", (), "int32")
    both, one = Call(counted.op, [x], Attrs()), Call(counted.op, [call_op("negative", [x])], Attrs())
    body = If(c, call_op("add", [both, one]), call_op("multiply", [both, both]))
    assert interpret(Function([c, x], body), np.bool_(taken), np.int32(3)) == (0 if taken else 9)
    assert counted.count == (2 if taken else 1)


def test_a_node_shared_with_a_closure_is_computed_outside_of_it() -> None:
    counted = _Counted()
    x, a, f = var("x", (), "int32"), var("a", (), "int32"), Var("f")
    shared = Call(counted.op, [x], Attrs())
    closure = Function([a], call_op("add", [shared, Call(counted.op, [a], Attrs())]))
    calls: Expr = const(0)
    for _ in range(3):
        calls = call_op("add", [calls, Call(f, [const(1)])])
    assert interpret(Function([x], Let(f, closure, call_op("add", [calls, shared]))), np.int32(10)) == 43
    assert counted.count == 4


def test_a_let_within_an_expression_computes_its_own_nodes() -> None:
    counted = _Counted()
    x, v = var("x", (), "int32"), Var("v")
    shared = Call(counted.op, [x], Attrs())
    let = Let(v, call_op("add", [shared, shared]), call_op("multiply", [v, shared]))
    assert interpret(Function([x], call_op("subtract", [let, let])), np.int32(3)) == 0
    assert counted.count == 1


def test_effects_without_lets_happen_in_the_order_of_the_graph() -> None:
    assert run("let %r = ref(%x); %0 = ref_read(%r); %1 = ref_write(%r, 7); (%0, %1, ref_read(%r), %0)", 1) == (
        1,
        (),
        7,
        1,
    )


def test_tensors_without_elements() -> None:
    assert interpret(
        parse("def @main(%x: Tensor[(0, 3), float32]) { sum(%x, axis=[0]) + exp(sum(%x, axis=[0])) }"),
        np.zeros((0, 3), "float32"),
    ).tolist() == [1, 1, 1]
    joined = interpret(
        parse("def @main(%x: Tensor[(0, 3), int8], %y: Tensor[(2, 3), int8]) { concatenate((%x, %y), axis=0) }"),
        np.zeros((0, 3), "int8"),
        np.ones((2, 3), "int8"),
    )
    assert joined.shape == (2, 3)


def test_tensors_of_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1, 2.5, 300], dtype=ml_dtypes.bfloat16)
    found = interpret(parse('def @main(%x: Tensor[(3,), bfloat16]) { (%x + %x, cast(%x, dtype="float32")) }'), x)
    assert found[0].dtype.name == "bfloat16"
    np.testing.assert_array_equal(found[0].astype("float32"), [2, 5, 600])
    np.testing.assert_array_equal(found[1], [1, 2.5, 300])


def test_arguments_are_checked() -> None:
    mod = parse("def @main(%x: Tensor[(2, n), float32]) { %x }")
    assert interpret(mod, np.zeros((2, 5), "float32")).shape == (2, 5)
    with pytest.raises(UserError, match=r"'%x' got Tensor\[\(3, 5\), float32\], expected Tensor\[\(2, n\), float32\]"):
        interpret(mod, np.zeros((3, 5), "float32"))
    with pytest.raises(UserError, match="got 0 arguments, expected 1: '%x'"):
        interpret(mod)
    pair = parse("def @main(%p: (Tensor[(n,), int8], Tensor[(n,), int8]), %q: Tensor[(n, ?), int8]) { %p }")
    two, three = np.zeros(2, "int8"), np.zeros(3, "int8")
    assert len(interpret(pair, (two, two), np.zeros((2, 5), "int8"))) == 2
    with pytest.raises(
        UserError, match=r"'%q' got Tensor\[\(3, 5\), int8\], expected Tensor\[\(n, \?\), int8\] with n = 2"
    ):
        interpret(pair, (two, two), np.zeros((3, 5), "int8"))
    with pytest.raises(UserError, match="'%p' got a tuple of 2 fields"):
        interpret(pair, (two, three), np.zeros((2, 5), "int8"))


def test_fields_of_operators() -> None:
    x = var("x", (4,))
    parts = call_op("split", [x], indices_or_sections=2)
    second = interpret(Function([x], TupleGetItem(parts, 1)), np.arange(4, dtype="float32"))
    np.testing.assert_array_equal(second, [2, 3])


def test_values_of_any_depth_are_shown() -> None:
    mod = parse(
        """
        type Nat { Next(Nat), Zero }
        def @count(%n: int32) -> Nat { if (%n < 1) { Zero } else { Next(@count(%n - 1)) } }
        """
    )
    made = interpret(mod, np.int32(2000), entry="count")
    assert repr(made) == f"{'Next(' * 2000}Zero(){')' * 2000}"


def test_functions_and_references_are_shown_without_their_innards() -> None:
    text = "type Box[A] { Make(A, fn(int32) -> int32) } def @main() { ref((Make(True, fn (%x: int32) { %x }),)) }"
    made = interpret(parse(text))
    assert repr(made) == "ref((Make(array(True), <a function of type fn(int32) -> int32>),))"


def test_a_reference_inside_itself_is_shown() -> None:
    text = "type Node { Link(Ref[Node]), End } def @main() { let %r = ref(End); ref_write(%r, Link(%r)); (%r, %r) }"
    assert repr(interpret(parse(text))[0]) == "ref(Link(ref(…)))"
