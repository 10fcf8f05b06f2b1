"""Parts of patterns that look at types and values."""

from __future__ import annotations

import pytest
from runners.packed import typed

from relaybuild.ir.expr import Call
from relaybuild.ir.pattern import DFPattern, Graph, Match, find_match, is_op, wildcard
from relaybuild.ir.types import TensorType
from relaybuild.partition.pattern_parts import added, is_number, is_vector_along, taken, with_bias, with_sum

PARAMS = """%x: Tensor[(2, 4, 5, 6), float32], %y: Tensor[(2, 4, 5, 6), float32], %v: Tensor[(4, 1, 1), float32],
  %u: Tensor[(4,), float32], %s: float32, %w: Tensor[(6,), float32], %b: Tensor[(1, 1, 5, 6), float32]"""


def matches(pattern: DFPattern, text: str) -> bool:
    main = typed(f"def @main({PARAMS}) {{ {text} }}")["main"]
    return isinstance(find_match(pattern, main.body, Graph(main)), Match)


def exp() -> DFPattern:
    return is_op("exp")(wildcard())


@pytest.mark.parametrize(
    ("shape", "result", "axis", "answer"),
    [
        ((4, 1, 1), (2, 4, 5, 6), 1, True),
        ((1, 4, 1, 1), (2, 4, 5, 6), 1, True),
        ((4,), (2, 4), -1, True),
        ((1, 4), (2, 4), 1, True),
        ((6,), (2, 4, 5, 6), 1, False),
        ((4,), (2, 4, 5, 4), 1, False),
        ((4, 5, 1), (2, 4, 5, 6), 1, False),
        ((1, 1, 4, 1, 1), (2, 4, 5, 6), 1, False),
        ((), (2, 4, 5, 6), 1, False),
        ((), (2, 1, 5, 6), 1, True),
        ((1,), (2, 1), -1, True),
        ((), (8,), 1, False),
        ((), (), -1, False),
        ((8,), (8,), -2, False),
    ],
)
def test_vectors_along_an_axis(shape: tuple[int, ...], result: tuple[int, ...], axis: int, answer: bool) -> None:
    assert is_vector_along(TensorType(shape), TensorType(result), axis) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("%0 = exp(%x); add(%0, %v)", True),
        ("%0 = exp(%x); add(%v, %0)", True),
        ("%0 = exp(%x); nn.bias_add(%0, %u)", True),
        ("%0 = exp(%x); nn.bias_add(%0, %w, axis=-1)", False),
        ("%0 = exp(%x); add(%0, %y)", False),
        ("%0 = exp(%x); add(%0, %s)", False),
        # what is added to the vector is no bias of it
        ("%0 = exp(%v); add(%0, %x)", False),
        # a second use
        ("%0 = exp(%x); %1 = add(%0, %v); add(%1, %0)", False),
        ("subtract(%x, %v)", False),
    ],
)
def test_biases(text: str, answer: bool) -> None:
    assert matches(with_bias(exp(), axis=1), text) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("%0 = exp(%x); add(%0, %y)", True),
        ("%0 = exp(%x); add(%y, %0)", True),
        ("%0 = exp(%x); add(%0, %b)", False),
        ("%0 = exp(%b); add(%0, %x)", False),
        # the sum belongs to the later of the two
        ("%0 = exp(%x); %1 = exp(%0); add(%0, %1)", True),
        ("%0 = exp(%x); add(%0, %0)", False),
    ],
)
def test_sums(text: str, answer: bool) -> None:
    assert matches(with_sum(exp()), text) is answer


def test_the_sum_of_two_belongs_to_the_one_that_is_used_once() -> None:
    main = typed(f"def @main({PARAMS}) {{ %0 = exp(%x); %1 = exp(%0); add(%0, %1) }}")["main"]
    anchor = exp()
    match = find_match(with_sum(anchor), main.body, Graph(main))
    assert isinstance(match, Match)
    body = main.body
    assert isinstance(body, Call)
    assert match[anchor] == (body.args[1],)
    assert added(body, body.args[1]) is body.args[0]


def test_numbers_to_six_digits() -> None:
    pattern = is_op("multiply")(wildcard(), is_number(2**0.5))
    assert matches(pattern, "multiply(%x, 1.4142135f)")
    assert matches(pattern, "multiply(1.41421f, %x)") is False
    assert matches(pattern, "multiply(%x, %y)") is False


def test_calls_of_which_a_predicate_holds() -> None:
    def small(call: Call) -> bool | str:
        return call.tensor_type.rank < 4 or "found rank 4, expected less"

    pattern = taken("exp", small)
    assert matches(pattern, "exp(%v)")
    main = typed(f"def @main({PARAMS}) {{ exp(%x) }}")["main"]
    assert "found rank 4, expected less" in str(find_match(pattern, main.body))
