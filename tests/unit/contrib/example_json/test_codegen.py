"""Regions as ExampleJSON: the text itself, and its results against the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, mutually_broadcastable_shapes

from relaybuild import relay
from relaybuild.contrib.example_json import BACKEND
from relaybuild.contrib.example_json.codegen import subgraph_text, supports
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.runtime import load_from_binary
from relaybuild.runtime.blob import frame

HEAD = '#[version = "0.0.5"]\n'

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
UNARY = ("negative", "abs", "sign", "nn.relu", "copy")
FLOAT_UNARY = ("sqrt", "floor", "ceil", "round", "trunc")


def function(text: str) -> Function:
    main = infer_types(parse(HEAD + text))["main"]
    assert isinstance(main, Function)
    return main


def results(main: Function, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """What the runtime computes of the text that a function becomes, in arrays that held other numbers before."""
    module = load_from_binary("", frame("examplejson", "USE_EXAMPLE_JSON", subgraph_text(main, "region").encode()))
    body = main.body.checked_type
    kinds = list(getattr(body, "fields", (body,)))
    outputs = [np.full(kind.static_shape, 77, kind.dtype) for kind in kinds]
    module.get_function("region")(*arguments, *outputs)
    return outputs


def check(main: Function, arguments: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        wanted = interpret(IRModule({"main": main}), *arguments)
    for want, have in zip(wanted if isinstance(wanted, tuple) else (wanted,), results(main, arguments), strict=True):
        assert np.asarray(want).dtype == have.dtype
        np.testing.assert_array_equal(want, have)


def test_the_example_of_the_format() -> None:
    main = function("""
    def @main(%a: Tensor[(10, 10), float32], %b: Tensor[(10, 10), float32], %c: Tensor[(10, 10), float32],
              %d: Tensor[(10, 10), float32]) {
      multiply(subtract(add(%a, %b), %c), %d)
    }
    """)
    assert (
        subgraph_text(main, "subgraph_0")
        == """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
"""
    )


def test_dtypes_scalars_constants_and_several_outputs() -> None:
    main = function("""
    def @main(%a: int64, %b: (Tensor[(2, 1), float64], Tensor[(3), float64])) {
      let %s = add(%b.0, %b.1);
      (multiply(%s, 0.1f64), %a, %s, add(%a, %a))
    }
    """)
    assert (
        subgraph_text(main, "several")
        == """\
several
  input 0 dtype: int64
  input 1 2 1 dtype: float64
  input 2 3 dtype: float64
  add 3 inputs: 1 2 shape: 2 3 dtype: float64
  const 4 dtype: float64 value: 0x1.999999999999ap-4
  mul 5 inputs: 3 4 shape: 2 3 dtype: float64
  add 6 inputs: 0 0 shape: dtype: int64
  output 5 0 3 6
"""
    )
    rng = np.random.default_rng(0)
    doubles = [rng.standard_normal((2, 1)), rng.standard_normal(3)]
    scaled, same, total, twice = results(main, [np.array(21), *doubles])
    np.testing.assert_array_equal(total, doubles[0] + doubles[1])
    np.testing.assert_array_equal(scaled, total * 0.1)
    assert (same, twice) == (21, 42)


def test_one_number_stands_for_equal_elements_and_signs_of_zero_differ() -> None:
    param = relay.var("x", shape=(2, 2), dtype="float32")
    values = np.array([[0.0, -0.0], [0.0, 0.0]], "float32")
    for constant, text in ((np.full((2, 2), 3, "float32"), "0x1.8000000000000p+1"), (values, "0x0.0p+0 -0x0.0p+0")):
        line = subgraph_text(Function([param], call_op("add", [param, Constant(constant)])), "s").splitlines()[2]
        assert line.startswith(f"  const 1 2 2 value: {text}")
        assert len(line.split("value:")[1].split()) == (1 if constant is not values else 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_constants_are_exact(dtype: str) -> None:
    if dtype.startswith("int"):
        info = np.iinfo(dtype)
        values = np.array([info.min, info.max, 0, -1], dtype)
    else:
        limits = np.finfo(dtype)
        values = [limits.max, limits.tiny, limits.smallest_subnormal, limits.eps, -0.0, np.inf, -np.inf, np.nan, 0.1]
        values = np.array([*values, *(-value for value in values)], dtype)
    x = relay.var("x", shape=(1,), dtype=dtype)
    (found,) = results(Function([x], Constant(values)), [np.zeros(1, dtype)])
    np.testing.assert_array_equal(found, values)
    assert np.array_equal(np.signbit(found[values == 0]), np.signbit(values[values == 0]))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias_runs_along_its_axis(axis: int) -> None:
    shape = (2, 3, 4)
    bias = shape[axis]
    main = function(f"""
    def @main(%x: Tensor[(2, 3, 4), float32], %b: Tensor[({bias}), float32]) {{ nn.bias_add(%x, %b, axis={axis}) }}
    """)
    rng = np.random.default_rng(1)
    check(main, [rng.standard_normal(shape, "float32"), rng.standard_normal(bias, "float32")])


def test_what_only_changes_the_shape() -> None:
    main = function("""
    def @main(%x: Tensor[(2, 1, 6), int32]) {
      (reshape(%x, newshape=[3, -1]), squeeze(%x, axis=[1]), nn.batch_flatten(%x), expand_dims(%x, axis=0), %x, %x)
    }
    """)
    check(main, [np.arange(12, dtype="int32").reshape(2, 1, 6)])


def test_a_region_may_be_named_as_an_operator_is() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    text = subgraph_text(Function([x], call_op("add", [x, x])), "add")
    assert text.startswith("subgraph add\n")
    assert load_from_binary("", frame("examplejson", "", text.encode())).function_names == ("add",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def @main(%x: Tensor[(2), float16]) { nn.relu(%x) }",
            "found float16, expected float32, float64, int32, int64",
        ),
        ("def @main(%x: Tensor[(2), float32]) { exp(%x) }", False),
        ("def @main(%x: Tensor[(2), float32]) { nn.relu(%x) }", True),
    ],
)
def test_what_is_taken(text: str, reason: bool | str) -> None:
    call = function(text).body
    assert isinstance(call, Call)
    assert supports(call) == reason
    assert BACKEND.supports(call) == reason


def test_a_symbolic_extent_is_declined() -> None:
    call = function("def @main(%x: Tensor[(?, 2), float32]) { nn.relu(%x) }").body
    assert isinstance(call, Call)
    assert "expected tensors whose shapes are numbers" in str(supports(call))


def test_an_operator_that_slipped_through_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ExampleJSON has nothing for 'exp', expected one of abs, add"):
        subgraph_text(function("def @main(%x: Tensor[(2), float32]) { exp(%x) }"), "s")


@st.composite
def regions(draw: st.DrawFn) -> tuple[Function, list[np.ndarray]]:
    """A function over two to four tensors of ranks 0 to 6 that broadcast together, and arguments for it."""
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "int64"]))
    shapes = draw(mutually_broadcastable_shapes(num_shapes=draw(st.integers(2, 4)), min_side=0, max_side=3, max_dims=6))
    arguments = [draw(arrays(dtype, shape)) for shape in shapes.input_shapes]
    params = [relay.var(f"x{number}", shape=each.shape, dtype=dtype) for number, each in enumerate(arguments)]
    values: list[Expr] = list(params)
    unary = (*UNARY, *(FLOAT_UNARY if dtype.startswith("float") else ()))
    for _ in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from((*BINARY, *unary)))
        # a node may be read many times, or never
        operands = [draw(st.sampled_from(values)) for _ in range(2 if op in BINARY else 1)]
        values.append(call_op(op, operands))
    fields = [draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 3)))]
    return Function(params, Tuple(fields)), arguments


@settings(max_examples=150, deadline=None)
@given(regions())
def test_random_regions_are_what_the_interpreter_computes(region: tuple[Function, list[np.ndarray]]) -> None:
    check(*region)


def test_fields_of_tuples_are_found() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    y = relay.var("y", shape=(3,), dtype="float32")
    pair = Tuple([Tuple([x, y]), call_op("add", [x, x])])
    picked = Function([x, y], TupleGetItem(TupleGetItem(pair, 0), 1))
    assert subgraph_text(picked, "s").endswith("output 1\n")
