"""The module that executes ExampleJSON: texts written by hand, mistakes and their lines, state that is not shared."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import relaybuild
from relaybuild.errors import UserError
from relaybuild.runtime import load_from_binary
from relaybuild.runtime.blob import frame

EXAMPLE = """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
"""


def module(text: str) -> relaybuild.runtime.Module:
    return load_from_binary("examplejson", frame("examplejson", "USE_EXAMPLE_JSON", text.encode()))


def run(text: str, *arrays: np.ndarray, name: str = "s") -> None:
    module(text).get_function(name)(*arrays)


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mysubgraph.examplejson"
    path.write_text(EXAMPLE)
    loaded = relaybuild.load_module(path, "examplejson")
    assert loaded.type_key == "examplejson"
    assert loaded.get_source() == EXAMPLE
    assert loaded.function_names == ("subgraph_0",)
    a, b, c, d = np.random.default_rng(0).standard_normal((4, 10, 10), "float32")
    out = np.zeros((10, 10), "float32")
    loaded.get_function("subgraph_0")(a, b, c, d, out)
    np.testing.assert_array_equal(out, (a + b - c) * d)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE.replace("add 4", "4 add").replace("mul 6", "6 mul").replace("input 2", "2 input"),
        EXAMPLE.replace("\n", "\r\n"),
        EXAMPLE.replace("  ", "\t").replace("\n", " # a comment: inputs: 9\n\n"),
        EXAMPLE.replace("inputs: 4 2 shape: 10 10", "dtype: float32 shape: 10 10 inputs: 4 2"),
        EXAMPLE.replace(" 4", " 400").replace("input 0", "input 000"),
        EXAMPLE.replace("subgraph_0", "subgraph subgraph_0").rstrip("\n"),
    ],
    ids=["id first", "CR LF", "tabs and comments", "order of clauses", "any numbers", "header with its keyword"],
)
def test_ways_to_write_the_same(text: str) -> None:
    a, b, c, d = np.random.default_rng(0).standard_normal((4, 10, 10), "float32")
    out = np.zeros((10, 10), "float32")
    run(text, a, b, c, d, out, name="subgraph_0")
    np.testing.assert_array_equal(out, (a + b - c) * d)


BAD_LINES = [
    ("input 0 2\n  add 1 inputs: 0 0 shape: 2", 1, "a statement stands before any subgraph"),
    ("s\n  input", 2, "'input' stands alone, expected a number behind it"),
    ("subgraph", 1, "'subgraph' stands alone, expected a name behind it"),
    ("7up", 1, "'7up' is neither a statement nor a subgraph's name"),
    (
        "s\n input 0 2\n conv 1 inputs: 0 shape: 2",
        3,
        "there is no operator 'conv', expected input, const, output or one",
    ),
    ("s\n input x 2", 2, "expected the number of a node behind 'input', found 'x'"),
    ("s\n input dtype: float32", 2, "expected the number of a node behind 'input', found none"),
    ("s\n input 0 -2", 2, "expected an extent, a number of 0 to 9223372036854775807, found '-2'"),
    ("s\n input 0 99999999999999999999", 2, "expected an extent"),
    ("s\n input 0 9223372036854775807 2", 2, "is too large for any memory"),
    ("s\n input 0 0 9223372036854775807", 2, "is too large for any memory"),
    ("s\n input 0 4611686018427387904 4 dtype: int64", 2, "is too large for any memory"),
    ("s\n input 0 2 dtype: float16", 2, "expected float32, float64, int32 or int64 behind 'dtype:', found 'float16'"),
    ("s\n input 0 2 dtype:", 2, "expected float32, float64, int32 or int64 behind 'dtype:', found nothing"),
    ("s\n input 0 2 dtype: int32 dtype: int32", 2, "'dtype:' stands twice"),
    ("s\n input 0 2 value: 1", 2, "'input' has no 'value:', expected 'dtype:'"),
    ("s\n input 0 2\n input 00 2", 3, "there are two nodes '0', the first is in line 2"),
    ("s\n input 0 2\n add 1 inputs: 0 shape: 2", 3, "'add' takes 2 inputs, found 1"),
    ("s\n input 0 2\n relu 1 inputs: 0 0 shape: 2", 3, "'relu' takes 1 inputs, found 2"),
    ("s\n input 0 2\n relu 1 inputs: 2 shape: 2", 3, "there is no node '2' before this line"),
    ("s\n input 0 2\n relu 1 inputs: 1 shape: 2", 3, "there is no node '1' before this line"),
    ("s\n input 0 2\n relu 1 0 inputs: 0 shape: 2", 3, "expected 'inputs:' behind the node's number, found '0'"),
    ("s\n input 0 2\n relu 1 shape: 2", 3, "'relu' lacks 'inputs:'"),
    ("s\n input 0 2\n relu 1 inputs: 0", 3, "'relu' lacks 'shape:'"),
    ("s\n input 0 2\n relu 1 inputs: 0 shape: 3", 3, "the result has shape (2,), found (3,) behind 'shape:'"),
    ("s\n input 0 2\n input 1 3\n add 2 inputs: 0 1 shape: 3", 4, "shapes (2,) and (3,), which cannot be broadcast"),
    ("s\n input 0 2 3\n reshape 1 inputs: 0 shape: 5", 3, "has not as many elements as that of the input, (2, 3)"),
    ("s\n input 0 2\n relu 1 inputs: 0 shape: 2 dtype: int32", 3, "the result has dtype float32 as its inputs have"),
    (
        "s\n input 0\n input 1 dtype: int32\n add 2 inputs: 0 1 shape:",
        4,
        "dtypes float32 and int32, expected one dtype",
    ),
    ("s\n input 0 dtype: int64\n sqrt 1 inputs: 0 shape:", 3, "'sqrt' takes float32 and float64, found int64"),
    ("s\n const 0 3 value: 1 2", 2, "expected 3 numbers behind 'value:', or one for all, found 2"),
    ("s\n const 0 3", 2, "'const' lacks 'value:'"),
    ("s\n const 0 value: 1x", 2, "'1x' is no number that dtype float32 can hold"),
    ("s\n const 0 value: 1e39", 2, "'1e39' is no number that dtype float32 can hold"),
    ("s\n const 0 dtype: int32 value: 2147483648", 2, "'2147483648' is no number that dtype int32 can hold"),
    ("s\n const 0 dtype: int32 value: 1.0", 2, "'1.0' is no number that dtype int32 can hold"),
    ("s\n const 0 value: --1", 2, "'--1' is no number that dtype float32 can hold"),
    ("s\n input 0 2\n output 3", 3, "there is no node '3' before this line"),
    ("s\n input 0 2\n output 0 shape: 2", 3, "'output' has no 'shape:', expected nothing of the kind"),
    ("s\n input 0 2\nt\n input 0 2\n relu 1 inputs: 0 shape: 2", 3, "subgraph 's' ends here and computes nothing"),
    ("s\n input 0 2", 2, "subgraph 's' ends here and computes nothing, expected an operation or an 'output' before"),
    ("s\n input 0 2\n output 0\ns\n input 0\n output 0", 4, "there are two subgraphs 's', expected each name once"),
    ("s\n input 0 2\nt\n relu 1 inputs: 0 shape: 2", 3, "subgraph 's' ends here and computes nothing"),
    ("s\n input 0 2\n output 0\nt\n relu 1 inputs: 0 shape: 2", 5, "there is no node '0' before this line"),
]


@pytest.mark.parametrize(("text", "line", "message"), BAD_LINES)
def test_every_bad_line_is_named(text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.examplejson"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        relaybuild.load_module(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert message in str(raised.value)


def test_a_text_without_subgraphs_and_bytes_that_are_no_text() -> None:
    with pytest.raises(UserError, match="ExampleJSON: there is no subgraph, expected a line with the name of one"):
        module("# nothing\n")
    with pytest.raises(UserError, match=r"ExampleJSON:1: '\?\?\?' is neither a statement nor a subgraph's name"):
        load_from_binary("", frame("examplejson", "", b"\x00\x01\x7f"))


def test_broadcasting_merges_what_it_can_and_nothing_else() -> None:
    rng = np.random.default_rng(3)
    for left, right in (((2, 3, 4, 5), (3, 1, 1)), ((2, 1, 4, 1), (1, 3, 1, 5)), ((7,), (2, 1, 7)), ((), (2, 2))):
        a, b = rng.standard_normal(left), rng.standard_normal(right)
        wanted = a - b
        shapes = [" ".join(map(str, shape)) for shape in (left, right, wanted.shape)]
        out = np.zeros(wanted.shape)
        text = f"s\n input 0 {shapes[0]} dtype: float64\n input 1 {shapes[1]} dtype: float64\n"
        run(f"{text} sub 2 inputs: 0 1 shape: {shapes[2]}", a, b, out)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap_and_division_is_total(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = np.array([info.min, info.min, 7, -7, 7, info.max], dtype)
    b = np.array([-1, 0, 2, 2, 0, info.max], dtype)
    out = [np.zeros(6, dtype) for _ in range(4)]
    run(
        f"s\n input 0 6 dtype: {dtype}\n input 1 6 dtype: {dtype}\n div 2 inputs: 0 1 shape: 6\n"
        " mul 3 inputs: 0 1 shape: 6\n abs 4 inputs: 0 shape: 6\n add 5 inputs: 1 1 shape: 6\n output 2 3 4 5",
        a, b, *out,
    )  # fmt: skip
    assert out[0].tolist() == [info.min, 0, 3, -3, 0, 1]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out[1], a * b)
        np.testing.assert_array_equal(out[2], np.abs(a))
        np.testing.assert_array_equal(out[3], b + b)


def test_a_number_for_all_elements_takes_no_memory() -> None:
    extent = 1 << 58
    constant = f"s\n input 0 2\n const 1 {extent} value: 3\n"
    out = np.zeros(2, "float32")
    run(f"{constant} relu 2 inputs: 0 shape: 2", np.ones(2, "float32"), out)
    assert out.tolist() == [1, 1]
    with pytest.raises(UserError, match=f"out of memory: subgraph 's' needs {extent * 4} bytes for its intermediate"):
        run(f"{constant} neg 2 inputs: 1 shape: {extent}\n relu 3 inputs: 0 shape: 2", np.ones(2, "float32"), out)


def test_outputs_that_are_inputs_or_constants_or_stand_twice() -> None:
    outs = [np.zeros((2, 2), "int32") for _ in range(4)]
    x = np.arange(4, dtype="int32").reshape(2, 2)
    run(
        "s\n input 0 2 2 dtype: int32\n const 1 2 2 dtype: int32 value: 5\n add 2 inputs: 0 1 shape: 2 2\n"
        " output 2 0\n output 1 2",
        x, *outs,
    )  # fmt: skip
    assert [out.tolist() for out in outs] == [(x + 5).tolist(), x.tolist(), [[5, 5], [5, 5]], (x + 5).tolist()]


def test_intermediate_values_share_memory_only_when_they_are_done() -> None:
    rng = np.random.default_rng(5)
    lines, values = ["s", " input 0 33"], [rng.standard_normal(33, "float32")]
    for number in range(1, 60):
        first, second = int(rng.integers(number)), number - 1
        lines.append(f" {('add', 'sub', 'max')[number % 3]} {number} inputs: {first} {second} shape: 33")
        values.append((np.add, np.subtract, np.maximum)[number % 3](values[first], values[second]))
    wanted = [20, 59, 40]
    outs = [np.zeros(33, "float32") for _ in wanted]
    run("\n".join([*lines, f" output {' '.join(map(str, wanted))}"]), values[0], *outs)
    for number, out in zip(wanted, outs, strict=True):
        np.testing.assert_array_equal(out, values[number])


def test_subgraphs_do_not_share_state() -> None:
    text = "first\n input 0 3\n neg 1 inputs: 0 shape: 3\nsecond\n input 0 2\n abs 1 inputs: 0 shape: 2\n"
    both = module(text)
    assert both.function_names == ("first", "second")
    first, second = both.get_function("first"), both.get_function("second")
    a, b = np.array([1, -2, 3], "float32"), np.array([-4, 5], "float32")
    one, two = np.zeros(3, "float32"), np.zeros(2, "float32")
    del both
    first(a, one)
    second(b, two)
    first(one, a)
    assert (one.tolist(), two.tolist(), a.tolist()) == ([-1, 2, -3], [4, 5], [1, -2, 3])


def test_threads_get_memory_of_their_own() -> None:
    text = (
        "s\n input 0 5000\n add 1 inputs: 0 0 shape: 5000\n mul 2 inputs: 1 0 shape: 5000\n"
        " sub 3 inputs: 2 1 shape: 5000\n"
    )
    function = module(text).get_function("s")
    failures: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(5000).astype("float32")
        out = np.zeros_like(x)
        for _ in range(50):
            function(x, out)
            if not np.array_equal(out, (x + x) * x - (x + x)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
