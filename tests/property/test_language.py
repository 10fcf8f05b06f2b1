"""What must hold of every program of the whole language: text, digests, and what passes keep."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_language import language_arguments, language_modules

from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_digest, structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.passes.infra import Pass, PassContext, builtin_passes, get_pass
from relaybuild.passes.pipelines import default_pipeline

EXAMPLES = settings(max_examples=25, deadline=None)
OTHER_RESULTS = {"PrintIR", "FirstOrderGradient"}
"""Passes that return what they are given, and passes that compute something else."""
IDEMPOTENT = ("InferType", "DeadCodeElimination", "ToANormalForm", "RemoveUnusedFunctions")
PASSES: list[Pass] = [
    *(get_pass(name) for name in builtin_passes() if name not in OTHER_RESULTS),
    get_pass("FoldConstant", fold_weights=False),
    default_pipeline(),
]


def assert_same_result(expected: IRModule, found: IRModule) -> None:
    """Both mains return the same, up to rounding."""
    for a, b in zip(interpret(expected, *language_arguments()), interpret(found, *language_arguments())):
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-3)


@EXAMPLES
@given(language_modules())
def test_the_text_is_lossless(mod: IRModule) -> None:
    verify_module(mod, "typed")
    text = print_module(mod)
    back = parse(text)
    assert structural_equal(mod, back)
    assert structural_digest(mod) == structural_digest(back)
    assert print_module(back) == text
    assert_same_result(mod, back)


@pytest.mark.parametrize("count", [10, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.info.name)
def test_passes_keep_meaning_types_and_input(each: Pass, count: int) -> None:
    @settings(EXAMPLES, max_examples=count)
    @given(language_modules())
    def hold(mod: IRModule) -> None:
        text, kind = print_module(mod), mod["main"].checked_type
        with PassContext(opt_level=4):
            after = each(mod)
        assert print_module(mod) == text
        verify_module(after, "typed")
        assert after["main"].checked_type == kind
        assert_same_result(mod, after)

    hold()


@pytest.mark.parametrize("count", [6, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.info.name)
def test_passes_can_be_stopped_after_any_change(each: Pass, count: int) -> None:
    @settings(EXAMPLES, max_examples=count)
    @given(language_modules(), st.integers(0, 5))
    def hold(mod: IRModule, limit: int) -> None:
        with PassContext(opt_level=4, max_rewrites=limit):
            after = each(mod)
        verify_module(after, "typed")
        assert after["main"].checked_type == mod["main"].checked_type
        assert limit or structural_equal(after, mod)
        assert_same_result(mod, after)

    hold()


@pytest.mark.parametrize("name", IDEMPOTENT)
@EXAMPLES
@given(language_modules())
def test_a_second_run_changes_nothing(name: str, mod: IRModule) -> None:
    with PassContext(opt_level=4):
        once = get_pass(name)(mod)
        assert structural_equal(get_pass(name)(once), once)


def test_digests_are_equal_in_another_process() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from random_language import prelude, TYPES\n"
        "from relaybuild.ir.infer import infer_types\n"
        "from relaybuild.ir.module import IRModule\n"
        "from relaybuild.ir.structural import structural_digest\n"
        "print(structural_digest(infer_types(IRModule(prelude(), type_definitions=TYPES))))\n"
    )
    folder = os.path.dirname(os.path.abspath(__file__))
    digests: set[Any] = set()
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, folder]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(digests) == 1
