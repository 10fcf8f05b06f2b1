"""The parser's behaviours that users of Relay know; what reads is also printed and read back."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.adt import Constructor, Match, PatternConstructor, PatternVar, PatternWildcard
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
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import ParseError, parse, parse_expr
from relaybuild.ir.printer import print_expr, print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import (
    DTYPES,
    Dim,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)

INT = TensorType((), "int32")
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"


def read(text: str) -> Expr:
    """An expression, which must also survive its printed form."""
    found = parse_expr(text)
    assert structural_equal(parse_expr(print_expr(found)), found)
    return found


def read_module(text: str) -> IRModule:
    """A module, which must also survive its printed form."""
    found = parse(text)
    assert structural_equal(parse(print_module(found)), found)
    return found


def annotation(text: str) -> Type | None:
    found = read(f"let %x: {text} = (); ()")
    assert isinstance(found, Let)
    return found.var.type_annotation


def same(text: str, expected: Expr) -> bool:
    return structural_equal(read(text), expected)


def test_comments_are_skipped_anywhere() -> None:
    """IP01: comments."""
    for text in ("// a\n()", "/* a */ ()", "/* a /* b */ c */ ()", "( /* // */ ) // */", "(\n// )\n)"):
        assert same(text, Tuple([]))


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1", 1, "int32"),
        ("-05", -5, "int32"),
        ("9223372036854775807", 9223372036854775807, "int64"),
        ("-42i", -42, "int32"),
        ("1i16", 1, "int16"),
        ("32767i16", 32767, "int16"),
        ("42i32", 42, "int32"),
        ("42i64", 42, "int64"),
    ],
)
def test_integers(text: str, value: int, dtype: str) -> None:
    """IP02: integers have the type of their suffix, without one that of their size."""
    assert same(text, const(value, dtype))


@pytest.mark.parametrize("text", ["2147483648i32", "32768i16"])
def test_integers_out_of_range(text: str) -> None:
    """IP02: an integer that its type cannot hold is an error."""
    with pytest.raises(ParseError, match=f"{text} is out of range for int"):
        parse_expr(text)


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1.0f", 1, "float32"),
        ("1.0", 1, "float32"),
        ("-10.0f", -10, "float32"),
        ("1e-1f", 0.1, "float32"),
        ("1E+1f", 10, "float32"),
        ("2.5f16", 2.5, "float16"),
        ("2.5f32", 2.5, "float32"),
        ("2.5f64", 2.5, "float64"),
        ("2.5bf16", 2.5, "bfloat16"),
    ],
)
def test_floats(text: str, value: float, dtype: str) -> None:
    """IP03: floating-point literals."""
    found = read(text)
    assert isinstance(found, Constant)
    assert (found.dtype, float(found.data)) == (dtype, pytest.approx(value))


@pytest.mark.parametrize("text", ["65505f16", "3.40283e+38f32", "3.4e38bf16"])
def test_floats_out_of_range(text: str) -> None:
    """IP03: a number beyond the largest of its type is an error, even where it would round to it."""
    with pytest.raises(ParseError, match="is out of range for"):
        parse_expr(text)


def test_booleans() -> None:
    """IP04: True and False."""
    assert same("True", const(True))
    assert same("False", const(False))


def test_minus_signs() -> None:
    """IP05: minus signs before a literal are part of it; before anything else each is a call of negative."""
    assert same("--10", const(10))
    assert same("---10", const(-10))
    assert same("-(1)", call_op("negative", [const(1)]))
    assert same("free_var %x: int32; --%x", call_op("negative", [call_op("negative", [var("x", INT)])]))
    assert same("free_var %x: int32; %x -1", call_op("subtract", [var("x", INT), const(1)]))


INFIX = {
    "*": "multiply",
    "/": "divide",
    "+": "add",
    "-": "subtract",
    "<": "less",
    ">": "greater",
    "<=": "less_equal",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}


@pytest.mark.parametrize("symbol", INFIX)
def test_infix_operators(symbol: str) -> None:
    """IP06: every infix operator."""
    assert same(f"1 {symbol} 1", call_op(INFIX[symbol], [const(1), const(1)]))


def test_parentheses() -> None:
    """IP07: parentheses group."""
    assert structural_equal(read("1 * 1 + 1"), read("(1 * 1) + 1"))
    assert not structural_equal(read("1 * 1 + 1"), read("1 * (1 + 1)"))


def test_precedence() -> None:
    """IP08: precedence of infix operators."""
    assert structural_equal(read("1 * 1 + 1 < 1 == True"), read("((1 * 1) + 1 < 1) == True"))
    assert structural_equal(read("True == 1 < 1 + 1 * 1"), read("True == (1 < (1 + (1 * 1)))"))
    assert structural_equal(read("3 - 2 - 1"), read("(3 - 2) - 1"))


def test_names() -> None:
    """IP09: local variables, globals and operators."""
    let = read("let %foo = (); %foo")
    assert isinstance(let, Let)
    assert let.body is let.var
    assert isinstance(read("@foo"), GlobalVar)
    pooled = read("free_var %x: Tensor[(1, 1, 2, 2), float32]; nn.global_avg_pool2d(%x)")
    assert isinstance(pooled, Call)
    assert pooled.op_name == "nn.global_avg_pool2d"


def test_unknown_metadata() -> None:
    """IP10: a reference to metadata that is not there."""
    with pytest.raises(ParseError, match=r"the metadata has no 'type\.key', expected 'relay\.Constant'"):
        parse_expr("meta[type.key][1337]")
    with pytest.raises(ParseError, match="slot 1337: the metadata has 0 constants"):
        parse_expr("meta[relay.Constant][1337]")


def test_lets() -> None:
    """IP11: one let, and two."""
    x, y = Var("x"), Var("y")
    assert same("let %x = 1; ()", Let(x, const(1), Tuple([])))
    assert same("let %x = 1; let %y = 2; ()", Let(x, const(1), Let(y, const(2), Tuple([]))))


def test_sequences() -> None:
    """IP12: a value computed for nothing is a let of a variable that nothing names."""
    assert same("(); ()", Let(Var("_"), Tuple([]), Tuple([])))
    assert same("let %_ = 1; ()", Let(Var("any"), const(1), Tuple([])))


def test_graph_bindings() -> None:
    """IP13: graph bindings name nodes, which are shared, not let."""
    found = read("%0 = (); %1 = 1; (%0, %0, %1)")
    assert isinstance(found, Tuple)
    assert found.fields[0] is found.fields[1]
    assert isinstance(found.fields[2], Constant)


def test_one_graph_binding() -> None:
    """IP14: a graph binding alone."""
    assert same("%1 = (); %1", Tuple([]))


@pytest.mark.parametrize(("text", "found"), [("let @x = 1; ()", "'@x'"), ("let x = 1; ()", "'x'")])
def test_a_let_binds_a_local_variable(text: str, found: str) -> None:
    """IP15, IP16: a let of a global or of an operator's name is an error."""
    with pytest.raises(ParseError, match=f"1:5: found {found}, expected a variable"):
        parse_expr(text)


def test_tuples() -> None:
    """IP17: tuples of none, one, two and three."""
    assert same("()", Tuple([]))
    assert same("(0,)", Tuple([const(0)]))
    assert same("(0, 1)", Tuple([const(0), const(1)]))
    assert same("(0, 1, 2)", Tuple([const(0), const(1), const(2)]))
    assert same("(0)", const(0))


def test_projections() -> None:
    """IP18: a field of a tuple, and of a field."""
    x = var("x", INT)
    assert same("free_var %x: int32; (%x,).0", TupleGetItem(Tuple([x]), 0))
    assert same(
        "free_var %x: int32; ((1, %x), 2).0.1",
        TupleGetItem(TupleGetItem(Tuple([Tuple([const(1), x]), const(2)]), 0), 1),
    )


def test_functions() -> None:
    """IP19: local functions of any number of parameters, annotated or not, with attributes."""
    x, y = Var("x"), Var("y")
    assert same("fn () { () }", Function([], Tuple([])))
    assert same("fn (%x) { %x }", Function([x], x))
    assert same("fn (%x, %y) { %x }", Function([x, y], x))
    z = Var("z", INT)
    assert same("fn (%x: int32) -> int32 { %x }", Function([z], z, INT))
    assert same('fn (%x: int32, n=5, s="a") { () }', Function([z], Tuple([]), attrs={"n": 5, "s": "a"}))


def test_definitions() -> None:
    """IP20: a definition makes a module."""
    x = Var("x", INT)
    assert structural_equal(read_module("def @id(%x: int32) -> int32 { %x }"), IRModule({"id": Function([x], x, INT)}))


def test_recursive_calls() -> None:
    """IP21: a function names itself."""
    body = read_module("def @id(%x: int32) -> int32 { @id(%x) }")["id"].body
    assert isinstance(body, Call)
    assert body.op == GlobalVar("id")


def test_conditionals() -> None:
    """IP22: if and else."""
    assert same("if (True) { 0 } else { 1 }", If(const(True), const(0), const(1)))


def test_scopes_of_branches() -> None:
    """IP23: what one branch binds is unknown in the other."""
    with pytest.raises(ParseError, match="unknown variable '%x'"):
        parse_expr("if (True) { let %x = 1; () } else { %x }")


def test_references() -> None:
    """IP24: references under graph bindings."""
    found = read("%0 = ref(1); let %u = ref_write(%0, 2); ref_read(%0)")
    assert isinstance(found, Let)
    assert isinstance(found.body, RefRead)
    assert isinstance(found.body.ref, RefCreate)


@pytest.mark.parametrize(
    "text",
    [
        "let %c = fn () { 0 }; %c()",
        "let %id = fn (%x: int32) { %x }; 10 * %id(10)",
        "let %k = fn (%x: int32, %y: int32) { %x }; %k(0, 10)",
        "(fn (%x: int32) { %x })(0)",
        "fn (%x: int32) { %x }(0)",
        "let %add = fn (%x: int32) { fn (%y: int32) { %x + %y } }; %add(1)(2)",
        "abs(1)",
    ],
)
def test_calls(text: str) -> None:
    """IP25: calls of variables, of functions where they stand, of what a call returns, of operators."""
    found = read(text)
    tail = found.body if isinstance(found, Let) else found
    assert isinstance(tail, Call)


def test_holes() -> None:
    """IP26: an annotation may leave its type to inference."""
    assert isinstance(annotation("_"), IncompleteType)


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_types(dtype: str) -> None:
    """IP27: every element type is the type of its scalars."""
    assert annotation(dtype) == TensorType((), dtype)


def test_tensor_types() -> None:
    """IP28: tensor types with numbers, names and unknown extents."""
    assert annotation("Tensor[(), float32]") == TensorType((), "float32")
    assert annotation("Tensor[(1), float32]") == TensorType((1,), "float32")
    assert annotation("Tensor[(1,), float32]") == TensorType((1,), "float32")
    assert annotation("Tensor[(1, ?), float32]") == TensorType((1, Dim("?")), "float32")
    assert annotation("Tensor[(n, 2), float32]") == TensorType((Dim("n"), 2), "float32")


def test_function_types() -> None:
    """IP29: function types, also with type parameters."""
    assert annotation("fn () -> int32") == FuncType((), INT)
    assert annotation("fn (int32) -> int32") == FuncType((INT,), INT)
    assert annotation("fn (int32, int32) -> int32") == FuncType((INT, INT), INT)
    a = TypeVar("A")
    assert annotation("fn[A](A) -> A") == FuncType((a,), a, (a,))


def test_tuple_types() -> None:
    """IP30: tuple types."""
    assert annotation("()") == TupleType(())
    assert annotation("(int32,)") == TupleType((INT,))
    assert annotation("(int32, int32)") == TupleType((INT, INT))
    assert annotation("(int32)") == INT


def test_a_types_definition() -> None:
    """IP31: a type of one constructor; the last comma may be missing."""
    for text in ("type Ayy { Nil }", "type Ayy { Nil, }"):
        (nil,) = read_module(text).get_type("Ayy").constructors
        assert (nil.name, nil.inputs, nil.belongs_to) == ("Nil", (), GlobalTypeVar("Ayy"))


def test_a_field_with_an_unknown_extent() -> None:
    """IP32: a constructor's field may have an unknown extent."""
    constructor = read_module("type my_dtype { my_cons(Tensor[(?, 1), float32]) }").get_constructor(
        "my_dtype", "my_cons"
    )
    assert constructor.inputs == (TensorType((Dim("?"), 1), "float32"),)


def test_a_type_without_constructors() -> None:
    """IP33: a type may have no constructors."""
    assert read_module("type Ayy { }").get_type("Ayy").constructors == ()


def test_several_constructors() -> None:
    """IP34: constructors keep their order."""
    data = read_module(LIST).get_type("List")
    assert [each.name for each in data.constructors] == ["Cons", "Nil"]
    assert data.constructors[0].inputs == (TypeVar("A"), TypeCall(GlobalTypeVar("List"), (TypeVar("A"),)))


def test_several_type_parameters() -> None:
    """IP35: several type parameters."""
    data = read_module("type Either[A, B] { Left(A), Right(B) }").get_type("Either")
    assert data.type_vars == (TypeVar("A"), TypeVar("B"))


@pytest.mark.parametrize(("word", "complete"), [("match", True), ("match?", False)])
def test_matches(word: str, complete: bool) -> None:
    """IP36: complete and partial matches, patterns, annotated and not, arms that are blocks."""
    mod = read_module(
        f"{LIST}def @length[A](%xs: List[A]) -> int32 {{ {word} (%xs) {{"
        "Cons(_, %rest: List[A]) => { (); 1 + @length(%rest) }, Nil => 0 } }"
    )
    match = mod["length"].body
    assert isinstance(match, Match)
    assert match.complete is complete
    cons, nil = (clause.pattern for clause in match.clauses)
    assert isinstance(cons, PatternConstructor)
    assert isinstance(nil, PatternConstructor)
    assert isinstance(cons.patterns[0], PatternWildcard)
    assert isinstance(cons.patterns[1], PatternVar)
    assert isinstance(match.clauses[0].body, Let)


def test_constructors_in_expressions() -> None:
    """IP37: a constructor is called; one without fields is a value by its name alone."""
    body = read_module(f"{LIST}def @make(%x: int32) -> List[int32] {{ Cons(%x, Nil) }}")["make"].body
    assert isinstance(body, Call)
    assert isinstance(body.op, Constructor)
    empty = body.args[1]
    assert isinstance(empty, Call)
    assert isinstance(empty.op, Constructor)
    assert (body.op.name, empty.op.name, empty.args) == ("Cons", "Nil", ())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (LIST + "type List[A] { Other(A) }", "List"),
        ("type Ayy { Lmao } type Haha { Lmao }", "Lmao"),
        ("type Ayy { Ayy }", "Ayy"),
        ("type Ayy { Lmao } type Lmao { Haha }", "Lmao"),
        ("type Lmao { Haha } type Ayy { Lmao }", "Lmao"),
        ("def @id() { 1 } def @id() { 2 }", "@id"),
    ],
)
def test_what_is_defined_twice(text: str, name: str) -> None:
    """IP38, IP39, IP40, IP41: a name defined twice among types and constructors, or among functions, is an error."""
    with pytest.raises(ParseError, match=f"'{name}' is defined twice, first at 1:"):
        parse(text)


def test_external_types() -> None:
    """IP42: a type whose values come from elsewhere."""
    data = read_module("extern type T[A]\ndef @f(%x: T[int32]) { %x }").get_type("T")
    assert (data.type_vars, data.constructors) == ((TypeVar("A"),), ())


def mlp(hidden: Expr, bias: Expr) -> IRModule:
    x = var("x", (1, 4))
    dense = call_op("nn.bias_add", [call_op("nn.dense", [x, hidden]), bias])
    params = [each for each in (x, hidden, bias) if isinstance(each, Var)]
    return IRModule({"main": Function(params, call_op("nn.softmax", [call_op("nn.relu", [dense])]))})


def test_a_perceptron() -> None:
    """IP44, TP09: a whole model."""
    mod = mlp(var("w", (3, 4)), var("b", (3,)))
    assert structural_equal(parse(print_module(mod)), mod)


def test_a_perceptron_with_its_weights() -> None:
    """IP45: weights go to the metadata section and come back."""
    mod = mlp(const(np.ones((3, 4), "float32")), const(np.arange(3, dtype="float32")))
    text = print_module(mod)
    assert "meta[relay.Constant][1]" in text
    assert structural_equal(parse(text), mod)


def test_constructors_under_graph_bindings() -> None:
    """IP46: constructors applied under graph bindings, and a comma behind a tuple's last field."""
    mod = read_module(
        """
        type Box[T] { Boxed(T) }
        def @main(%x: Tensor[(3,), float32]) {
          %0 = %x + %x;
          %1 = Boxed(%0);
          %2 = (%0, 1);
          (%1, %2,)
        }
        """
    )
    assert isinstance(mod["main"].body, Tuple)


def test_a_conditional_in_a_graph_binding() -> None:
    """IP47: a graph binding of a conditional."""
    assert isinstance(read("%0 = if (True) { 0 } else { 1 }; %0"), If)


def test_attributes_that_are_strings() -> None:
    """IP48: attributes that are strings, and free variables."""
    found = read(
        """
        free_var %x: Tensor[(1, 32, 32, 16), float32];
        free_var %y: Tensor[(3, 3, 16, 8), float32];
        nn.conv2d(%x, %y, data_layout="NHWC", kernel_layout="HWIO", kernel_size=[3, 3], channels=8)
        """
    )
    assert isinstance(found, Call)
    attrs = dict(found.attrs.items()) if found.attrs is not None else {}
    assert (attrs["data_layout"], attrs["kernel_layout"]) == ("NHWC", "HWIO")


def test_calls_of_functions_take_no_attributes() -> None:
    """IP50: attributes belong to operators; a call of anything else that is given some is an error."""
    with pytest.raises(ParseError, match="only calls of operators take attributes"):
        parse_expr('free_var %f: fn () -> int32; %f(name="a", attrs_type_key="attrs.TestAttrs")')


def test_attributes_that_are_infinite() -> None:
    """IP51: infinite bounds."""
    clip = call_op("clip", [var("x", (3,))], a_min=float("-inf"), a_max=float("inf"))
    text = print_expr(clip, show_spans=True)
    assert "a_max=inf, a_min=-inf" in text
    assert structural_equal(parse_expr(text), clip)


def test_attributes_of_functions() -> None:
    """IP52: attributes of functions, with dotted names too."""
    mod = read_module("def @f(%x: int32, Primitive=1, relay.reshape_only=1) -> int32 { %x }")
    assert mod["f"].attrs == {"Primitive": 1, "relay.reshape_only": 1}


def test_a_text_is_added_to_a_module() -> None:
    """IP53: definitions of a text are added to those of a module, and speak of its types and functions."""
    base = parse(f"{LIST}def @f() -> int32 {{ 1 }}")
    both = parse("def @g() { (@f(), Cons(1, Nil)) }", module=base)
    assert list(both) == ["f", "g"]
    assert list(both.type_definitions) == ["List"]
    text = '\n#[metadata]\n{"relay.Constant": [{"dtype": "float32", "shape": [2]}]}'
    filled = parse("def @h() { meta[relay.Constant][0] }" + text, weights=[np.ones(2, "float32")], module=both)
    assert list(filled) == ["f", "g", "h"]
    with pytest.raises(ParseError, match="'@f' is defined twice, in the module it is added to"):
        parse("def @f() { 2 }", module=base)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_largest_number_of_a_type_is_read_as_it_is_printed(dtype: str) -> None:
    largest = const(np.finfo(dtype).max, dtype)
    for value in (largest, const(-largest.data, dtype)):
        assert structural_equal(parse_expr(print_expr(value)), value)


def test_a_version_that_is_never_closed_is_a_mistake_of_the_text() -> None:
    with pytest.raises(ParseError):
        parse('#[version = "0.0.5')
