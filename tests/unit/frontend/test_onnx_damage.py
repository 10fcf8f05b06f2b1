"""Damaged nodes end in a UserError or import: never in another exception."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, helper
from onnx_cases import import_case, inputs_of, node_tests

from relaybuild.errors import UserError
from relaybuild.frontend.onnx.registry import all_converters

NUMBERS = (-1000, -3, -2, -1, 0, 1, 2, 3, 5, 7, 100)
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e30)
DTYPES = ("float32", "float16", "int64", "int32", "uint8", "bool")
Values = dict[str, np.ndarray[Any, Any]]
Damage = Callable[[random.Random, ModelProto, Values], None]


def change_attribute(rng: random.Random, model: ModelProto, values: Values) -> None:
    attributes = model.graph.node[0].attribute
    if not attributes:
        return
    attribute = rng.choice(list(attributes))
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = b"unheard"
    elif attribute.type == AttributeProto.INTS:
        changed = [rng.choice((item, rng.choice(NUMBERS))) for item in attribute.ints]
        del attribute.ints[:]
        attribute.ints.extend(rng.choice((changed, changed[1:], [*changed, 1])))


def drop_inputs(rng: random.Random, model: ModelProto, values: Values) -> None:
    inputs = model.graph.node[0].input
    if inputs:
        del inputs[rng.randrange(len(inputs)) :]


def change_shape(rng: random.Random, model: ModelProto, values: Values) -> None:
    name = rng.choice(list(values))
    shape = list(values[name].shape)
    if shape and rng.random() < 0.6:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 7))
    else:
        shape = rng.choice((shape[1:], [*shape, 2]))
    replace(model, values, name, np.zeros(shape, values[name].dtype))


def change_numbers(rng: random.Random, model: ModelProto, values: Values) -> None:
    name = rng.choice(list(values))
    if values[name].dtype.kind in "iu":
        numbers = np.array([rng.choice(NUMBERS) for _ in range(values[name].size)])
        replace(model, values, name, numbers.reshape(values[name].shape).astype(values[name].dtype))


def change_dtype(rng: random.Random, model: ModelProto, values: Values) -> None:
    name = rng.choice(list(values))
    replace(model, values, name, np.zeros(values[name].shape, rng.choice(DTYPES)))


def replace(model: ModelProto, values: Values, name: str, value: np.ndarray[Any, Any]) -> None:
    values[name] = value
    for declared in model.graph.input:
        if declared.name == name:
            dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
            declared.type.CopyFrom(helper.make_tensor_type_proto(dtype, value.shape))


@pytest.mark.parametrize("damage", [change_attribute, drop_inputs, change_shape, change_numbers, change_dtype])
def test_a_damaged_node_raises_nothing_but_user_errors(damage: Damage) -> None:
    rng = random.Random(damage.__name__)
    supported = {op_type for domain, op_type in all_converters() if not domain}
    cases = [case for op_type in sorted(supported & set(node_tests())) for case in node_tests()[op_type]]
    for case in rng.sample(cases, 400):
        values = inputs_of(case)
        if not values:
            continue
        model = ModelProto()
        model.CopyFrom(case.model)
        damage(rng, model, values)
        with suppress(UserError):
            import_case(model, values)
