"""What texts denote, and what is said of those that denote nothing."""

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, GlobalVar, Let, Tuple
from relaybuild.ir.parser import ParseError, parse, parse_expr
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType

F3 = TensorType((3,), "float32")


def body_of(text: str) -> Expr:
    return parse(f"def @main(%x: float32, %b: bool) {{ {text} }}")["main"].body


class TestParse:
    def test_the_infix_operators_and_their_order(self) -> None:
        names = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "<": "less", ">=": "greater_equal"}
        for symbol, name in names.items():
            assert structural_equal(parse_expr(f"1 {symbol} 2"), parse_expr(f"{name}(1, 2)"))
        assert structural_equal(parse_expr("1*1+1<1==True"), parse_expr("(((1*1)+1)<1)==True"))
        assert structural_equal(parse_expr("5-2-1"), parse_expr("(5-2)-1"))
        assert structural_equal(body_of("%x -1f"), body_of("subtract(%x, 1f)"))

    def test_a_lines_end_in_place_of_a_semicolon(self) -> None:
        mod = parse("def @f(%x, %y, %z) {\n %1 = mul(%x, %y)\n %2 = sub(%1, %z)\n (%2, %1)\n}")
        assert structural_equal(mod["f"], parse("def @f(%a, %b, %c){%0 = %a * %b; (%0 - %c, %0)}")["f"])

    def test_comments(self) -> None:
        assert structural_equal(parse_expr("// a\n1 /* b /* c */ d */ + 2"), parse_expr("1 + 2"))

    def test_a_value_may_be_computed_for_nothing(self) -> None:
        assert isinstance(parse_expr("(); 1"), Let)

    def test_chained_projection(self) -> None:
        found = body_of("((%x, %b), %x).0.1")
        assert found.tensor_type.dtype == "bool"

    def test_a_call_begins_on_its_callees_line(self) -> None:
        found = parse("def @f(%x) {\n %1 = log(%x)\n (%1, %1)\n}")["f"].body
        assert isinstance(found, Tuple)

    def test_globals(self) -> None:
        mod = parse("def @f(%x: float32) { log(%x) } def @g(%x: float32) { @f(%x) }")
        body = mod["g"].body
        assert isinstance(body, Call)
        assert isinstance(body.op, GlobalVar)
        assert body.tensor_type == TensorType(())

    def test_calls_keep_their_position(self) -> None:
        span = parse("def @f(%x: float32) {\n  log(%x)\n}", "model.relay")["f"].body.span
        assert str(span) == "model.relay:2:3"


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("add(%x, %q)", "m:1:44: unknown variable '%q'"),
            ("%x; %3", "unknown node '%3'"),
            ("logg(%x)", "unknown operator 'logg'; the nearest are log"),
            ("log(%x, base=2)", "'log' has no attribute 'base'"),
            ("log(%x, %x)", "'log' got 2 arguments, expected 1"),
            ("let @y = %x; %x", "found '@y', expected a variable such as '%x'"),
            ("let log = %x; %x", "found 'log', expected a variable"),
            ("if (%b) { let %v = 1; %v } else { %v }", "unknown variable '%v'"),
            ("%x.0", "expected a tuple"),
            ("(%x,).1", "field 1 of a tuple of 1 fields"),
            ("@g(%x)", "unknown function '@g'; the module has '@main'"),
            ("meta[relay.Constant][0]", "slot 0: the metadata has 0 constants"),
            ("meta[relay.Var][0]", "no 'relay.Var'"),
            ("if (%x) { 1 } else { 2 }", "the condition has type float32, expected bool"),
            ("if (%b) { 1 } else { 2f }", "the branches have types int32 and float32"),
            ("$", "unexpected character"),
            ("/* ", "never closed"),
            ("%x %x", "expected ';' or '}'"),
            ('log(%x, "\\q"=1)', "escape"),
            ("9" * 5000, "a number of 5000 digits"),
            ("arange(stop=inf)", "'arange' does not take these attributes: cannot convert float infinity to integer"),
            ("clip(%x, a_min=0.0, a_min=1.0)", "attribute 'a_min' is given twice"),
            ("(fn () { 1 })(a=1)", "only calls of operators take attributes"),
            ("Tensor[(2,), float32](1)", "a Tensor[(2,), float32] written with 1 elements"),
        ],
    )
    def test_the_message_and_its_place(self, text: str, message: str) -> None:
        with pytest.raises(ParseError) as caught:
            parse(f"def @main(%x: float32, %b: bool) {{ {text} }}".replace("    ", ""), "m")
        assert message in str(caught.value)
        assert str(caught.value).startswith("m:1:")

    def test_several_at_once_with_carets(self) -> None:
        with pytest.raises(ParseError) as caught:
            parse("def @f(%x: float32) { log(%y) }\ndef @g( { 1 }\ndef @g() { 1 +\n}", "m")
        assert str(caught.value) == (
            "m:1:27: unknown variable '%y'\n    def @f(%x: float32) { log(%y) }\n                              ^\n"
            "m:2:9: found '{', expected ',' or ')' to close the '(' at 2:7\n    def @g( { 1 }\n            ^\n"
            "m:4:1: found '}', expected an expression\n    }\n    ^"
        )

    def test_definitions_twice(self) -> None:
        with pytest.raises(ParseError, match="'@id' is defined twice"):
            parse("def @id() { 1 } def @id() { 1 }")
        with pytest.raises(ParseError, match="parameter '%x' is declared twice"):
            parse("def @id(%x, %x) { 1 }")

    def test_another_version(self) -> None:
        with pytest.raises(ParseError, match=r"expected .0\.0\.5."):
            parse('#[version = "0.0.4"]\ndef @main() { 1 }')

    @pytest.mark.parametrize(
        "metadata",
        [
            "",
            "{",
            "[]",
            '{"relay.Constant": 3}',
            '{"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AAAA"}]}',
            '{"relay.Constant": [{"dtype": "float32", "shape": [1], "data": "!"}]}',
            '{"relay.Constant": [{"dtype": "object", "shape": [1], "data": ""}]}',
            '{"relay.Constant": [{"dtype": "float32", "shape": [-1], "data": ""}]}',
            '{"relay.Constant": [{"shape": [1], "data": ""}]}',
        ],
    )
    def test_broken_metadata(self, metadata: str) -> None:
        with pytest.raises(ParseError, match="the metadata cannot be read"):
            parse(f"def @main() {{ 1 }}\n#[metadata]{metadata}")

    def test_errors_are_the_users(self) -> None:
        with pytest.raises(UserError):
            parse_expr("")
