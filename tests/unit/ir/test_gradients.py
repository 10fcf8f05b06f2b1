"""Every gradient rule against finite differences of the operator's own semantics, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from suites.ops import Argument, Case, cases_of, type_of

from relaybuild.errors import UnsupportedError
from relaybuild.ir.autodiff import is_differentiable, pullback, zeros_of
from relaybuild.ir.expr import Call, Expr, Function, Tuple, Var
from relaybuild.ir.gradients import gradient_rule, nothing
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import all_ops, get_op
from relaybuild.ir.types import TensorType, TupleType, Type

STEP = 1e-6

WITHOUT_GRADIENT = {name for name in all_ops() if name.startswith(("contrib.", "dyn."))}
"""What packs weights for kernels, and what has no static shape: DynamicToStatic makes these static first."""


def _in_float64(value: Argument) -> Argument:
    if isinstance(value, tuple):
        return tuple(np.asarray(_in_float64(field)) for field in value)
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _usable(case: Case) -> bool:
    tensors = [tensor for tensor in case.tensors if tensor.dtype.kind == "f"]
    if {case.attrs.get("mode"), case.attrs.get("reduction")} & {"mul", "min", "max"}:
        return False
    return bool(tensors) and all(np.isfinite(tensor).all() and tensor.size for tensor in tensors)


def _cases() -> list[Case]:
    differentiable = [
        name for name, op in all_ops().items() if op.decompose or gradient_rule(name) not in (None, nothing)
    ]
    return [case for name in differentiable for case in cases_of(name) if _usable(case)]


def _flat(value: Any) -> list[NDArray[Any]]:
    if isinstance(value, (tuple, list)):
        return [leaf for field in value for leaf in _flat(field)]
    return [np.asarray(value)]


def _dot(a: Any, b: Any) -> float:
    pairs = zip(_flat(a), _flat(b))
    return float(sum(np.sum(x.astype(np.float64) * y) for x, y in pairs if x.dtype.kind == "f"))


def _moved(value: Argument, by: Argument, step: float) -> Argument:
    if isinstance(value, tuple):
        return tuple(np.asarray(_moved(a, b, step)) for a, b in zip(value, by))
    return value + step * np.asarray(by) if value.dtype.kind == "f" else value


def _direction(value: Argument, random: np.random.Generator) -> Argument:
    if isinstance(value, tuple):
        return tuple(np.asarray(_direction(field, random)) for field in value)
    return random.normal(size=value.shape)


def _variables(case: Case) -> tuple[list[Var], list[Expr]]:
    """Parameters, one per tensor, and the arguments made of them."""
    params: list[Var] = []
    args: list[Expr] = []
    for arg in case.args:
        fields = arg if isinstance(arg, tuple) else (arg,)
        made = [Var(f"x{len(params) + index}", type_of(_in_float64(field))) for index, field in enumerate(fields)]
        params += made
        args.append(Tuple(made) if isinstance(arg, tuple) else made[0])
    return params, args


def _random_like(kind: Type, random: np.random.Generator) -> Any:
    if isinstance(kind, TupleType):
        return tuple(_random_like(item, random) for item in kind.fields)
    assert isinstance(kind, TensorType)
    values = random.normal(size=kind.static_shape) if is_differentiable(kind) else np.zeros(kind.static_shape)
    return np.asarray(values, kind.dtype)


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_rule_agrees_with_finite_differences(case: Case) -> None:
    """GR05: <seed, directional difference> equals <gradient, direction>, for three directions."""
    op = get_op(case.op)
    attrs = op.make_attrs(case.attrs)
    if case.op == "cast" and "float" not in case.attrs["dtype"]:  # type: ignore[operator]
        pytest.skip("integers do not change by little")
    params, args = _variables(case)
    call = Call(op, args, attrs)
    if case.op == "cast":
        call = Call(op, args, op.make_attrs({"dtype": "float64"}))
    seed = Var("seed", call.checked_type)
    # a parameter that stands in two places would be one node
    grads = pullback(call, seed, params)
    body = Tuple([grad if grad is not None else zeros_of(param.checked_type) for grad, param in zip(grads, params)])
    gradient = IRModule({"main": Function([*params, seed], body)})
    random = np.random.default_rng(case.number)
    values = [np.asarray(_in_float64(tensor)) for tensor in case.tensors]
    weights = _random_like(call.checked_type, random)
    found = interpret(gradient, *values, weights)
    at = [_in_float64(arg) for arg in case.args]
    for _ in range(3):
        towards = [_direction(arg, random) for arg in at]
        with np.errstate(all="ignore"):
            ahead, behind = (
                op.evaluate([_moved(a, b, step) for a, b in zip(at, towards)], call.attrs) for step in (STEP, -STEP)
            )
            difference = (_dot(ahead, weights) - _dot(behind, weights)) / (2 * STEP)
        if not np.isfinite(difference):
            pytest.skip("defined at the point alone")
        directions = [field for arg in towards for field in (arg if isinstance(arg, tuple) else (arg,))]
        expected = _dot(found, directions)
        scale = abs(expected) + sum(float(np.abs(leaf).max(initial=0)) for leaf in _flat(found)) + 1
        assert abs(difference - expected) < 2e-4 * scale


def test_every_operator_has_a_rule_or_is_constant() -> None:
    missing = {name for name in all_ops() if gradient_rule(name) is None and not get_op(name).decompose}
    assert missing == WITHOUT_GRADIENT


def test_an_operator_without_gradient_is_named() -> None:
    data = Var("x", TensorType((4,), "float32"))
    index = Var("i", TensorType((2,), "int64"))
    updates = Var("u", TensorType((2,), "float32"))
    call = Call(
        get_op("scatter_elements"), [data, index, updates], get_op("scatter_elements").make_attrs({"reduction": "max"})
    )
    with pytest.raises(
        UnsupportedError, match="'scatter_elements' has a gradient where it adds or updates, found 'max'"
    ):
        pullback(call, Var("g", call.checked_type), [data])
