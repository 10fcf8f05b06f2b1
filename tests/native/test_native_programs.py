"""Programs of every construct that has native code, compiled, against the interpreter and against plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiling import HEAD, check, compiled, flat
from runners.compiled import difference, threads_wanted_always

from relaybuild.ir.interpreter import interpret
from relaybuild.ir.parser import parse
from relaybuild.runtime import Module

FUNCTIONS = """
def @halves(%x: int32) -> int32 {
  %1 = equal(%x, 1);
  if (%1) { %x } else { %2 = subtract(%x, 1); %3 = @halves(%2); add(%3, %3) }
}
def @factorial(%n: int64) -> int64 {
  if (less(%n, 2i64)) { 1i64 } else { multiply(%n, @factorial(subtract(%n, 1i64))) }
}
def @fibonacci(%n: int32) -> int32 {
  if (less(%n, 2)) { %n } else { add(@fibonacci(subtract(%n, 1)), @fibonacci(subtract(%n, 2))) }
}
def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) -> bool { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
def @ping(%n: int32, %x: float32) -> float32 {
  if (less(%n, 1)) { %x } else { add(1f, @pong(subtract(%n, 1), multiply(%x, 2f))) }
}
def @pong(%n: int32, %x: float32) -> float32 {
  if (less(%n, 1)) { %x } else { multiply(2f, @ping(subtract(%n, 1), add(%x, 1f))) }
}
def @total(%n: int32, %sum: int32) -> int32 {
  if (equal(%n, 0)) { %sum } else { @total(subtract(%n, 1), add(%sum, %n)) }
}
def @swap(%n: int32, %a: Tensor[(3,), float32], %b: Tensor[(3,), float32], %c: float32)
    -> (Tensor[(3,), float32], Tensor[(3,), float32]) {
  if (equal(%n, 0)) { (%a, %b) } else { @swap(subtract(%n, 1), %b, add(%a, %c), %c) }
}
def @muladd(%x: float32, %y: float32, %z: float32) -> float32 { add(multiply(%x, %y), %z) }
def @myfunc(%x: float32) -> float32 { @muladd(@muladd(%x, 1f, 2f), 2f, 3f) }
def @logged(%x: float32) -> fn(float32) -> float32 {
  %1 = log(%x);
  fn(%y: float32) -> float32 { add(%y, %1) }
}
def @twice[A](%f: fn(A) -> A, %x: A) -> A { %f(%f(%x)) }
def @compose[A](%f: fn(A) -> A, %g: fn(A) -> A) -> fn(A) -> A { fn(%x: A) -> A { %f(%g(%x)) } }
def @first[A, B](%pair: (A, B)) -> A { %pair.0 }
def @nested(%p: ((int32, float32), bool)) -> (bool, (float32, int32)) {
  if (%p.1) { (False, (%p.0.1, add(%p.0.0, 1))) } else { (True, (negative(%p.0.1), %p.0.0)) }
}
def @quiet(%unused: Tensor[(100,), float32], %x: int32) -> int32 {
  if (less(%x, 0)) { %x } else { @quiet(%unused, subtract(%x, 5)) }
}
"""


@dataclass(frozen=True)
class Case:
    """An expression over %n (7), %x (0.75), %v ((3,) of float32) and %p, and what it is, where plain Python says so."""

    text: str
    expected: Any = None


V = np.asarray([1.0, -2.0, 0.5], "float32")
CASES = [
    Case("@halves(%n)", np.int32(64)),
    Case('@factorial(cast(%n, dtype="int64"))', np.int64(5040)),
    Case("@fibonacci(%n)", np.int32(13)),
    Case("(@even(%n), @odd(%n))", (np.bool_(False), np.bool_(True))),
    Case("@ping(%n, %x)"),
    Case("@total(%n, 0)", np.int32(28)),
    Case("@swap(%n, %v, negative(%v), %x)"),
    Case("@swap(0, %v, %v, %x)", (V, V)),
    Case("@myfunc(%x)", np.float32(8.5)),
    Case("{ let %f = @logged(%x); add(%f(1f), %f(%x)) }", np.float32(1.75 + 2 * np.log(0.75))),
    Case("@twice(@logged(%x), %x)", np.float32(0.75 + 2 * np.log(0.75))),
    Case(
        "@twice(fn(%u: Tensor[(3,), float32]) -> Tensor[(3,), float32] { multiply(%u, %x) }, %v)",
        V * np.float32(0.5625),
    ),
    Case("{ let %g = @compose(@logged(%x), fn(%u: float32) -> float32 { multiply(%u, 3f) }); %g(%g(%x)) }"),
    Case("(@first((%n, %v)), @first((%v, %n)), @first(((%x, %n), %v)).0)", (np.int32(7), V, np.float32(0.75))),
    Case("(@nested(%p), @nested(((%n, %x), False)))"),
    Case("@quiet(broadcast_to(%x, shape=[100]), %n)", np.int32(-3)),
    Case(
        "{ let %f = fn(%k: int32) -> int32 { if (less(%k, 1)) { %n } else { add(%f(subtract(%k, 1)), 1) } }; %f(4) }",
        np.int32(11),
    ),
    Case(
        "if (less(%n, 5)) { if (less(%x, 0f)) { %v } else { add(%v, %x) } }"
        " else { if (less(0f, %x)) { exp(%v) } else { %v } }",
        np.exp(V),
    ),
    Case("if (less(%n, 5)) { (%v, 1) } else { (%v, 2) }", (V, np.int32(2))),
    Case(
        "(if (less(5, %n)) { %x } else { 0f }, if (less(%n, 5)) { %x } else { 0f })", (np.float32(0.75), np.float32(0))
    ),
    Case("(if (less(%n, 5)) { %z } else { negative(%z) }, @twice(fn(%u: Tensor[(0, 3), float32]) { exp(%u) }, %z))"),
    Case("{ let %c = less(%n, 5); let %s = if (%c) { exp(%v) } else { log(exp(%v)) }; add(%s, %s) }", V + V),
]


def source() -> str:
    """A module whose main is the tuple of all cases."""
    params = (
        "%n: int32, %x: float32, %v: Tensor[(3,), float32], %p: ((int32, float32), bool), %z: Tensor[(0, 3), float32]"
    )
    lets = "".join(f"  let %r{number} = {case.text};\n" for number, case in enumerate(CASES))
    return f"{FUNCTIONS}\ndef @main({params}) {{\n{lets}  ({', '.join(f'%r{n}' for n in range(len(CASES)))})\n}}\n"


ARGUMENTS = (
    np.asarray(7, "int32"),
    np.asarray(0.75, "float32"),
    V,
    ((np.asarray(3, "int32"), np.asarray(1.5, "float32")), np.asarray(True)),
    np.zeros((0, 3), "float32"),
)


@pytest.fixture(scope="module", params=[1, 3], ids=["one thread", "three threads"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Module]:
    with threads_wanted_always():
        yield compiled(source(), tmp_path_factory.mktemp("programs"), request.param)


def test_programs_compute_what_the_interpreter_computes(model: Module) -> None:
    check(source(), model, ARGUMENTS)


def test_programs_compute_what_plain_python_computes(model: Module) -> None:
    found = model.run_list(flat(ARGUMENTS))
    shapes = interpret(parse(HEAD + source()), *ARGUMENTS)
    start = 0
    for case, shape in zip(CASES, shapes):
        end = start + len(flat(shape))
        if case.expected is not None:
            wanted = [np.asarray(item) for item in flat(case.expected)]
            problems = [difference(want, have, 1e-5) for want, have in zip(wanted, found[start:end])]
            assert len(wanted) == end - start
            assert not any(problems), f"{case.text}: {problems}"
        start = end


def test_a_second_run_is_like_the_first(model: Module) -> None:
    first, second = (model.run_list(flat(ARGUMENTS)) for _ in range(2))
    assert all(difference(a, b, 0) == "" for a, b in zip(first, second))
