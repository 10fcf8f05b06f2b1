"""ONNX's own node tests: what has a converter imports and computes what the standard expects."""

from __future__ import annotations

import re
from typing import Any

import pytest
from onnx_cases import check_node_test, import_case, inputs_of, node_tests

from relaybuild.errors import UserError
from relaybuild.frontend.onnx.definition import has_definition
from relaybuild.frontend.onnx.importer import MAX_OPSET
from relaybuild.frontend.onnx.registry import all_converters
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal

REFUSED = {
    r"training": "training mode",
    r"(?i)float8|float4e|float6e|int4(?!\d)|int2(?!\d)|e4m3|e5m2|string": "element types that relaybuild lacks",
    r"_(sequence|seq|opt)$|loop\d+_seq": "sequences and optionals",
    r"scan_sum": "Scan of opset 8",
    r"bernoulli": "random numbers, by which the standard defines it",
    r"maxpool_with_argmax": "the indices of MaxPool",
    r"tf_crop_and_resize|antialias|half_pixel_symmetric": "rare modes of Resize",
    r"quantizelinear_blocked": "blocked quantization",
    r"einsum_batch_diagonal": "diagonals in Einsum",
}
"""Cases that must end in a UserError, by a pattern of their name."""
DIFFERENT = {
    r"resize_downsample_scales_\w+_align_corners": "onnxruntime, like relaybuild, aligns the corners of whole sizes",
}
"""Cases that are imported, but for which the expected output is not what is computed."""
SLOW = ("AveragePool", "LpPool", "MaxPool")
OF_SEQUENCES = {"SequenceMap"}
DEFINED = {name for name in node_tests() if has_definition(name, "", MAX_OPSET)} - OF_SEQUENCES
OPERATORS = sorted(DEFINED | {op_type for domain, op_type in all_converters() if not domain and op_type not in SLOW})


def check_operator(op_type: str, cases: list[Any]) -> None:
    failures: list[str] = []
    for case in cases:
        if _matches(DIFFERENT, case.name):
            continue
        try:
            if _matches(REFUSED, case.name):
                with pytest.raises(UserError):
                    check_node_test(case)
            else:
                check_node_test(case)
        except (AssertionError, UserError, pytest.fail.Exception) as error:
            failures.append(f"{case.name}: {error}")
    assert not failures, f"{len(failures)} of {len(cases)} cases of {op_type}:\n" + "\n".join(failures)


def _matches(patterns: dict[str, str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


@pytest.mark.parametrize("op_type", OPERATORS)
def test_node_tests(op_type: str) -> None:
    cases = node_tests().get(op_type)
    if cases is None:
        pytest.skip("ONNX has no test of this operator")
    check_operator(op_type, cases)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", SLOW)
def test_slow_node_tests(op_type: str) -> None:
    check_operator(op_type, node_tests(slow=True)[op_type])


def test_imported_modules_survive_their_text() -> None:
    """bfloat16 literals have no text form yet."""
    checked = 0
    for op_type in OPERATORS:
        for case in node_tests().get(op_type, ())[::4]:
            if _matches(REFUSED, case.name) or re.search(r"bf(loat)?16", case.name):
                continue
            module = import_case(case.model, inputs_of(case)).module
            assert structural_equal(parse(module.astext()), module), case.name
            checked += 1
    assert checked > 100
