"""What must hold for every operator: types agree with values, scalar rules with the numpy semantics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from suites.numpy_algebra import compute_all
from suites.ops import Case, cases_of, names_with_cases, type_of

from relaybuild.ir.expr import Call, const
from relaybuild.ir.op import OpKind, all_ops, get_op
from relaybuild.ir.types import ANY, TensorType, TupleType, Type

CASES = [case for name in sorted(all_ops()) for case in cases_of(name)]
COMPUTED = [case for case in CASES if get_op(case.op).compute is not None]
FUSIBLE = (OpKind.ELEMWISE, OpKind.BROADCAST, OpKind.INJECTIVE)
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-12}


def evaluated(case: Case) -> Any:
    op = get_op(case.op)
    return op.evaluate(case.args, op.make_attrs(case.attrs))


def inferred(case: Case) -> Type:
    op = get_op(case.op)
    return op.check(case.arg_types, op.make_attrs(case.attrs), None)


def test_every_operator_has_cases_and_every_case_an_operator() -> None:
    """A backend's own operators, named `contrib.`, are tested beside the backend."""
    assert names_with_cases() == {name for name in all_ops() if not name.startswith("contrib.")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_inferred_type_is_the_type_of_the_value(case: Case) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        assert match_type(inferred(case), type_of(evaluated(case)))


def match_type(declared: Type, found: Type) -> bool:
    """Whether types are equal but for extents that are declared unknown."""
    if isinstance(declared, TensorType) and isinstance(found, TensorType) and declared.rank == found.rank:
        pairs = zip(declared.shape, found.shape)
        return declared.dtype == found.dtype and all(a in (ANY, b) for a, b in pairs)
    return declared == found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_evaluation_leaves_the_arguments_alone(case: Case) -> None:
    before = [tensor.copy() for tensor in case.tensors]
    with np.errstate(over="ignore", invalid="ignore"):
        evaluated(case)
    for old, new in zip(before, case.tensors):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("case", COMPUTED, ids=str)
def test_scalar_rule_agrees_with_the_numpy_semantics(case: Case) -> None:
    op, out_type = get_op(case.op), inferred(case)
    assert isinstance(out_type, TensorType)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = evaluated(case)
    found = compute_all(op, case.tensors, out_type, op.make_attrs(case.attrs))
    tolerance = TOLERANCE.get(out_type.dtype, 0)
    scale = tolerance * np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1.0) if tolerance else 0
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=scale)


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_fusible_operators_have_a_scalar_rule(name: str) -> None:
    op = get_op(name)
    tuple_result = any(isinstance(inferred(case), TupleType) for case in cases_of(name))
    assert (op.compute is not None) == (op.kind in FUSIBLE and not tuple_result)


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_arguments_are_named_and_attributes_documented(name: str) -> None:
    op = get_op(name)
    assert len(op.arg_names) == op.num_inputs
    assert op.attrs_type.__doc__
    assert not op.attrs_type.__doc__.startswith(op.attrs_type.__name__ + "(")


@pytest.mark.parametrize("name", [name for name in sorted(all_ops()) if get_op(name).commutative])
def test_commutative_operators_commute(name: str) -> None:
    op = get_op(name)
    for case in cases_of(name):
        left, right = case.args
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(op.evaluate((left, right), None), op.evaluate((right, left), None))


def test_a_call_is_typed_when_it_is_built() -> None:
    call = Call(get_op("add"), [const(np.zeros((2, 1), np.float32)), const(np.zeros(3, np.float32))])
    assert call.checked_type == TensorType((2, 3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(all_ops()))
def test_narrow_floating_point_keeps_its_dtype(name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    op = get_op(name)
    for case in cases_of(name):
        narrow = [
            tuple(narrowed(field, dtype) for field in arg) if isinstance(arg, tuple) else narrowed(arg, dtype)
            for arg in case.args
        ]
        attrs = op.make_attrs(case.attrs)
        with np.errstate(all="ignore"):
            found = type_of(op.evaluate(narrow, attrs))
            assert match_type(op.infer_type([type_of(arg) for arg in narrow], attrs), found)


def narrowed(array: Any, dtype: str) -> Any:
    return array.astype(dtype) if array.dtype == np.float32 else array
