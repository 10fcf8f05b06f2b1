"""The printer's behaviours that users of Relay know."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Span, Tuple, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.printer import print_expr, print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType

MODELS = Path(os.environ.get("RELAYBUILD_MODELS", Path(__file__).parents[3] / ".models"))


def test_scalars() -> None:
    """TP01: scalars have the suffix of their type."""
    expected = {
        "42i16": "int16",
        "42": "int32",
        "42i64": "int64",
        "3f16": "float16",
        "3f": "float32",
        "3f64": "float64",
    }
    for text, dtype in expected.items():
        assert print_expr(const(int(text.rstrip("f6i4").split("i")[0].split("f")[0] or 0), dtype)) == f"{text}\n"


@pytest.mark.parametrize("count", [9_000, pytest.param(90_000, marks=pytest.mark.slow)])
def test_a_large_graph(count: int) -> None:
    """TP02: a chain of 90,000 calls."""
    x = var("x", (3, 2))
    y: Expr = x
    for _ in range(count):
        y = call_op("add", [y, const(1.0)])
    mod = IRModule.from_expr(Function([x], y))
    text = print_module(mod)
    assert text.count("\n") == count + 3
    assert structural_equal(parse(text), mod)


def test_functions_and_shared_nodes() -> None:
    """TP03: a node used twice is written once."""
    x, y = var("x", (3, 2)), var("y")
    z = call_op("add", [call_op("add", [x, y]), const(1.0)])
    twice = call_op("add", [z, z])
    for node in (twice, Function([x, y], twice)):
        text = print_expr(node)
        assert text.count("add(") == 3
        assert structural_equal(parse_expr(text), node)


def test_modules() -> None:
    """TP04: a module shows its functions, and what a callback says of each node."""
    x, y = Var("x", TensorType((), "float32")), Var("y", TensorType((), "float32"))
    z = call_op("add", [x, y])
    mod = IRModule({"myf": Function([x, y], call_op("add", [z, z]))})
    for text in (mod.astext(), str(mod), print_module(mod, show_types=True)):
        assert "def @myf" in text
        assert "add(%0, %0)" in text
    assert "add(%0, %0) /* ty=float32 */" in print_module(mod, show_types=True)
    assert "add(%0, %0) /* Call */" in print_module(mod, annotate=lambda node: type(node).__name__)


def test_metadata() -> None:
    """TP05: weights stand in the metadata section of a module's text, and not in its string."""
    x = var("x", (1, 3, 8, 8))
    weight = const(np.ones((2, 3, 1, 1), "float32"))
    mod = IRModule.from_expr(Function([x], call_op("nn.conv2d", [x, weight], channels=2, kernel_size=(1, 1))))
    for text in (mod.astext(), str(mod)):
        assert "channels=2" in text
        assert "meta[relay.Constant][0]" in text
    assert '"dtype": "float32"' in mod.astext()
    assert "dtype" not in str(mod)


def test_attributes_of_calls() -> None:
    """TP06: attributes are shown where they are not the default."""
    x = var("x", (1, 2, 3))
    assert "nn.softmax(%x)" in print_expr(call_op("nn.softmax", [x]))
    assert "axis=1" in print_expr(call_op("nn.softmax", [x], axis=1))
    assert "num_newaxis=2" in print_expr(call_op("expand_dims", [x], axis=0, num_newaxis=2))


def test_lets_and_conditionals() -> None:
    """TP07: braces, the signature, and names that occur twice."""
    cond, x = Var("cond", TensorType((), "bool")), var("x", (3,))
    y, z = Var("y"), Var("y")
    body = If(cond, Let(y, x, Let(z, call_op("add", [y, y]), z)), Let(Var("y"), x, x))
    text = print_module(IRModule({"main": Function([cond, x], body)}))
    assert text.count("{") == 3
    assert "%cond: bool" in text
    assert "let %y = %x;" in text
    assert "let %y1 = add(%y, %y);" in text
    assert structural_equal(parse(text)["main"].body, body)


def test_names_that_are_numbers() -> None:
    """TP08: a variable called 1 is not the node 1."""
    x = var("1", (3,))
    text = print_expr(Function([x], call_op("log", [x])))
    assert '%"1"' in text
    function = parse_expr(text)
    assert isinstance(function, Function)
    assert function.params[0].name_hint == "1"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_whole_models(path: Path) -> None:
    """TP10, TP11: whole models survive their text."""
    from relaybuild.frontend.onnx import import_model

    mod = import_model(path, _shapes(path)).module
    assert structural_equal(parse(print_module(mod)), mod)


def _shapes(path: Path) -> dict[str, list[int]]:
    """Shapes for inputs that leave some open: one image, of 64 rows and columns, or one sequence of samples."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    sizes = {"batch": 1, "sequence": 576}
    found = {}
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name not in weights and any(dim.dim_value < 1 for dim in dims):
            open_sizes = (sizes.get(dim.dim_param, 64 if place else 1) for place, dim in enumerate(dims))
            found[value.name] = [size if dim.dim_value < 1 else dim.dim_value for dim, size in zip(dims, open_sizes)]
    return found


def test_the_order_of_calls() -> None:
    """TP18: nodes are numbered in the order of evaluation."""
    x, y = Var("x"), Var("y")
    inner = Call(Function([y], y), [const(1)])
    text = print_expr(Call(Function([x], x), [inner]))
    assert text == "%0 = fn (%x) {\n  %x\n};\n%1 = fn (%y) {\n  %y\n};\n%2 = %1(1);\n%0(%2)\n"


def test_tuples_in_lets() -> None:
    """TP19: a tuple used twice is named, one used once stands where it is used."""
    x = var("x", (3,))
    shared = Tuple([const(1), const(1)])
    text = print_expr(Let(Var("a"), shared, Let(Var("b"), Tuple([x, x]), shared)))
    assert text.splitlines()[1:] == ["%0 = (1, 1);", "let %a = %0;", "let %b = (%x, %x);", "%0"]


def test_calls_without_arguments() -> None:
    """TP20: an operator without arguments."""
    numbers = call_op("arange", [], start=0, stop=3)
    text = print_expr(numbers)
    assert text.startswith("arange(")
    assert structural_equal(parse_expr(text), numbers)


def test_constructors_that_are_not_applied() -> None:
    """TP21: a constructor with its fields in the definition, bare in an expression."""
    mod = parse(
        "type my_type { my_cons(Tensor[(), float32], int32), Empty }\ndef @f() { (my_cons, constructor(Empty), Empty) }"
    )
    text = print_module(mod)
    assert "my_cons(float32, int32)," in text
    assert "(my_cons, constructor(Empty), Empty)" in text
    assert structural_equal(parse(text), mod)


def test_attributes_that_are_none() -> None:
    """TP22: None is a value."""
    x = Var("x", TensorType((), "float32"))
    function = Function([x], x, attrs={"TestAttribute": None})
    assert "TestAttribute=None" in print_expr(function)
    assert structural_equal(parse_expr(print_expr(function)), function)


def test_spans() -> None:
    """TP23: the spans of nodes, if they are asked for."""
    x = var("x", (3,))
    inner = call_op("add", [x, x], span=Span("Add0", "", 0, 0))
    outer = call_op("add", [inner, x], span=Span("Add1", "node", 0, 0))
    text = print_expr(outer, show_spans=True)
    assert '%0 = add(%x, %x) #[span("Add0")];' in text
    assert 'add(%0, %x) #[span("Add1", "node")]' in text
    assert "Add" not in print_expr(outer)


def test_types_of_every_node() -> None:
    """TP24: an annotation of every node, constants too."""
    c = const(1)
    text = print_expr(call_op("add", [c, c]), annotate=lambda node: f"ty={node.checked_type}")
    assert text.count("/* ty=int32 */") == 3


def test_names_with_slashes() -> None:
    """TP25: names with slashes, as other frameworks give them."""
    for name in ("base/x", "base//x", "base/1"):
        x = var(name, (3,))
        back = parse_expr(print_expr(Function([x], call_op("log", [x]))))
        assert isinstance(back, Function)
        assert back.params[0].name_hint == name
    assert structural_equal(parse_expr("fn (%base/x) { %base/x }"), parse_expr('fn (%"base/x") { %base/x }'))


def test_every_bfloat16_survives() -> None:
    """Scalars of bfloat16 have a literal for each of their values."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    for value in bits.view(ml_dtypes.bfloat16):
        constant = Constant(np.asarray(value))
        back = parse_expr(print_expr(constant))
        assert isinstance(back, Constant)
        assert back.data.tobytes() == constant.data.tobytes() or value != value
