"""Structural equality and its hash over every kind of type, node and module."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.ir import structural_digest, structural_equal, structural_hash
from relaybuild.ir.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from relaybuild.ir.expr import (
    Call,
    Constant,
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
    var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op, get_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import Program, constant_digest
from relaybuild.ir.types import (
    ANY,
    Dim,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)

INT, FLOAT = scalar_type("int32"), scalar_type("float32")
A, B = TypeVar("A"), TypeVar("B")
LIST, SET = GlobalTypeVar("List"), GlobalTypeVar("Set")


def same(a: Program, b: Program) -> bool:
    """Whether two programs are equal, after checking that the hash says the same."""
    equal = structural_equal(a, b)
    assert structural_equal(b, a) is equal
    assert (structural_hash(a) == structural_hash(b)) is equal
    return equal


def constructors(header: GlobalTypeVar = LIST) -> tuple[Constructor, Constructor]:
    cons = Constructor("Cons", [A, TypeCall(header, (A,))], header)
    return cons, TypeData(header, [A], [cons, Constructor("Nil", [], header)]).constructors[1]


def bf16(*values: float) -> Constant:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return Constant(np.array(values, dtype=ml_dtypes.bfloat16))


class TestTypes:
    def test_tensors(self) -> None:
        """SE01: shape and dtype of a tensor type count."""
        kinds = [
            TensorType((3, 4)),
            TensorType((4, 3)),
            TensorType((3, 4), "int8"),
            TensorType((3, ANY)),
            TensorType((Dim("n"), 4)),
        ]
        assert same(kinds[0], TensorType((3, 4)))
        assert not any(same(a, b) for a in kinds for b in kinds if a is not b)

    def test_holes(self) -> None:
        """SE02: a hole is equal to itself only."""
        hole = IncompleteType()
        assert structural_equal(TupleType((hole, INT)), TupleType((hole, INT)))
        assert not structural_equal(hole, IncompleteType())

    def test_variables(self) -> None:
        """SE03: free type variables are told apart by name."""
        assert same(A, TypeVar("A"))
        assert not same(A, B)

    def test_functions(self) -> None:
        """SE04: function types are equal up to the names of their parameters."""
        assert same(FuncType((A, INT), A, (A,)), FuncType((B, INT), B, (B,)))
        assert not same(FuncType((A,), A, (A,)), FuncType((B,), B))
        assert not same(FuncType((A, B), A, (A, B)), FuncType((A, B), B, (A, B)))
        assert not same(FuncType((A,), A, (A,)), FuncType((A,), A, (A, B)))
        inner = FuncType((FuncType((A,), B, (A,)),), B, (B,))
        assert same(inner, FuncType((FuncType((B,), A, (B,)),), A, (A,)))
        assert not same(inner, FuncType((FuncType((A,), A, (A,)),), B, (B,)))

    def test_tuples(self) -> None:
        """SE05: the fields of a tuple type and their order count."""
        assert same(TupleType((INT, FLOAT)), TupleType((INT, FLOAT)))
        assert not same(TupleType((INT, FLOAT)), TupleType((FLOAT, INT)))
        assert not same(TupleType((TupleType((INT,)), FLOAT)), TupleType((TupleType((INT, FLOAT)),)))

    def test_references(self) -> None:
        """SE06: reference types are equal where their values' types are."""
        assert same(RefType(INT), RefType(INT))
        assert not same(RefType(INT), RefType(FLOAT))

    def test_applied_types(self) -> None:
        """SE07: head and arguments of an applied type count."""
        assert same(TypeCall(LIST, (INT,)), TypeCall(LIST, (INT,)))
        assert not same(TypeCall(LIST, (INT,)), TypeCall(SET, (INT,)))
        assert not same(TypeCall(LIST, (INT,)), TypeCall(LIST, (FLOAT,)))

    def test_kinds_of_types(self) -> None:
        """SE09: types of different kinds are never equal."""
        kinds: list[Type] = [INT, TupleType((INT,)), FuncType((), INT), RefType(INT), A, LIST, TypeCall(LIST, (INT,))]
        assert not any(same(a, b) for a in kinds for b in kinds if a is not b)


class TestNodes:
    def test_constants(self) -> None:
        """SE08: constants are equal by type and elements; NaN equals NaN, -0.0 differs from 0.0."""
        assert same(const(1), const(1))
        assert not same(const(1), const(1.0))
        assert not same(const(1), const(1, "int64"))
        assert same(const(np.array([1, np.nan], "float32")), const(np.array([1, -np.nan], "float32")))
        assert not same(const(0.0), const(-0.0))
        assert not same(const(np.zeros((2, 3), "float32")), const(np.zeros((3, 2), "float32")))
        assert same(const(np.zeros((0, 3), "int8")), const(np.zeros((0, 3), "int8")))
        assert not same(const(np.zeros((0, 3), "int8")), const(np.zeros((3, 0), "int8")))

    def test_constants_of_bfloat16(self) -> None:
        assert same(bf16(1, np.nan), bf16(1, -np.nan))
        assert not same(bf16(0.0), bf16(-0.0))
        assert not same(bf16(1, 2), const(np.array([1, 2], "float16")))

    def test_the_order_of_bytes_does_not_count(self) -> None:
        assert constant_digest(Constant(np.arange(4, dtype=">i4"))) == constant_digest(
            Constant(np.arange(4, dtype="<i4"))
        )

    def test_kinds_of_nodes(self) -> None:
        """SE10: nodes of different kinds are never equal."""
        x = var("x", INT)
        nodes: list[Expr] = [
            x,
            GlobalVar("x"),
            const(1),
            Tuple([x]),
            TupleGetItem(x, 0),
            Function([x], x),
            Let(x, x, x),
        ]
        nodes += [
            If(x, x, x),
            Match(x, []),
            RefCreate(x),
            RefRead(x),
            RefWrite(x, x),
            call_op("log", [var("y", FLOAT)]),
        ]
        assert not any(same(a, b) for a in nodes for b in nodes if a is not b)

    def test_variables(self) -> None:
        """SE11: free variables are equal by identity, or mapped to each other; annotations count, names do not."""
        x, y = var("x", INT), var("y", INT)
        assert structural_equal(Tuple([x, x]), Tuple([y, y]))
        assert not structural_equal(Tuple([x, x]), Tuple([x, y]))
        assert not structural_equal(Tuple([x, x]), Tuple([y, y]), map_free_vars=False)
        assert structural_equal(Tuple([x, x]), Tuple([x, x]), map_free_vars=False)
        assert not structural_equal(x, var("x", FLOAT))
        assert not structural_equal(x, Var("x"))
        assert structural_equal(Function([x], x), Function([y], y), map_free_vars=False)

    def test_globals(self) -> None:
        """SE12: globals are equal by name, shared or not."""
        f = GlobalVar("f")
        assert same(f, GlobalVar("f"))
        assert not same(f, GlobalVar("g"))
        assert same(Tuple([f, f]), Tuple([GlobalVar("f"), GlobalVar("f")]))

    def test_tuples(self) -> None:
        """SE13: the fields of a tuple and their nesting count."""
        one, two = const(1), const(2)
        assert same(Tuple([one, two]), Tuple([const(1), const(2)]))
        assert not same(Tuple([one, two]), Tuple([two, one]))
        assert not same(Tuple([one, two]), Tuple([one, two, one]))
        assert not same(Tuple([Tuple([one, two])]), Tuple([Tuple([one]), two]))
        assert same(Tuple([]), Tuple([]))

    def test_fields(self) -> None:
        """SE14: tuple and index of a field count."""
        pair = Tuple([const(1), const(1)])
        assert same(pair[0], Tuple([const(1), const(1)])[0])
        assert not same(pair[0], pair[1])

    def test_attributes_of_functions(self) -> None:
        """SE15: attributes of a function count, their order does not."""
        function = Function([], const(1))
        assert not same(function, function.with_attr("a", 1))
        assert not same(function.with_attr("a", 1), function.with_attr("a", 2))
        assert not same(function.with_attr("a", 1), function.with_attr("a", True))
        assert same(function.with_attr("a", 1).with_attr("b", 2), function.with_attr("b", 2).with_attr("a", 1))

    def test_functions(self) -> None:
        """SE16: functions are equal up to the names of parameters; types, order and type parameters count."""
        x, y, p, q = var("x", INT), var("y", INT), var("p", INT), var("q", INT)
        assert same(Function([x, y], x), Function([p, q], p))
        assert not same(Function([x, y], x), Function([x, y], y))
        assert not same(Function([x], x), Function([x, y], x))
        assert not same(Function([x], x), Function([x], x, INT))
        assert not same(Function([x], const(1)), Function([var("x", FLOAT)], const(1)))
        a, b = var("a", A), var("b", B)
        assert same(Function([a], a, A, [A]), Function([b], b, B, [B]))
        assert not same(Function([a], a, A, [A]), Function([a], a, A))

    def test_type_parameters_by_scope(self) -> None:
        """SE16: each function has type parameters of its own."""

        def identity(name: str) -> Function:
            kind = TypeVar(name)
            x = var("x", kind)
            return Function([x], x, kind, [kind])

        assert same(Tuple([identity("A"), identity("A")]), Tuple([identity("A"), identity("B")]))
        a, b = var("a", A), var("b", B)
        one, other = (Function([a], Function([b], kept, None, [B]), None, [A]) for kept in (a, b))
        assert not same(one, other)

    def test_calls(self) -> None:
        """SE17: callee, arguments and attributes of a call count."""
        x, y = var("x", FLOAT), var("y", FLOAT)

        def of(body: Expr) -> Function:
            return Function([x, y], body)

        assert same(of(call_op("add", [x, y])), of(call_op("add", [x, y])))
        assert not same(of(call_op("add", [x, y])), of(call_op("add", [y, x])))
        assert not same(of(call_op("add", [x, y])), of(call_op("multiply", [x, y])))
        assert not same(of(call_op("clip", [x], a_min=0.0)), of(call_op("clip", [x], a_max=0.0)))
        assert not same(of(call_op("clip", [x], a_min=0.0)), of(call_op("clip", [x], a_min=-0.0)))
        assert not same(of(Call(GlobalVar("f"), [x])), of(Call(GlobalVar("g"), [x])))
        assert not same(of(Call(GlobalVar("f"), [x])), of(Call(GlobalVar("f"), [x, x])))
        assert not same(of(Tuple([Call(GlobalVar("f"), [])])), of(Tuple([GlobalVar("f")])))

    def test_lets(self) -> None:
        """SE18: lets are equal up to the variable's name; its annotation, its value and the body count."""
        v, w = Var("v"), Var("w")
        assert same(Let(v, const(1), v), Let(w, const(1), w))
        assert not same(Let(v, const(1), v), Let(v, const(2), v))
        assert not same(Let(v, const(1), v), Let(v, const(1), const(1)))
        assert not same(Let(v, const(1), v), Let(u := var("u", INT), const(1), u))

    def test_branches(self) -> None:
        """SE19: condition and both branches count."""
        cases = [If(const(c), const(a), const(b)) for c in (True, False) for a in (1, 2) for b in (1, 2)]
        assert not any(same(x, y) for x in cases for y in cases if x is not y)
        assert same(cases[0], If(const(True), const(1), const(1)))

    def test_constructors(self) -> None:
        """SE20: constructors are equal by names and fields, shared or not."""
        (cons, nil), (cons2, _) = constructors(), constructors()
        assert same(cons, cons2)
        assert not same(cons, nil)
        assert not same(cons, constructors(SET)[0])
        assert same(Tuple([cons, cons]), Tuple([cons, cons2]))
        wide = Constructor("Cons", [INT], LIST)
        TypeData(LIST, [A], [wide])
        assert not same(cons, wide)

    def test_matches(self) -> None:
        """SE21: clauses, their order, their patterns and completeness count; names of variables do not."""
        cons, nil = constructors()
        data = var("d", TypeCall(LIST, (INT,)))

        def match(
            name: str, first: int, *, complete: bool = True, swapped: bool = False, wild: bool = False
        ) -> Function:
            head = Var(name)
            rest: Pattern = PatternWildcard() if wild else PatternVar(Var("rest"))
            clauses = [
                Clause(PatternConstructor(cons, (PatternVar(head), rest)), head),
                Clause(PatternConstructor(nil), const(first)),
            ]
            return Function([data], Match(data, clauses[::-1] if swapped else clauses, complete))

        assert same(match("h", 1), match("other", 1))
        different = [match("h", 1), match("h", 2), match("h", 1, complete=False)]
        different += [match("h", 1, swapped=True), match("h", 1, wild=True)]
        assert not any(same(a, b) for a in different for b in different if a is not b)

    def test_operators(self) -> None:
        """SE22: operators are equal by name."""
        x = var("x", FLOAT)
        assert same(get_op("log")(x), get_op("log")(x))
        assert not same(get_op("log")(x), get_op("exp")(x))

    def test_sharing(self) -> None:
        """SE23: a node used twice differs from two equal nodes."""
        x = var("x", FLOAT)
        shared = call_op("log", [x])
        assert same(Tuple([shared, shared]), Tuple([twice := call_op("log", [x]), twice]))
        assert not same(Tuple([shared, shared]), Tuple([call_op("log", [x]), call_op("log", [x])]))

    def test_hashes_of_large_graphs_differ(self) -> None:
        """SE24: graphs that differ far from the root have different hashes."""

        def chain(start: int) -> Expr:
            node: Expr = const(start)
            for _ in range(50):
                node = call_op("add", [node, const(1)])
            return node

        assert same(chain(0), chain(0))
        assert not same(chain(0), chain(1))

    def test_patterns_of_tuples(self) -> None:
        """SE25: the fields of a tuple's pattern bind in order."""
        a, b, p, q = (Var(name) for name in "abpq")
        data = Tuple([const(1), const(2)])

        def match(first: Var, second: Var, body: Var) -> Match:
            return Match(data, [Clause(PatternTuple((PatternVar(first), PatternVar(second))), body)])

        assert same(match(a, b, a), match(p, q, p))
        assert not same(match(a, b, a), match(a, b, b))
        assert not same(match(a, b, a), Match(data, [Clause(PatternVar(a), a)]))

    def test_attributes_of_closures(self) -> None:
        """SE26: attributes count on functions within functions too."""
        inner = Function([], const(1))
        assert not same(Function([], inner), Function([], inner.with_attr("Primitive", 1)))

    def test_unused_parameters(self) -> None:
        """SE27: parameters are mapped by position also where the body does not use them."""
        x, y, free = var("x", INT), var("y", INT), var("free", INT)
        assert same(Function([x, y], free), Function([y, x], free))
        assert not same(Function([x, y], y), Function([x, y], free))

    def test_order_of_lets(self) -> None:
        """SE28: lets in another order differ, though no value depends on it."""
        a, b = Var("a"), Var("b")
        one = Let(a, const(1), Let(b, const(2), Tuple([a, b])))
        other = Let(b, const(2), Let(a, const(1), Tuple([a, b])))
        assert not same(one, other)

    def test_references(self) -> None:
        """SE29: creating, reading and writing a cell, and sharing of the cell, count."""
        cell = RefCreate(const(1))
        assert same(RefRead(cell), RefRead(RefCreate(const(1))))
        assert not same(RefRead(cell), RefWrite(cell, const(1)))
        assert not same(Tuple([RefRead(cell), RefRead(cell)]), Tuple([RefRead(cell), RefRead(RefCreate(const(1)))]))


class TestModules:
    def test_definitions_and_attributes_count(self) -> None:
        """SE29: functions, types and attributes of a module count."""
        text = "type List[A] { Cons(A, List[A]), Nil }\ndef @main(%x: List[int32]) { %x }"
        mod = parse(text)
        assert same(mod, parse(text.replace("%x", "%y").replace("A", "B")))
        assert not same(mod, parse(text.replace("Nil", "Empty")))
        assert not same(mod, parse(text.replace("Cons(A, ", "Cons(int32, ")))
        assert not same(mod, parse(text.replace(", Nil", "")))
        assert not same(mod, parse(text.replace("def", "type T { C }\ndef")))
        assert not same(mod, mod.with_attrs({"a": 1}))
        assert not same(mod, mod["main"])

    def test_the_order_of_functions_does_not(self) -> None:
        f, g = Function([], const(1)), Function([], const(2))
        assert same(IRModule({"f": f, "g": g}), IRModule({"g": g, "f": f}))

    def test_definitions(self) -> None:
        data = [parse(f"type List[{name}] {{ Cons({name}, List[{name}]), Nil }}").get_type("List") for name in "AB"]
        assert same(data[0], data[1])
        assert not same(data[0], parse("type List[A] { Nil, Cons(A, List[A]) }").get_type("List"))


_PROGRAM = """
type List[A] { Cons(A, List[A]), Nil }
def @map[A, B](%f: fn (A) -> B, %xs: List[A], Inline=1) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil() }
}
def @main(%x: Tensor[(n, 2), float32], %y: (int32, bool)) {
  let %r = ref(%y.0);
  %1 = clip(%x, a_min=0.5);
  (ref_write(%r, 2), if (%y.1) { %1 } else { log(%1) }, @map(fn (%i: int32) { %i + 1 }, Cons(1, Nil())))
}
"""


def test_digests_are_the_same_in_every_process() -> None:
    code = f"""
from relaybuild.ir import structural_digest
from relaybuild.ir.parser import parse
print(structural_digest(parse({_PROGRAM!r})))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {structural_digest(parse(_PROGRAM))}


_NAMES = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=5, max_size=5)


def _program(names: list[str]) -> Function:
    x, y, v, f, p = (Var(name, INT if position < 2 else None) for position, name in enumerate(names))
    closure = Function([p], call_op("add", [x, x]))
    data = Tuple([x, Let(v, y, Tuple([v, v]))])
    clause = Clause(PatternTuple((PatternVar(z := Var(names[0])), PatternWildcard())), z)
    return Function([x, y], Let(f, closure, Tuple([Call(f, [Match(data, [clause])]), f])))


@settings(max_examples=50, deadline=None)
@given(_NAMES, _NAMES)
def test_names_of_variables_never_count(one: list[str], other: list[str]) -> None:
    assert same(_program(one), _program(other))


def test_the_package_offers_equality_without_loading_it() -> None:
    code = """
import sys, relaybuild, relaybuild.ir
assert "numpy" not in sys.modules
from relaybuild.ir import structural_equal
"""
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
