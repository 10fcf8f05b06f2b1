"""What the scripts make of figures."""

from __future__ import annotations

import build_time
import call_overhead
import pytest
import templates
from benchlib.cases import draw_cases
from benchlib.limits import Curve, Limits
from benchlib.models import find_models
from benchlib.report import table

from relaybuild.errors import UserError


def test_a_table_is_markdown_with_columns_that_line_up() -> None:
    assert table(("name", "x"), [("a", "1.5"), ("long one", "20")]).splitlines() == [
        "| name     |   x |",
        "| -------- | --: |",
        "| a        | 1.5 |",
        "| long one |  20 |",
    ]


def test_shares_are_of_the_least_time_unless_medians_are_asked_for() -> None:
    flat = Curve((1, 2), (1e10, 1e10))
    cases = draw_cases(["sum along rows"], 2, 0)
    limits = Limits(1e12, flat, flat, flat)
    least = [limits.seconds(case.work) for case in cases]
    results = templates.results_of(cases, [[2 * least[0], 4 * least[0], 9.0], [4 * least[1]] * 3], [limits] * 2)
    assert [result.share("least") for result in results] == pytest.approx([0.5, 0.25])
    assert results[0].share("median") == pytest.approx(0.25)
    (row,) = templates.summary_rows(results, least[1], "least")
    assert row == ("sum along rows", "25 %", "38 %", "50 %", "1", "25 %", cases[1].label)
    assert templates.worst_line(results, 1e9, "least").startswith("no kernel has a limit")


def test_bandwidth_that_was_measured_beside_a_kernel_is_its_own_limit() -> None:
    flat = Curve((1, 2), (1e10, 1e10))
    (case,) = draw_cases(["transpose"], 1, 0)
    own = templates.own_limits(Limits(1e12, flat, flat, flat), case, [0.0, 0.0, 2e9])
    assert own.seconds(case.work) == pytest.approx(case.work.num_bytes / 2e9)
    assert own.read == own.write == flat


def test_the_rest_of_a_build_is_outside_its_stages() -> None:
    run = dict.fromkeys(build_time.STAGES, 0.1) | {"wall": 1.0, "cpu": 2.0}
    assert build_time.rest_of(run) == pytest.approx(0.4)
    assert build_time.compiler_share(run) == pytest.approx(0.2)
    assert build_time.median_run([run, run | {"wall": 3.0}, run | {"wall": 2.0}])["wall"] == 2.0


def test_runs_with_and_without_a_cache_are_compared_in_pairs() -> None:
    run = dict.fromkeys(build_time.STAGES, 0.1)
    found = {"a": [run | {"wall": 1.0, "cpu": 1.0}, run | {"wall": 4.0, "cpu": 2.0}]}
    through = {"a": [run | {"wall": 1.5, "cpu": 1.1}, run | {"wall": 4.0, "cpu": 2.2}]}
    row = build_time.cache_table(found, through).splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["a", "2.75", "1.65", "1.25", "1.10", "1.50", "1.10"]


def test_overhead_is_the_median_of_differences_within_rounds() -> None:
    times = {"C": [1e-6, 5e-6, 1e-6], "m(x)": [3e-6, 7e-6, 2e-6]}
    rows = call_overhead.overhead_rows("a", times)
    assert rows[1] == ("a", "m(x)", "3.00", "2.00", "2.00", "1.00")


def test_calls_from_python_and_c_are_timed_in_turns() -> None:
    calls: list[str] = []

    def timed(name: str) -> call_overhead.Timed:
        def run(count: int) -> float:
            calls.append(name)
            return 1.0

        return run

    times = call_overhead.measure({"C": timed("C"), "m(x)": timed("m(x)")}, 0.0)
    assert {name: len(found) for name, found in times.items()} == {"C": 3, "m(x)": 3}
    assert calls[2:] == ["C", "m(x)", "m(x)", "C", "C", "m(x)"]


def test_a_model_that_is_not_there_is_an_error_with_a_remedy() -> None:
    with pytest.raises(UserError, match=r"there is no model 'nowhere\.onnx'"):
        find_models(["nowhere.onnx"], None)
    with pytest.raises(UserError, match=r"fetch_models\.py"):
        find_models(["nowhere"], None)
