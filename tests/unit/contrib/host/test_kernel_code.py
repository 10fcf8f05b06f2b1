"""Kernels by workload: under any symbol, packed and back, and made once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaybuild.contrib.host.kernel_code import PLACEHOLDER, KernelCode, Kernels
from relaybuild.digest import Digest, digest_bytes
from relaybuild.lower.loop_ir import Kernel, Parameter

TEXT = f"/* add, ü */\nvoid {PLACEHOLDER}(const float *p0, float *out);\nvoid {PLACEHOLDER}_not(int {PLACEHOLDER}2);\n"
CODE = KernelCode("add", TEXT, (Parameter("p0", "float", True), Parameter("out", "float", False)), 64)


def empty(title: str) -> Kernel:
    return Kernel(title, (), [], 1)


def test_code_is_packed_without_loss() -> None:
    assert KernelCode.unpack(CODE.pack()) == CODE
    made = KernelCode.of(empty("nothing"))
    assert KernelCode.unpack(made.pack()) == made
    assert made.title == "nothing"
    assert PLACEHOLDER in made.text


def test_a_symbol_stands_for_the_whole_word_alone() -> None:
    named = CODE.named("rb_1")
    assert named == TEXT.replace(f"{PLACEHOLDER}(", "rb_1(")
    assert CODE.text == TEXT


def test_equal_workloads_are_lowered_once() -> None:
    lowered: list[str] = []

    def lower(title: str) -> Callable[[], Kernel]:
        def make() -> Kernel:
            lowered.append(title)
            return empty(title)

        return make

    kernels = Kernels()
    first = kernels.code("a", digest_bytes(b"1"), lower("first"))
    assert kernels.code("b", digest_bytes(b"1"), lower("second")) is first
    assert kernels.code("a", digest_bytes(b"2"), lower("third")) != first
    assert lowered == ["first", "third"]


def test_what_is_remembered_is_not_lowered() -> None:
    asked: list[tuple[str, Digest]] = []

    def remember(place: str, workload: Digest, make: Callable[[], bytes]) -> bytes:
        asked.append((place, workload))
        return CODE.pack() if workload == digest_bytes(b"known") else make()

    def refuse() -> Kernel:
        raise AssertionError("it was lowered")

    kernels = Kernels(remember)
    assert kernels.code("a", digest_bytes(b"known"), refuse) == CODE
    assert kernels.code("b", digest_bytes(b"new"), lambda: empty("new")) == KernelCode.of(empty("new"))
    assert kernels.code("c", digest_bytes(b"new"), refuse).title == "new"
    assert asked == [("a", digest_bytes(b"known")), ("b", digest_bytes(b"new"))]
    with pytest.raises(AssertionError, match="lowered"):
        kernels.code("d", digest_bytes(b"other"), refuse)
