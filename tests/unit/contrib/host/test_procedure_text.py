"""Barriers: where one thread's work must be visible to all, and nowhere else."""

from __future__ import annotations

import re

from relaybuild.contrib.host.lower import Step
from relaybuild.contrib.host.place import Storage, View, part_of, slice_of
from relaybuild.contrib.host.procedure_text import procedures_text
from relaybuild.contrib.host.schedule import AgainCode, CallCode, Code, IfCode, ProcedureCode
from relaybuild.lower.layout import Layout
from relaybuild.lower.loop_ir import Kernel

LAYOUT = Layout.row_major((4,))


def view(kind: str, number: int = 0) -> View:
    return View(Storage(kind, 16, number, 64 * number if kind == "arena" else 0), LAYOUT, "float32")


def step(read: View, write: View) -> Step:
    return Step(Kernel("k", (), [], 1), (read,), write, (), False, 0)


def lines(*body: Code, carried: tuple[tuple[View, View], ...] | None = None) -> list[str]:
    """What the second of two procedures does, in words."""
    procedures = [ProcedureCode("main", (), None), ProcedureCode("f", body, carried)]
    steps = {id(each): "kernel" for each in procedures[1].steps}
    text = "\n".join(procedures_text(procedures, steps)).split("/* @f */")[1]
    words = r"kernel\(|rb_barrier|if \(\*|else|f\d_\w+\(&callee|memcpy|continue|for \("
    return [found.rstrip("(*& ") for found in re.findall(words, text)]


IN, OUT, A, B, C = view("input"), view("output"), view("arena", 1), view("arena", 2), view("arena", 3)


def test_a_kernel_waits_for_what_it_reads_and_for_readers_of_what_it_writes() -> None:
    assert lines(step(IN, A), step(IN, B)) == ["kernel", "kernel"]
    assert lines(step(IN, A), step(A, B)) == ["kernel", "rb_barrier", "kernel"]
    assert lines(step(IN, A), step(A, B), step(IN, A)) == ["kernel", "rb_barrier", "kernel", "rb_barrier", "kernel"]


def test_parts_of_one_memory_are_told_apart() -> None:
    whole = View(Storage("arena", 64, 0, 1024), Layout.row_major((4, 4)), "float32")
    first, second = (part_of(whole, slice_of(whole.layout, 0, row, 1) or LAYOUT) for row in (0, 1))
    assert first.layout == second.layout
    assert lines(step(IN, first), step(second, B), step(IN, second)) == ["kernel", "kernel", "rb_barrier", "kernel"]
    assert lines(step(IN, first), step(first, B)) == ["kernel", "rb_barrier", "kernel"]
    body = (step(second, first), step(View(OUT.storage, LAYOUT, "float32", 3), B))
    text = "\n".join(procedures_text([ProcedureCode("f", body, None)], {id(each): "kernel" for each in body}))
    assert "kernel((const float *)(frame->arena + 1040), (float *)(frame->arena + 1024)," in text
    assert "kernel((const float *)frame->outputs[0] + 3, " in text


def test_a_condition_is_read_behind_a_barrier_and_not_overwritten_before_one() -> None:
    found = lines(step(IN, A), IfCode(A, ((step(IN, B),), (step(IN, A),))))
    assert found == ["kernel", "rb_barrier", "if", "kernel", "else", "rb_barrier", "kernel"]


def test_behind_a_branch_both_ways_may_be_pending() -> None:
    branch = IfCode(IN, ((step(IN, A),), (step(IN, B),)))
    assert lines(branch, step(A, C))[-2:] == ["rb_barrier", "kernel"]
    assert lines(branch, step(B, C))[-2:] == ["rb_barrier", "kernel"]
    assert lines(branch, step(IN, C))[-2:] == ["kernel", "kernel"]


def test_two_calls_in_a_row_use_the_same_stack() -> None:
    call = "f0_main(&callee"
    assert lines(CallCode(0, (IN,), (A,)), CallCode(0, (IN,), (B,))) == [call, "rb_barrier", call]


def test_a_call_reads_its_arguments_and_writes_its_results() -> None:
    assert lines(step(IN, A), CallCode(0, (A,), (B,)))[1] == "rb_barrier"
    assert lines(CallCode(0, (IN,), (A,)), step(A, OUT))[1] == "rb_barrier"
    assert "rb_barrier" not in lines(CallCode(0, (IN,), (A,)), step(IN, OUT))


def test_a_loop_starts_behind_a_barrier() -> None:
    again = AgainCode((), ((B, A),))
    found = lines(step(A, B), IfCode(IN, ((step(A, OUT),), (again,))), carried=((IN, A),))
    assert found == [
        "memcpy",
        "rb_barrier",
        "for",
        "kernel",
        "if",
        "kernel",
        "else",
        "rb_barrier",
        "memcpy",
        "rb_barrier",
        "continue",
    ]
