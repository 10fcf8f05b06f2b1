"""Every case of the operator suite, compiled by the host for each target, against the operator's reference."""

from __future__ import annotations

import pytest
from suites.ops import Argument, Case, cases_of, names_with_cases

from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Expr, Tuple, const
from relaybuild.ir.op import all_ops, call_op
from runners.compiled import Batch, target_params

SIZE = 100
"""Cases in one library."""

_TYPES = "the templates of convolutions and pools are for float32"

UNSUPPORTED = {
    "nn.adaptive_avg_pool2d-0": "windows of different sizes",
    "nn.adaptive_avg_pool2d-2": "windows of different sizes",
    "nn.conv2d-7": _TYPES,
    "nn.conv2d-8": _TYPES,
    "nn.max_pool2d-9": _TYPES,
}
"""Operators and cases that the host refuses, with the reason."""


def needs_weight(case: Case, number: int) -> bool:
    """Whether an argument is made a weight: where the host wants one, and for every other matrix product."""
    if number != 1:
        return False
    return case.op in ("nn.conv2d", "nn.conv2d_transpose") or (
        case.op in ("nn.dense", "nn.matmul") and case.number % 2 == 0
    )


def add_case(batch: Batch, case: Case) -> None:
    def argument(value: Argument, number: int) -> Expr:
        if isinstance(value, tuple):
            return Tuple([batch.input(field) for field in value])
        return const(value) if needs_weight(case, number) else batch.input(value)

    args = [argument(value, number) for number, value in enumerate(case.args)]
    batch.add(str(case), call_op(case.op, args, **case.attrs))


def is_supported(case: Case) -> bool:
    return case.op not in UNSUPPORTED and str(case) not in UNSUPPORTED


CASES = [case for name in sorted(names_with_cases()) if not name.startswith("dyn.") for case in cases_of(name)]
"""Without operators whose shapes are computed at run time, for which DynamicToStatic stands before the host."""
SUPPORTED = [case for case in CASES if is_supported(case)]
BATCHES = [SUPPORTED[start : start + SIZE] for start in range(0, len(SUPPORTED), SIZE)]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0]}...")
@pytest.mark.parametrize("target", target_params())
def test_operators_compute_what_the_reference_says(target: str, batch: list[Case]) -> None:
    gathered = Batch()
    for case in batch:
        add_case(gathered, case)
    gathered.compare(target, opt_level=0)


@pytest.mark.parametrize("case", [case for case in CASES if not is_supported(case)], ids=str)
def test_what_is_listed_as_unsupported_is_refused(case: Case) -> None:
    gathered = Batch()
    add_case(gathered, case)
    with pytest.raises(UnsupportedError, match="host"):
        gathered.generate("c")


def test_every_operator_has_cases() -> None:
    missing = {name for name in all_ops() if not name.startswith("contrib.")} - names_with_cases()
    assert not missing
