"""What is printed is read back as the same program."""

import numpy as np
import pytest

from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import ParseError, parse, parse_expr
from relaybuild.ir.printer import constant_text, print_expr, print_module
from relaybuild.ir.structural import structural_equal, weight_slots
from relaybuild.ir.types import Dim, FuncType, TensorType, TupleType, TypeVar

F3 = TensorType((3,), "float32")


def round_trip(mod: IRModule) -> IRModule:
    text = print_module(mod)
    back = parse(text)
    assert structural_equal(mod, back), text
    assert print_module(back) == text
    return back


class TestPrint:
    def test_one_call_per_line_and_a_shared_node_once(self) -> None:
        x = var("x", (3,))
        y = call_op("log", [x])
        text = print_module(IRModule.from_expr(Function([x], call_op("add", [y, y]))))
        assert text == (
            '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3,), float32]) {\n  %0 = log(%x);\n  add(%0, %0)\n}\n'
        )

    def test_a_node_used_by_both_branches_leaves_the_conditional(self) -> None:
        x, b = var("x", (3,)), var("b", (), "bool")
        y, z = call_op("exp", [x]), call_op("log", [x])
        node = If(b, Tuple([y, z]), Tuple([y, y]))
        text = print_module(IRModule.from_expr(Function([b, x], node)))
        lines = [line.strip() for line in text.splitlines()]
        assert lines.index("%0 = exp(%x);") < lines.index("if (%b) {") < lines.index("%1 = log(%x);")
        round_trip(IRModule.from_expr(Function([b, x], node)))

    def test_variables_of_one_name_are_told_apart(self) -> None:
        a, b = var("x", (3,)), var("x", (3,))
        mod = IRModule.from_expr(Function([a, b], call_op("subtract", [b, a])))
        assert "subtract(%x1, %x)" in print_module(mod)
        round_trip(mod)

    def test_a_module_as_a_string_has_neither_version_nor_metadata(self) -> None:
        mod = IRModule({"main": Function([], const(np.ones(2, "float32")))}, {"a": 1})
        assert str(mod) == "#[attrs(a=1)]\ndef @main() {\n  meta[relay.Constant][0]\n}\n"
        assert mod.astext() == print_module(mod)

    def test_types_as_comments(self) -> None:
        x = var("x", (3,))
        text = print_module(IRModule.from_expr(Function([x], call_op("log", [x]))), show_types=True)
        assert "log(%x) /* ty=Tensor[(3,), float32] */" in text

    def test_free_variables_of_an_expression_are_declared(self) -> None:
        text = print_expr(call_op("log", [var("x", (3,))]))
        assert text == "free_var %x: Tensor[(3,), float32];\nlog(%x)\n"
        assert structural_equal(parse_expr(text), call_op("log", [var("z", (3,))]))


class TestConstants:
    @pytest.mark.parametrize(
        ("value", "dtype", "text"),
        [
            (42, "int32", "42"),
            (42, "int64", "42i64"),
            (42, "int16", "42i16"),
            (-128, "int8", "-128i8"),
            (255, "uint8", "255u8"),
            (2**64 - 1, "uint64", "18446744073709551615u64"),
            (3, "float32", "3f"),
            (3, "float16", "3f16"),
            (3, "float64", "3f64"),
            (0.1, "float32", "0.1f"),
            (1e-30, "float32", "1e-30f"),
            (-0.0, "float32", "-0f"),
            (float("inf"), "float32", "inff"),
            (float("-inf"), "float64", "-inff64"),
            (float("nan"), "float32", "nanf"),
            (True, "bool", "True"),
        ],
    )
    def test_scalars_stand_inline(self, value: float, dtype: str, text: str) -> None:
        node = const(value, dtype)
        assert constant_text(node) == text
        assert structural_equal(parse_expr(text), node)

    @pytest.mark.parametrize(
        "data",
        [
            np.arange(6, dtype="int64").reshape(2, 3),
            np.zeros((0, 3), "int32"),
            np.array([True, False]),
            np.array([np.nan], "float32"),
            np.array([-0.0], "float16"),
        ],
    )
    def test_small_tensors_stand_inline(self, data: np.ndarray) -> None:
        node = Constant(data)
        assert "meta" not in print_expr(node)
        assert structural_equal(parse_expr(print_expr(node)), node)

    def test_weights_are_slots_in_order_of_use(self) -> None:
        x = var("x", (2,))
        w, v = const(np.array([1.5, np.nan], "float32")), const(np.array([-0.0, np.inf], "float32"))
        mod = IRModule.from_expr(Function([x], call_op("add", [call_op("multiply", [x, w]), call_op("add", [w, v])])))
        text = print_module(mod)
        assert "%0 = multiply(%x, meta[relay.Constant][0]);" in text
        assert "%1 = add(meta[relay.Constant][0], meta[relay.Constant][1]);" in text
        back = round_trip(mod)
        assert [slot.data.tobytes() for slot in weight_slots(back)] == [w.data.tobytes(), v.data.tobytes()]

    @pytest.mark.parametrize("form", ["digest", "slot"])
    def test_weights_can_be_kept_elsewhere(self, form: str) -> None:
        mod = IRModule.from_expr(const(np.arange(4, dtype="float32")))
        text = print_module(mod, weights=form)  # type: ignore[arg-type]
        assert '"data"' not in text
        assert structural_equal(parse(text, weights=[np.arange(4, dtype="float32")]), mod)
        with pytest.raises(ParseError, match="it holds no data"):
            parse(text)

    def test_the_wrong_array_for_a_digest_is_refused(self) -> None:
        text = print_module(IRModule.from_expr(const(np.arange(4, dtype="float32"))), weights="digest")
        with pytest.raises(ParseError, match="does not have the digest"):
            parse(text, weights=[np.ones(4, "float32")])

    @pytest.mark.parametrize(
        "text", ["2147483648i32", "32768i16", "256u8", "-1u8", "65520f16", "3.5e38f32", "1.5i32", "1e400f64"]
    )
    def test_literals_out_of_range(self, text: str) -> None:
        with pytest.raises(ParseError):
            parse_expr(text)

    def test_a_large_integer_is_int64(self) -> None:
        assert parse_expr("9223372036854775807").tensor_type.dtype == "int64"

    def test_signs(self) -> None:
        assert structural_equal(parse_expr("--10"), const(10))
        assert structural_equal(parse_expr("---10"), const(-10))


class TestRoundTrip:
    @pytest.mark.parametrize("name", ["x", "1", "a.b", "a/b", "/conv/out:0", 'q"\\\n', "é", "", "let", "%x", "\ud800"])
    def test_any_name(self, name: str) -> None:
        x = var(name, (3,))
        back = round_trip(IRModule({name: Function([x], call_op("log", [x]), attrs={name: name})}))
        assert back[name].params[0].name_hint == name

    def test_attributes_of_functions_and_modules(self) -> None:
        attrs = {
            "Compiler": "x",
            "relay.reshape_only": 1,
            "f": 1.0,
            "i": 1,
            "b": True,
            "n": None,
            "t": ((1, 2.5), (), ("a",)),
            "inf": (float("inf"), float("-inf"), float("nan"), -0.0, 1e-300),
        }
        mod = IRModule({"main": Function([], Tuple([]), attrs=attrs)}, attrs)
        assert repr(round_trip(mod)["main"].attrs) == repr(mod["main"].attrs)

    def test_attributes_of_calls(self) -> None:
        x = var("x", (2, 3))
        for call in (
            call_op("clip", [x], a_min=float("-inf"), a_max=0.5),
            call_op("clip", [x], a_min=None, a_max=1.0),
            call_op("cast", [x], dtype="int64"),
        ):
            round_trip(IRModule.from_expr(Function([x], call)))

    def test_closures_lets_and_projections(self) -> None:
        x, f, y, n = var("x", (3,)), Var("f"), var("y", (3,)), Var("n")
        closure = Function([y], call_op("add", [y, x]))
        pair = Tuple([Tuple([Call(f, [x])]), x])
        inner = Let(n, TupleGetItem(TupleGetItem(pair, 0), 0), Tuple([n, n]))
        round_trip(IRModule.from_expr(Function([x], Let(f, closure, TupleGetItem(inner, 1)))))

    def test_a_let_inside_an_expression_keeps_its_block(self) -> None:
        x, a, b = var("x", (3,)), Var("a"), Var("b")
        let = Let(a, call_op("log", [x]), Let(b, call_op("exp", [a]), call_op("add", [a, b])))
        back = round_trip(IRModule.from_expr(Function([x], call_op("add", [let, x]))))
        assert isinstance(back["main"].body, Call)

    def test_polymorphism_and_dimensions(self) -> None:
        a = TypeVar("A")
        kind = FuncType((a, TupleType((TensorType((Dim("n"), Dim("?"), Dim("odd name")), "int8"),))), TupleType(()))
        g = Var("g", FuncType((kind,), a, (TypeVar("B"),)))
        x = Var("x", a)
        round_trip(IRModule({"f": Function([g, x], x, a, [a, TypeVar("float32")])}))

    def test_recursion(self) -> None:
        mod = parse(
            """
            def @down(%x: int32) -> int32 {
              let %f = fn (%y: int32) -> int32 { if (%y < 1) { %y } else { %f(%y - 1) } };
              if (%x == 0) { %x } else { @down(%f(%x)) }
            }
            """
        )
        round_trip(mod)

    def test_sharing_counts(self) -> None:
        x = var("x", (3,))
        once = call_op("log", [x])
        shared = Function([x], call_op("add", [once, once]))
        twice = Function([x], call_op("add", [call_op("log", [x]), call_op("log", [x])]))
        assert not structural_equal(shared, twice)
        assert structural_equal(parse(print_module(IRModule.from_expr(twice)))["main"], twice)

    @pytest.mark.parametrize("length", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
    def test_long_chains_of_every_kind(self, length: int) -> None:
        x = var("x", (3,))
        calls: Expr = x
        fields: Expr = x
        lets: Expr = x
        for _ in range(length):
            calls = call_op("add", [calls, x])
            fields = TupleGetItem(Tuple([fields]), 0)
            name = Var("v", F3)
            lets = Let(name, x, lets)
        for body in (calls, fields, lets):
            mod = IRModule.from_expr(Function([x], body))
            assert structural_equal(parse(print_module(mod)), mod)

    def test_deep_nesting_of_text(self) -> None:
        depth = 20_000
        assert structural_equal(parse_expr("(" * depth + "1" + ")" * depth), const(1))
        assert parse_expr("-(" * depth + "1" + ")" * depth).tensor_type.dtype == "int32"
        parse(f"def @main(%x: {'(' * depth}float32{')' * depth}) {{ %x }}")
