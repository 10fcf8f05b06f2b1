"""Stored modules: what comes back is what was stored, and values of weights are no part of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from property.random_language import language_modules
from property.random_programs import modules

from relaybuild.compilation.programs import Program, StoredError, origins, read_stored, stored_form
from relaybuild.compilation.slots import Weights, unpack
from relaybuild.ir.asking import asked_values
from relaybuild.ir.expr import Constant, Expr, Function, Span, Tuple, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal, weight_slots


def numbers(*shape: int, seed: int = 1, dtype: str = "float32") -> np.ndarray[Any, Any]:
    found = (np.random.default_rng(seed).random(shape) * 100).astype(dtype)
    found.flags.writeable = False
    return found


def module_of(*results: Expr) -> IRModule:
    x = var("x", (2, 3), "float32")
    return infer_types(IRModule({"main": Function([x], Tuple([call_op("nn.relu", [x]), *results]))}))


def identities(module: IRModule) -> list[int]:
    """For each weight, which of the arrays it is, by first use."""
    seen: list[int] = []
    for constant in weight_slots(module):
        if id(constant.array) not in seen:
            seen.append(id(constant.array))
    return [seen.index(id(constant.array)) for constant in weight_slots(module)]


def reread(module: IRModule, weights: Weights) -> IRModule:
    """The module as another process reads it, that has the weights, and the constants packed."""
    program = Program(weights, module=module)
    others = Weights(weights._given)
    for origin, packed in program.constants.items():
        others.add(origin, lambda packed=packed: packed)  # type: ignore[misc]
    found = Program(others, load=lambda: program.stored, digest=program.digest)
    assert stored_form(found.module, others) == program.stored
    return found.module


def check(module: IRModule, weights: Weights) -> None:
    found = reread(module, weights)
    assert structural_equal(module, found)
    assert identities(module) == identities(found)
    for old, new in zip(weight_slots(module), weight_slots(found)):
        assert old.array.tobytes() == new.array.tobytes()
        assert old.span == new.span
    assert print_module(module, weights="slot", show_types=True) == print_module(found, weights="slot", show_types=True)


SHARED = numbers(2, 3)
CASES: dict[str, Callable[[], IRModule]] = {
    "none": lambda: module_of(const(2.0)),
    "two": lambda: module_of(const(numbers(2, 3)), const(numbers(4, seed=2))),
    "one twice": lambda: module_of(*[Constant(SHARED, Span("m", "w"))] * 2),
    "two over one array": lambda: module_of(Constant(SHARED, Span("m", "a")), Constant(SHARED, Span("m", "b"))),
    "equal contents": lambda: module_of(const(numbers(2, 3)), const(numbers(2, 3)), const(numbers(2, 3))),
    "equal contents twice": lambda: module_of(const(numbers(2, 3)), Constant(SHARED), Constant(SHARED)),
    "equal bytes": lambda: module_of(const(np.zeros((2, 3), "float32")), const(np.zeros((3, 2), "float32"))),
    "other types": lambda: module_of(const(np.zeros(70, "float32")), const(np.zeros(70, "int32"))),
    "no elements": lambda: module_of(const(np.zeros((0, 3), "float32")), const(numbers(3))),
    "integers": lambda: module_of(const(np.arange(65)), const(np.arange(64)), const(np.arange(100) > 50)),
    "derived": lambda: module_of(call_op("multiply", [const(numbers(2, 3)), const(numbers(3))])),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_known", [True, False], ids=["given", "constants"])
def test_what_is_stored_comes_back(case: str, is_known: bool) -> None:
    module = CASES[case]()
    check(module, Weights.of(weight_slots(module)) if is_known else Weights())


def test_bfloat16_comes_back() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    check(module_of(const(numbers(5).astype(ml_dtypes.bfloat16))), Weights())


def test_some_weights_are_given_and_some_are_constants() -> None:
    given_weight, made = const(numbers(3)), const(numbers(3, seed=2))
    weights = Weights.of([given_weight])
    module = module_of(made, given_weight, const(numbers(3, seed=2)))
    table = json.loads(stored_form(module, weights).partition(b"\n")[0])
    assert table[1] == 0
    assert table[2] == f"{table[0]}#1"
    check(module, weights)


def test_every_array_of_a_constant_is_known() -> None:
    weights = Weights()
    found = read_stored(stored_form(CASES["equal contents"](), weights), weights)
    assert {weights.known(constant) for constant in weight_slots(found)} == {weights.origin(const(numbers(2, 3)))}


@settings(max_examples=25, deadline=None)
@given(modules())
def test_programs_come_back(module: IRModule) -> None:
    module = infer_types(module)
    check(module, Weights.of(weight_slots(module)))


@settings(max_examples=15, deadline=None)
@given(language_modules())
def test_the_whole_language_comes_back(module: IRModule) -> None:
    check(infer_types(module), Weights())


def digest_of(module: IRModule) -> str:
    return Program(Weights.of(weight_slots(module)), module=module).digest.hex


def with_weights(
    first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], name: str = "w", file: str = "m", **attrs: Any
) -> IRModule:
    x = var("x", (2, 3), "float32")
    product = call_op("nn.dense", [x, Constant(first, Span(file, name))], **attrs)
    total = call_op("add", [product, Constant(second, Span(file, "b"))])
    return infer_types(IRModule({"main": Function([x], total)}))


def test_values_of_weights_do_not_count() -> None:
    module = with_weights(numbers(4, 3), numbers(4))
    assert digest_of(module) == digest_of(with_weights(numbers(4, 3, seed=7), numbers(4, seed=8)))


@pytest.mark.parametrize(
    "other",
    [
        lambda: with_weights(numbers(5, 3), numbers(5)),
        lambda: with_weights(numbers(4, 3), numbers(2, 4)),
        lambda: with_weights(numbers(4, 3), numbers(4), name="v"),
        lambda: with_weights(numbers(4, 3), numbers(4), file="n"),
        lambda: with_weights(numbers(4, 3), numbers(4), units=4),
        lambda: IRModule({"other": with_weights(numbers(4, 3), numbers(4))["main"]}),
    ],
    ids=["shape", "rank", "name", "file", "attribute", "function"],
)
def test_all_else_counts(other: Callable[[], IRModule]) -> None:
    assert digest_of(other()) != digest_of(with_weights(numbers(4, 3), numbers(4)))


def test_types_of_weights_and_values_of_structure_count() -> None:
    assert digest_of(module_of(const(numbers(3)))) != digest_of(module_of(const(numbers(3, dtype="float64"))))
    assert digest_of(module_of(const(2.0))) != digest_of(module_of(const(3.0)))
    assert digest_of(module_of(const(np.arange(64)))) != digest_of(module_of(const(np.arange(1, 65))))
    assert digest_of(module_of(const(np.arange(65)))) == digest_of(module_of(const(np.arange(1, 66))))


def test_sharing_counts() -> None:
    kinds = ("one twice", "two over one array", "equal contents")
    three = module_of(const(numbers(2, 3)), const(numbers(2, 3)))
    digests = {digest_of(CASES[kind]()) for kind in kinds} | {digest_of(three)}
    assert len(digests) == 4
    # of constants, too, whose origins are equal
    constants = {Program(Weights(), module=CASES[kind]()).digest.hex for kind in kinds}
    assert len(constants) == 3


def test_storing_and_reading_ask_for_no_value() -> None:
    module = with_weights(numbers(4, 3), numbers(4))
    weights = Weights.of(weight_slots(module))
    heard: list[Constant] = []
    with asked_values(heard.append):
        read_stored(stored_form(module, weights), weights)
        assert Program(weights, module=module).digest.size
        assert Program(Weights(), module=module).constants
    assert heard == []


def test_a_stored_program_is_read_when_its_module_is_asked_for() -> None:
    module = with_weights(numbers(4, 3), numbers(4))
    weights = Weights.of(weight_slots(module))
    stored = stored_form(module, weights)
    reads: list[int] = []

    def load() -> bytes:
        reads.append(1)
        return stored

    first = Program(weights, module=module)
    program = Program(weights, load=load, digest=first.digest)
    assert program.digest == first.digest
    assert program.in_memory is None
    assert reads == []
    assert structural_equal(program.module, module)
    assert program.in_memory is program.module
    assert program.stored == stored
    assert program.constants == {}
    assert reads == [1]
    assert first.in_memory is module


def test_constants_are_packed_by_origin() -> None:
    array = numbers(4, 3)
    program = Program(Weights(), module=module_of(const(array), const(np.arange(3))))
    ((origin, packed),) = program.constants.items()
    assert origins(program.stored) == (origin,)
    assert unpack(packed).tobytes() == array.tobytes()


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}\n", b"[[]]\nx", b"[1.5]\nx", b"def @main() { 1 }"])
def test_bytes_without_a_table_are_refused(data: bytes) -> None:
    with pytest.raises(StoredError):
        read_stored(data, Weights())
