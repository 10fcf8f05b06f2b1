"""Kernels are those that a model gets, and the library of them runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchlib.cases import TEMPLATES, draw_cases
from benchlib.kernels import build_timer, calls_unit, kernel_of

from relaybuild.build.toolchain import probe
from relaybuild.contrib.host.codegen import generate
from relaybuild.partition.backend import CodegenOptions
from relaybuild.target import Target


@pytest.mark.parametrize("target", [Target.parse(name) for name in ("x86-64-v4", "x86-64-v3", "c")], ids=str)
def test_a_kernel_is_the_one_that_the_host_generates(target: Target) -> None:
    for case in draw_cases(["convolution 3×3", "convolution, strided", "matrix product"], 2, 3):
        function = case.build()
        options = CodegenOptions("a", "a", target, (), ("data",), ("out",))
        symbols = re.compile(r"\b(rb_[0-9a-f]{24}|bench_0)\b")
        generated = {symbols.sub("kernel", unit.text) for unit in generate(function, options).units}
        ours = kernel_of(function, case.op, "bench_0", target, precise=False).text
        assert symbols.sub("kernel", ours) in generated, case.label


def test_precise_kernels_are_not_winograds() -> None:
    target = Target.parse("x86-64-v4")
    case = draw_cases(["convolution 3×3, precise"], 4, 0)[-1]
    texts = [kernel_of(case.build(), case.op, "k", target, precise=precise).text for precise in (True, False)]
    assert ["winograd" in text for text in texts] == [False, True]


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_yields_a_kernel_with_buffers_for_its_data(name: str) -> None:
    case = draw_cases([name], 4, 2)[2]
    kernel = kernel_of(case.build(), case.op, "k", Target.parse("x86-64-v3"), precise=case.precise)
    assert case.op in kernel.title
    assert kernel.stages[-1].write >= case.work.write_bytes
    assert sum(kernel.all_reads) >= case.work.read_bytes


def test_calls_pass_the_buffers_in_order() -> None:
    case = draw_cases(["map with broadcast"], 1, 0)[0]
    kernel = kernel_of(case.build(), case.op, "k", Target.parse("c"), precise=False)
    assert len(kernel.reads) == 3
    assert "k(reads[0], reads[1], reads[2], write, scratch, 0, 1);" in calls_unit([kernel])


def test_a_stage_reads_what_the_one_before_has_left() -> None:
    case = draw_cases(["sum along rows"], 1, 0)[0]
    first = kernel_of(case.build(), case.op, "k", Target.parse("c"), precise=False)
    second = replace(first, symbol="k_1", reads=(first.write,), write=first.write // 2)
    kernel = replace(first, rest=(second,))
    assert second.reads[0] == first.write
    between = re.search(r"k\(reads\[0\], (\(char \*\)write \+ (\d+)), scratch, 0, 1\);", calls_unit([kernel]))
    assert between is not None
    assert int(between[2]) >= second.write
    assert f"k_1({between[1]}, write, scratch, 0, 1);" in calls_unit([kernel])


def test_a_timer_times(tmp_path: Path) -> None:
    target = Target.host()
    case = draw_cases(["sum along rows"], 3, 0)[-1]
    kernel = kernel_of(case.build(), case.op, "k", target, precise=False)
    timer = build_timer([kernel], target, probe(), tmp_path)
    times = timer.time(0, 0.0)
    assert len(times) >= 3
    assert min(times) > case.work.num_bytes / 1e13
    assert timer.fma_peak(0.0) > 1e7
