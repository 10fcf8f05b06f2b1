"""Opening models: files that are none, tensors in every encoding, external data."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_cases import run, single

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model
from relaybuild.frontend.onnx.reader import read_model
from relaybuild.ir.expr import Constant
from relaybuild.ir.visitor import post_order


def with_weight(weight: TensorProto) -> ModelProto:
    """x + w with a weight of shape (2, 300)."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 300))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 300))
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def external(location: str, offset: int | None = None, length: int | None = None) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(2, 300), data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)


def save(folder: Path, model: ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weight_of(model: object) -> np.ndarray:
    body = import_model(model).module["main"].body  # type: ignore[arg-type]
    return next(node.data for node in post_order(body) if isinstance(node, Constant))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cannot read '.*nothing.onnx': No such file"):
        import_model(tmp_path / "nothing.onnx")


@pytest.mark.parametrize("data", [b"", b"not a model at all\n", b"\x89PNG\r\n\x1a\n" + bytes(64), b"\x08\x08"])
def test_other_files_are_not_models(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x\.onnx' is not an ONNX model: "):
        import_model(path)


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        import_model(tmp_path)


def test_every_truncation_is_a_user_error(values: np.ndarray) -> None:
    data = with_weight(numpy_helper.from_array(values, "w")).SerializeToString()
    for end in range(0, len(data), 7):
        with pytest.raises(UserError):
            import_model(data[:end])


def test_damaged_bytes_raise_nothing_but_user_errors() -> None:
    data = single("Softmax", {"x": np.zeros((2, 3), np.float32)}, axis=1).SerializeToString()
    rng = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), rng.integers(1, 4)):
            damaged[position] = rng.integers(0, 256)
        with suppress(UserError):
            import_model(bytes(damaged))


def test_weights_of_a_file_stay_mapped(tmp_path: Path, values: np.ndarray) -> None:
    weight = weight_of(save(tmp_path, with_weight(numpy_helper.from_array(values, "w"))))
    np.testing.assert_array_equal(weight, values)
    assert isinstance(_root(weight), mmap.mmap)


def _root(array: np.ndarray) -> object:
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base


def test_typed_fields_and_raw_data_agree(values: np.ndarray) -> None:
    typed = helper.make_tensor("w", TensorProto.FLOAT, values.shape, values.reshape(-1).tolist())
    np.testing.assert_array_equal(weight_of(with_weight(typed)), values)
    np.testing.assert_array_equal(weight_of(with_weight(numpy_helper.from_array(values, "w"))), values)


@pytest.mark.parametrize(
    "name", "FLOAT16 FLOAT DOUBLE BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
)
def test_numbers_in_fields_are_what_onnx_makes_of_them(name: str) -> None:
    is_signed = not name.startswith(("U", "B"))
    tensor = helper.make_tensor("t", getattr(TensorProto, name), (2, 2), [0, 1, 1, -1 if is_signed else 1])
    assert not tensor.HasField("raw_data")
    found, expected = read_model(with_weight(tensor)).array(tensor), numpy_helper.to_array(tensor)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_numbers_too_large_for_their_type_are_cut_as_onnx_does() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.UINT8, dims=(2,), int32_data=[255, 300])
    found = read_model(with_weight(tensor)).array(tensor)
    assert found.tolist() == numpy_helper.to_array(tensor).tolist() == [255, 44]


def test_the_proto_stays_as_it_is(values: np.ndarray) -> None:
    model = with_weight(numpy_helper.from_array(values, "w"))
    before = model.SerializeToString(deterministic=True)
    import_model(model)
    assert model.SerializeToString(deterministic=True) == before


def test_other_tensors_of_an_initializers_name_keep_their_own_values(tmp_path: Path, values: np.ndarray) -> None:
    model = with_weight(numpy_helper.from_array(values, "w"))
    own = helper.make_tensor("w", TensorProto.FLOAT, values.shape, np.ones(values.size).tolist())
    model.graph.node[0].output[0] = "sum"
    model.graph.node.append(helper.make_node("Constant", [], ["ones"], value=own))
    model.graph.node.append(helper.make_node("Mul", ["sum", "ones"], ["y"]))
    x = np.ones((2, 300), np.float32)
    np.testing.assert_array_equal(run(import_model(save(tmp_path, model)), {"x": x})[0], x + values)


def test_external_data_is_mapped(tmp_path: Path, values: np.ndarray) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"head" * 4 + values.tobytes())
    path = save(tmp_path, with_weight(external("data/w.bin", 16, values.nbytes)))
    assert isinstance(_root(weight_of(path)), mmap.mmap)
    x = np.ones((2, 300), np.float32)
    np.testing.assert_array_equal(run(import_model(path), {"x": x})[0], x + values)


def test_external_data_without_offset_and_length(tmp_path: Path, values: np.ndarray) -> None:
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    np.testing.assert_array_equal(weight_of(save(tmp_path, with_weight(external("w.bin")))), values)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "", "."])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(2400))
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(
        UserError, match=r"^model\.onnx: tensor 'w': external data '.*' lies outside the model's folder"
    ):
        import_model(save(inner, with_weight(external(location))))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(2400))
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(UserError, match="outside the model's folder"):
        import_model(save(inner, with_weight(external("w.bin"))))


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tensor 'w': cannot read external data 'w\.bin': No such file"):
        import_model(save(tmp_path, with_weight(external("w.bin"))))


@pytest.mark.parametrize(("offset", "length"), [(0, 2400), (1000, None), (-4, 2400), (0, 3)])
def test_short_external_data_is_an_error(tmp_path: Path, offset: int, length: int | None) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(2000))
    with pytest.raises(UserError, match=r"tensor 'w': .*(were expected, the file has|takes 2400 bytes, found)"):
        import_model(save(tmp_path, with_weight(external("w.bin", offset, length))))


def test_external_data_of_a_model_in_memory_is_an_error() -> None:
    with pytest.raises(UserError, match="given in memory"):
        import_model(with_weight(external("w.bin")))


def test_unused_initializers_are_not_read(values: np.ndarray) -> None:
    model = with_weight(numpy_helper.from_array(values, "w"))
    model.graph.initializer.append(external("nowhere.bin"))
    model.graph.initializer[-1].name = "unused"
    import_model(model)


@pytest.mark.parametrize("size", [599, 601])
def test_values_must_fill_the_shape(values: np.ndarray, size: int) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(2, 300), raw_data=bytes(4 * size))
    with pytest.raises(UserError, match=rf"shape \(2, 300\) of float32 takes 2400 bytes, found {4 * size}"):
        import_model(with_weight(weight))


def test_unsupported_element_type_is_named() -> None:
    weight = helper.make_tensor("w", TensorProto.STRING, (1,), [b"a"])
    with pytest.raises(UserError, match="tensor 'w': element type 'string' is not supported"):
        import_model(with_weight(weight))


def test_local_functions_are_inlined() -> None:
    opset = helper.make_opsetid("", 17)
    double = helper.make_function("mine", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [opset])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (3,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))
    graph = helper.make_graph([helper.make_node("Double", ["x"], ["y"], domain="mine")], "g", [x], [y])
    opsets = [opset, helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[double], ir_version=8)
    value = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(import_model(model), {"x": value})[0], value * 2)
    assert len(model.functions) == 1


def test_source_names_the_file(tmp_path: Path, values: np.ndarray) -> None:
    path = save(tmp_path, with_weight(numpy_helper.from_array(values, "w")))
    assert read_model(path).source == "model.onnx"
    assert read_model(path, "other").source == "other"
