"""How texts are laid out, and where their comments go."""

from __future__ import annotations

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.formatter import WIDTH, format_text
from relaybuild.ir.parser import ParseError, parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal

LONG = ", ".join(f"%argument_{index}: Tensor[(3, 4), float32]" for index in range(4))


def laid_out(text: str) -> str:
    found = format_text(text)
    assert format_text(found) == found
    return found


def body(text: str) -> str:
    """How the body of a function is laid out, without its indentation."""
    lines = laid_out(f"def @main(%x: float32, %y: float32) {{ {text} }}").splitlines()
    return "\n".join(line[2:] for line in lines[1:-1])


class TestLines:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("add( %x,%y )", "add(%x, %y)"),
            ("%x+%y*-%x", "%x + %y * -%x"),
            ("%x - -1f", "%x - -1f"),
            ("let %a:float32=%x;%a", "let %a: float32 = %x;\n%a"),
            ("%0=log(%x)\n%0", "%0 = log(%x);\n%0"),
            ("%0 = (%x,)\n (%0.0,%y)", "%0 = (%x,);\n(%0.0, %y)"),
            ("(%x,%y,)", "(%x, %y)"),
            ("add(%x, %y,)", "add(%x, %y)"),
            ("clip( %x,a_min = 0.0,a_max=1.0)", "clip(%x, a_min=0.0, a_max=1.0)"),
            ("if(True){%x}else{%y}", "if (True) {\n  %x\n} else {\n  %y\n}"),
            ("fn(%z:float32){%z}(%x)", "fn (%z: float32) {\n  %z\n}(%x)"),
            ("let %f:fn(float32)->float32=fn(%z:float32){%z}; %x", None),
            ("log({let %a=%x;%a})", "log({\n  let %a = %x;\n  %a\n})"),
            ("match?(%x){_=>%y}", "match? (%x) {\n  _ => %y,\n}"),
            ('%0 = log(%x)#[span("m",1,2)]; %0', '%0 = log(%x) #[span("m", 1, 2)];\n%0'),
            ("Tensor[(2,),int64](1,-2)", "Tensor[(2,), int64](1, -2)"),
        ],
    )
    def test_one_way_to_write_it(self, text: str, expected: str | None) -> None:
        wanted = expected or "let %f: fn(float32) -> float32 = fn (%z: float32) {\n  %z\n};\n%x"
        assert body(text) == wanted

    def test_definitions(self) -> None:
        assert laid_out('#[version="0.0.5"] #[attrs(a=1)] type L[A]{C(A,L[A]),N} extern type T; def @f(){()}') == (
            '#[version = "0.0.5"]\n#[attrs(a=1)]\ntype L[A] {\n  C(A, L[A]),\n  N,\n}\nextern type T\n'
            "def @f() {\n  ()\n}\n"
        )

    def test_one_empty_line_is_kept(self) -> None:
        assert laid_out("\n\ndef @f() {\n\n\n let %a = 1;\n\n\n %a\n\n}\n\n\n\ndef @g() { 1 }\n\n") == (
            "def @f() {\n  let %a = 1;\n\n  %a\n}\n\ndef @g() {\n  1\n}\n"
        )

    def test_long_parameters_stand_one_a_line(self) -> None:
        lines = laid_out(f"def @main({LONG}) -> Tensor[(3, 4), float32] {{ %argument_0 }}").splitlines()
        assert lines[0] == "def @main("
        assert lines[1] == "  %argument_0: Tensor[(3, 4), float32],"
        assert lines[5] == ") -> Tensor[(3, 4), float32] {"

    def test_numbers_fill_lines(self) -> None:
        found = body(f"Tensor[(64,), int64]({','.join(map(str, range(64)))})").splitlines()
        assert found[0] == "Tensor[(64,), int64]("
        assert len(found) == 5
        assert all(len(line) <= WIDTH for line in found)

    def test_long_sums_are_broken_before_operators(self) -> None:
        found = body(" + ".join(["%x * %y"] * 20)).splitlines()
        assert len(found) == 3
        assert all(line.startswith("    + ") for line in found[1:])

    def test_a_line_of_the_width_stays_whole(self) -> None:
        name = "a" * (WIDTH - len("  %x = log(%);") + 1)
        text = f"def @main(%{name}: float32) {{\n  %0 = log(%{name});\n  %0\n}}\n"
        assert f"\n  %0 = log(%{name[:-1]});\n" in laid_out(text.replace(name, name[:-1]))
        assert f"\n  %0 = log(\n    %{name}\n  );\n" in laid_out(text)

    def test_metadata_stays_as_it_is(self) -> None:
        metadata = '#[metadata]\n{"relay.Constant": [ {"dtype":"float32", "shape": [2] } ]}\n'
        assert laid_out("def @f(){meta[relay.Constant][0]}\n" + metadata).endswith("}\n" + metadata)

    def test_depth(self) -> None:
        depth = 2_000
        laid_out(f"def @f() {{ {'(' * depth}1{')' * depth} }}")
        laid_out(f"def @f() {{ {'if (True) {' * depth}1{'} else { 2 }' * depth} }}")


class TestComments:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("// a\n%x", "// a\n%x"),
            ("%0 = log(%x); // a\n%0 // b\n", "%0 = log(%x); // a\n%0 // b"),
            ("%0 = log(%x) // a\n%0", "%0 = log(%x); // a\n%0"),
            ("/* a */ %x", "/* a */\n%x"),
            ("add(%x, // a\n%y)", "add(\n  %x, // a\n  %y\n)"),
            ("add(%x // a\n, %y)", "add(\n  %x, // a\n  %y\n)"),
            ("add(%x, /* a */ %y)", "add(%x, /* a */ %y)"),
            ("add(%x /* a */, %y)", "add(%x /* a */, %y)"),
            ("add( // a\n%x, %y)", "add( // a\n  %x,\n  %y\n)"),
            ("add(%x,\n// a\n%y\n// b\n)", "add(\n  %x,\n  // a\n  %y\n  // b\n)"),
            ("%x + // a\n %y", "%x + /* a */ %y"),
            ("%0 = log(%x);\n\n// a\n\n// b\n%0", "%0 = log(%x);\n\n// a\n\n// b\n%0"),
            ("%x\n// a\n", "%x\n// a"),
        ],
    )
    def test_they_stay_where_they_belong(self, text: str, expected: str) -> None:
        lines = laid_out(f"def @main(%x: float32, %y: float32) {{\n{text}}}").splitlines()
        assert "\n".join(line[2:] for line in lines[1:-1]) == expected

    def test_around_definitions(self) -> None:
        text = "// top\n\n// f\ndef @f() { // body\n  1\n} // end\n// last\n"
        assert laid_out(text) == text

    def test_one_that_cannot_be_kept_is_named(self) -> None:
        with pytest.raises(UserError, match=r"m:2:6: this comment stands in the middle of a line .* move it to a line"):
            format_text("def @f() {\n 1 + // a /* b\n 2 }", "m")


class TestWholeModules:
    TEXT = """
    type List[A] { Cons(A, List[A]), Nil }
    def @sum(%xs: List[int32], %seed: int32) -> int32 {
      match (%xs) { Cons(%x, %rest) => @sum(%rest, %seed + %x), Nil => %seed }
    }
    def @main(%x: int32) {
      let %r = ref(%x);
      %0 = if (%x < 3) { -%x } else { %x * 2 }
      ref_write(%r, %0); (ref_read(%r), @sum(Cons(%0, Nil), 1))
    }
    """

    def test_the_program_is_the_same(self) -> None:
        assert structural_equal(parse(laid_out(self.TEXT)), parse(self.TEXT))

    def test_what_is_printed_is_laid_out(self) -> None:
        text = print_module(parse(self.TEXT))
        assert format_text(text) == text

    def test_types_and_names_may_be_wrong(self) -> None:
        assert laid_out("def @f(%x: Lost) { nonsense(%y) }") == "def @f(%x: Lost) {\n  nonsense(%y)\n}\n"

    def test_structure_may_not(self) -> None:
        with pytest.raises(ParseError, match="expected an expression"):
            format_text("def @f() { 1 + }")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%0 = exp(%x)// a\n;// b\n%0", "%0 = exp(%x); // a\n// b\n%0"),
        ("add(%x // a\n, // b\n%y)", "add(\n  %x, // a\n  // b\n  %y\n)"),
        ("add(%x, %y // a\n, // b\n)", "add(\n  %x,\n  %y // a\n  // b\n)"),
        ("add(%x // a\n, /* b\n  */ %y)", "add(\n  %x, /* b\n*/ // a\n  %y\n)"),
    ],
)
def test_comments_on_both_sides_of_a_separator(text: str, expected: str) -> None:
    """A `//` comment ends its line, and what is laid out stays as it is."""
    assert body(text) == expected
