"""Random programs of branches, lets, tuples, closures, recursion and several functions, compiled, as interpreted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from compiling import check, compiled, generated
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_control import control_arguments, control_modules
from runners.compiled import threads_wanted_always

from relaybuild.ir.module import IRModule

QUICK = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], derandomize=True
)


@settings(QUICK, max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(control_modules(), st.booleans(), st.sampled_from([1, 2]))
def test_random_programs_compute_what_the_interpreter_computes(module: IRModule, passes: bool, threads: int) -> None:
    with tempfile.TemporaryDirectory(prefix="relaybuild-test-") as folder, threads_wanted_always():
        model = compiled(module, Path(folder), threads, passes=passes)
        check(module, model, control_arguments(), 1e-4)


@settings(QUICK, max_examples=25)
@given(control_modules())
def test_code_of_random_programs_does_not_vary(module: IRModule) -> None:
    first, second = (generated(module) for _ in range(2))
    assert [unit.text for unit in first.units] == [unit.text for unit in second.units]
