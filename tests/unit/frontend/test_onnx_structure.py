"""The structure of models: it changes with whatever is no weight's value, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from relaybuild.frontend.onnx import import_model
from relaybuild.frontend.onnx.mapped import slices_beside
from relaybuild.frontend.onnx.structure import Structure, dtype_name, structure_of
from relaybuild.frontend.onnx.wire import WireError, read_fields
from relaybuild.ir.expr import Constant
from relaybuild.ir.types import DTYPES

Array: TypeAlias = NDArray[Any]

VALUES = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")
PLACES = ("external_data", "data_location")
KINDS = {number: helper.tensor_dtype_to_np_dtype(number) for number in TensorProto.DataType.values() if number}
OUTSIDE = {"a.bin": bytes(range(256)) * 16, "b.bin": bytes(reversed(range(256))) * 16}


def read_outside(name: str, offset: int, length: int | None) -> bytes:
    if offset < 0:
        raise ValueError("before the beginning")
    data = OUTSIDE.get(name)
    if data is None:
        raise ValueError(f"'{name}' is not beside the model")
    return data[offset:] if length is None else data[offset : offset + max(0, length)]


def structure(model: ModelProto) -> Structure:
    return structure_of(memoryview(model.SerializeToString()), read_outside)


def tensor(name: str, array: Array, form: str = "raw") -> TensorProto:
    """An initializer that holds its elements as bytes, as numbers, or in another file."""
    if form == "raw":
        return numpy_helper.from_array(array, name)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    if form == "typed":
        return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())
    made = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "a.bin"), ("offset", 64), ("length", array.nbytes)):
        made.external_data.add(key=key, value=str(value))
    return made


# weights, and what is structure: scalars, empty tensors, few integers
WEIGHTS = [
    np.arange(2, dtype="float32"),
    np.arange(6, dtype="float64").reshape(2, 3),
    np.arange(65, dtype="int64"),
    np.arange(70, dtype="int32"),
    np.arange(66) % 3 == 0,
    np.arange(4, dtype="float16"),
]
SMALL = [
    np.array(2.5, "float32"),
    np.ones((1, 1), "float32"),
    np.zeros((0, 4), "float32"),
    np.arange(64, dtype="int64"),
    np.arange(3, dtype="int32"),
    np.array(True),
]
FORMS = ("raw", "typed", "external")


def nested(name: str) -> GraphProto:
    """A subgraph with a weight of its own."""
    y = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, (2,))
    node = helper.make_node("Add", ["x", f"{name}_w"], [f"{name}_y"])
    return helper.make_graph([node], name, [], [y], [tensor(f"{name}_w", np.arange(2, dtype="float32"))])


def model_of(*initializers: TensorProto) -> ModelProto:
    """A model with these initializers, and with all that a model may have besides."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 2))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (None, 2))
    value = tensor("value", np.arange(3, dtype="float32"))
    nodes = [
        helper.make_node("Constant", [], ["c"], name="constant", value=value, doc_string="a constant"),
        helper.make_node("If", ["x"], ["i"], name="if", then_branch=nested("then"), else_branch=nested("else")),
        helper.make_node("Own", ["x", "c", "i"], ["y"], domain="own", axes=[1, 2], alpha=0.5, mode="linear"),
    ]
    graph = helper.make_graph(nodes, "graph", [x], [y], initializers, doc_string="a graph", value_info=[x])
    body = [helper.make_node("Add", ["a", "b"], ["r"])]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Own", ["a", "b", "d"], ["r"], body, sets[:1], ["alpha"])
    model = helper.make_model(graph, opset_imports=sets, functions=[function], producer_name="maker", ir_version=8)
    helper.set_model_props(model, {"key": "value"})
    return model


@st.composite
def models(draw: Callable[[Any], Any]) -> ModelProto:
    arrays = draw(st.lists(st.sampled_from([*WEIGHTS, *SMALL]), max_size=4))
    made = [tensor(f"w{number}", array, draw(st.sampled_from(FORMS))) for number, array in enumerate(arrays)]
    return model_of(*made)


def is_weight(each: TensorProto) -> bool:
    kind = KINDS.get(each.data_type, np.dtype("int64")).kind
    return prod(each.dims) > (1 if kind in "fVc" else 64)


def skeleton(model: ModelProto) -> tuple[bytes, ...]:
    """All of a model but the values of its weights: what its structure should tell apart."""
    copy = ModelProto()
    copy.CopyFrom(model)
    outside = []
    for each in copy.graph.initializer:
        if is_weight(each):
            for name in (*VALUES, *PLACES):
                each.ClearField(name)
        elif each.data_location == TensorProto.EXTERNAL:
            found = {entry.key: entry.value for entry in each.external_data}
            with suppress(ValueError):
                length = int(found["length"]) if "length" in found else None
                outside.append(read_outside(found.get("location", ""), int(found.get("offset", 0)), length))
    return (copy.SerializeToString(), *outside)


def leaves(message: Any) -> Iterator[tuple[Any, Any, int | None]]:
    """Every number and text in a message: what holds it, its field, and its place in a repeated one."""
    for each, value in message.ListFields():
        is_repeated = not isinstance(value, (int, float, str, bytes)) and not hasattr(value, "ListFields")
        for place, item in enumerate(value) if is_repeated else ((None, value),):
            if hasattr(item, "ListFields"):
                yield from leaves(item)
            else:
                yield message, each, place


def other_value(value: Any) -> Any:
    if isinstance(value, str):
        return f"{value}x"
    return value + b"x" if isinstance(value, bytes) else value + 1


def perturb(model: ModelProto, choice: int) -> ModelProto:
    """The model with one number or text changed."""
    copy = ModelProto()
    copy.CopyFrom(model)
    found = list(leaves(copy))
    message, each, place = found[choice % len(found)]
    value = getattr(message, each.name)
    if each.enum_type is not None:
        setattr(message, each.name, next(number for number in each.enum_type.values_by_number if number != value))
    elif place is None:
        setattr(message, each.name, other_value(value))
    else:
        value[place] = other_value(value[place])
    return copy


@settings(max_examples=300, deadline=None)
@given(models(), st.integers(0, 10**6))
def test_all_but_the_values_of_weights_counts(model: ModelProto, choice: int) -> None:
    changed = perturb(model, choice)
    assert changed != model
    is_same = skeleton(model) == skeleton(changed)
    assert (structure(model).digest == structure(changed).digest) is is_same


def test_every_field_of_one_model() -> None:
    weights = [tensor(f"w{n}", array, FORMS[n % 3]) for n, array in enumerate([*WEIGHTS, *SMALL])]
    model = model_of(*weights)
    before = structure(model).digest
    same, count = 0, len(list(leaves(model)))
    for choice in range(count):
        changed = perturb(model, choice)
        is_same = skeleton(model) == skeleton(changed)
        assert (structure(changed).digest == before) is is_same, list(leaves(changed))[choice]
        same += is_same
    assert 0 < same < count


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("array", WEIGHTS, ids=lambda array: array.dtype.name)
def test_how_a_weight_is_stored_does_not_count(array: Array, form: str) -> None:
    first, second = structure(model_of(tensor("w", array))), structure(model_of(tensor("w", array[::-1], form)))
    assert first.digest == second.digest
    assert first.weights.keys() == {"w"}
    assert (second.weights["w"].span is not None) is (form == "raw")


@pytest.mark.parametrize("array", SMALL, ids=lambda array: f"{array.dtype.name}{array.shape}")
def test_small_tensors_are_structure(array: Array) -> None:
    found = structure(model_of(tensor("w", array)))
    assert found.weights == {}
    if array.size:
        other = ~array if array.dtype == bool else array + 1
        assert found.digest != structure(model_of(tensor("w", other.astype(array.dtype)))).digest


def test_what_small_tensors_hold_in_other_files_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(tensor("w", np.arange(3, dtype="int64"), "external"))
    before = structure(model).digest
    data = bytearray(OUTSIDE["a.bin"])
    data[0] ^= 1
    monkeypatch.setitem(OUTSIDE, "a.bin", bytes(data))
    assert structure(model).digest == before
    data[64] ^= 1
    monkeypatch.setitem(OUTSIDE, "a.bin", bytes(data))
    assert structure(model).digest != before


def holding(place: str, held: TensorProto) -> ModelProto:
    """A model that has a tensor somewhere else than among its graph's initializers."""
    constant = helper.make_node("Constant", [], ["c"], value=held)
    branch = helper.make_graph([], "branch", [], [], [held])
    graph = helper.make_graph([], "g", [], [])
    made = helper.make_model(graph)
    if place == "attribute":
        graph.node.append(constant)
    elif place == "initializer of a branch":
        graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))
    elif place == "attribute in a branch":
        branch.node.append(constant)
        graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))
    elif place == "sparse initializer":
        graph.sparse_initializer.add().values.CopyFrom(held)
    else:
        made.functions.append(helper.make_function("own", "f", [], ["c"], [constant], []))
    made.graph.CopyFrom(graph)
    return made


PLACES_OF_TENSORS = (
    "attribute",
    "initializer of a branch",
    "attribute in a branch",
    "sparse initializer",
    "function",
)


@pytest.mark.parametrize("place", PLACES_OF_TENSORS)
def test_what_other_tensors_hold_in_files_counts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = holding(place, tensor("w", np.ones((16, 16), "float32"), "external"))
    before = structure(model)
    assert before.files == {"a.bin"}
    assert not before.weights
    monkeypatch.setitem(OUTSIDE, "a.bin", bytes(4096))
    assert structure(model).digest != before.digest


def test_weights_are_those_of_constants_for_every_type() -> None:
    known = {number: dtype for number, dtype in KINDS.items() if dtype.name in DTYPES}
    assert len(known) == len(DTYPES)
    for number, dtype in known.items():
        for size in (1, 2, 64, 65):
            made = TensorProto(name="w", data_type=number, dims=[size], raw_data=b"")
            expected = Constant(np.zeros(size, dtype)).is_weight
            assert ("w" in structure(model_of(made)).weights) is expected, (dtype, size)
        assert dtype_name(number) == (dtype.name if dtype.name != "bfloat16" else None)


def runnable(*arrays: Array) -> ModelProto:
    """A model that uses weights of its own, and in a subgraph one by the name of another one of its own."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 300))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 300))
    inner = helper.make_tensor_value_info("inner", TensorProto.FLOAT, (2, 300))
    own = helper.make_graph(
        [helper.make_node("Add", ["x", "twice"], ["inner"])], "own", [], [inner], [tensor("twice", arrays[2])]
    )
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "typed"], ["b"]),
        helper.make_node("If", ["yes"], ["c"], then_branch=own, else_branch=own),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    weights = [
        tensor("w", arrays[0]),
        tensor("typed", arrays[1], "typed"),
        tensor("twice", arrays[3]),
        tensor("yes", np.array(True)),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_places_are_those_that_the_importer_reads(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    arrays = [random.random((2, 300), dtype="float32") for _ in range(4)]
    path = tmp_path / "model.onnx"
    path.write_bytes(runnable(*arrays).SerializeToString())
    data = memoryview(path.read_bytes())
    found = structure_of(data, slices_beside(path))
    assert list(found.weights) == ["w", "typed", "twice"]
    told: dict[str, Array] = {}
    import_model(path, on_weight=told.__setitem__)
    assert told.keys() == {"w", "typed", "twice"}
    # that of the model, and not of the subgraph
    assert told["twice"].tobytes() == arrays[3].tobytes()
    for name, array in told.items():
        place = found.weights[name]
        assert place.shape == array.shape
        assert dtype_name(place.data_type) == array.dtype.name
        if place.span is not None:
            assert bytes(data[slice(*place.span)]) == array.tobytes()
    assert found.weights["w"].span is not None
    assert found.weights["typed"].span is None


def field_ends(data: bytes) -> set[int]:
    return {0, *(item.end for item in read_fields(memoryview(data), 0, len(data)))}


def test_a_truncated_model_is_refused() -> None:
    data = model_of(*(tensor(f"w{n}", array) for n, array in enumerate(WEIGHTS))).SerializeToString()
    ends = field_ends(data)
    for end in set(range(len(data))) - ends:
        with pytest.raises(WireError, match="truncated"):
            structure_of(memoryview(data[:end]), read_outside)


@settings(max_examples=300, deadline=None)
@given(models(), st.data())
def test_other_bytes_are_a_structure_or_refused(model: ModelProto, data: st.DataObject) -> None:
    changed = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        structure_of(memoryview(bytes(changed)), read_outside)


def framed(number: int, payload: bytes, wire_type: int = 2) -> bytes:
    head = bytes([number << 3 | wire_type])
    return head + bytes([len(payload)]) + payload if wire_type == 2 else head + payload


def digest_of(data: bytes) -> str:
    return structure_of(memoryview(data), read_outside).digest.hex


W = framed(1, b"\x02", 0) + framed(2, b"\x01", 0) + framed(8, b"w")
"""A tensor of two floats."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # the same field before a graph and first in it, last in it and behind it, and around tensors and in them
        (framed(2, b"name") + framed(7, b""), framed(7, framed(2, b"name"))),
        (framed(7, framed(2, b"name")), framed(7, b"") + framed(2, b"name")),
        (framed(7, framed(5, W) + framed(12, b"out")), framed(7, framed(5, W + framed(12, b"out")))),
        (framed(7, framed(12, b"in") + framed(5, W)), framed(7, framed(5, framed(12, b"in") + W))),
        (framed(7, framed(5, W)), framed(7, framed(5, W) + framed(5, W))),
        (framed(7, framed(5, W)), framed(7, b"") + framed(5, W)),
        (framed(7, framed(5, W)), framed(7, framed(6, W))),
        # the same bytes as a number and as a text; a field's end
        (framed(7, b"") + framed(9, b"\x05", 0), framed(7, b"") + framed(9, b"\x05")),
        (framed(2, b"a2 2 b"), framed(2, b"a") + framed(2, b"b")),
    ],
)
def test_where_a_field_stands_counts(first: bytes, second: bytes) -> None:
    assert digest_of(first) != digest_of(second)


@pytest.mark.parametrize(
    "initializer",
    [W + framed(14, b"\x01"), framed(2, b""), framed(1, b""), framed(8, b"\x01", 0), framed(1, bytes(4), 5)],
)
def test_fields_of_a_wrong_kind_are_structure(initializer: bytes) -> None:
    assert digest_of(framed(7, framed(5, initializer))) != digest_of(framed(7, framed(5, b"")))


def test_a_place_of_a_wrong_kind_is_no_place() -> None:
    data = framed(7, framed(5, W + framed(14, b"\x01") + framed(9, bytes(8))))
    assert structure_of(memoryview(data), read_outside).weights["w"].span is not None


def test_bytes_of_a_weight_that_is_in_another_file_are_not_its_values() -> None:
    data = framed(7, framed(5, W + framed(14, b"\x01", 0) + framed(9, bytes(8))))
    found = structure_of(memoryview(data), read_outside)
    assert found.weights["w"].span is None
    assert found.files == {""}


def test_extents_of_a_wrong_kind_are_none() -> None:
    data = framed(7, framed(5, framed(1, b"\x02\x02\x02\x02", 5) + W))
    assert structure_of(memoryview(data), read_outside).weights["w"].shape == (2,)


def test_a_field_of_a_large_number_is_structure() -> None:
    large = b"\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05"
    assert digest_of(large) != digest_of(b"")
