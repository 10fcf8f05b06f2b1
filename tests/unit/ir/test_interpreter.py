"""Programs run by their reference semantics."""

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, If, TupleGetItem, const, var
from relaybuild.ir.interpreter import Closure, interpret
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


def test_arguments_are_checked() -> None:
    mod = parse("def @main(%x: Tensor[(2, n), float32]) { %x }")
    assert interpret(mod, np.zeros((2, 5), "float32")).shape == (2, 5)
    with pytest.raises(UserError, match=r"'%x' got Tensor\[\(3, 5\), float32\], expected Tensor\[\(2, n\), float32\]"):
        interpret(mod, np.zeros((3, 5), "float32"))
    with pytest.raises(UserError, match="got 0 arguments, expected 1: '%x'"):
        interpret(mod)


def test_fields_of_operators() -> None:
    x = var("x", (4,))
    parts = call_op("split", [x], indices_or_sections=2)
    second = interpret(Function([x], TupleGetItem(parts, 1)), np.arange(4, dtype="float32"))
    np.testing.assert_array_equal(second, [2, 3])
