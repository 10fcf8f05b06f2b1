"""Models that are found by their structure: the program has the new weights, and values that were needed count."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from runners.small_networks import Network

from relaybuild.build.cache.journal import MissReason, Storing
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.imports import OnnxFile, import_step
from relaybuild.compilation.known import Known
from relaybuild.compilation.slots import Weights
from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse

from .stepping import Site, request_of

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")

Array: TypeAlias = NDArray[Any]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "cache")


def evaluate(module: IRModule) -> list[Array]:
    """The results for random inputs."""
    main = module["main"]
    random = np.random.default_rng(0)
    inputs = [random.random(param.tensor_type.static_shape, "float32") for param in main.params]
    found = interpret(main, *inputs)
    return list(found) if isinstance(found, tuple) else [found]


def check(site: Site, path: Path, **options: Any) -> list[str]:
    """Import a model and compare what it computes with what it does without a cache; returns what was executed."""
    with site.run(path, **options) as run:
        found = evaluate(run.program.module)
        model = run.model
    wanted = import_model(path, options.get("shapes"))
    assert (model.inputs, model.outputs) == (wanted.input_names, wanted.output_names)
    assert model.provenance == {"format": "onnx", "opset": wanted.opset, "producer": wanted.producer}
    for have, want in zip(found, evaluate(wanted.module)):
        np.testing.assert_array_equal(have, want)
    return site.executed("import")


def test_other_weights_are_the_same_program(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    executed = [check(site, Network(seed=seed).save(path)) for seed in (0, 0, 1, 2)]
    assert executed == [[""], [], [], []]


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (Network(widths=(16, 16, 32)), {}),
        (Network(prefix="other"), {}),
        (Network(batch_norm=False), {}),
        (Network(), {"shapes": {"net/x": (1, 3, 12, 12)}}),
    ],
    ids=["shape", "names", "nodes", "shapes"],
)
def test_all_else_is_another_program(site: Site, tmp_path: Path, change: Network, options: Any) -> None:
    path = tmp_path / "model.onnx"
    check(site, Network().save(path))
    assert check(site, change.save(path), **options) == [""]
    changed = {"option.shapes"} if options else {"in/structure"}
    assert site.changes("import") == changed


def test_the_files_name_is_in_the_key(site: Site, tmp_path: Path) -> None:
    # spans name it
    check(site, Network().save(tmp_path / "one.onnx"))
    assert check(site, Network().save(tmp_path / "two.onnx")) == [""]
    assert site.changes("import") == {"option.source"}
    (tmp_path / "folder").mkdir()
    assert check(site, Network().save(tmp_path / "folder" / "two.onnx")) == []


def save(path: Path, nodes: list[NodeProto], weights: Mapping[str, Array | TensorProto], *shape: int) -> Path:
    """A model from `x` to `y`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = [
        each if isinstance(each, TensorProto) else numpy_helper.from_array(each, name) for name, each in weights.items()
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def resized(path: Path, factor: float, weight: float) -> Path:
    """The scales of a resize are a weight by their type and size."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Mul", ["r", "w"], ["y"]),
    ]
    scales = np.array([1, 1, factor, factor], "float32")
    return save(path, nodes, {"scales": scales, "w": np.full((1, 3, 1, 1), weight, "float32")}, 1, 3, 4, 4)


def reshaped(path: Path, last: int, weight: float) -> Path:
    """A shape that is part of more than 64 numbers."""
    table = np.array([*[0] * 66, 24 // last, last], "int64")
    nodes = [
        helper.make_node("Gather", ["table", "places"], ["shape"]),
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["y"]),
    ]
    weights = {"table": table, "places": np.array([66, 67], "int64"), "w": np.full((4, 6), weight, "float32")}
    return save(path, nodes, weights, 4, 6)


def computed(path: Path, factor: float, weight: float) -> Path:
    """The sizes come of arithmetic over two weights."""
    nodes = [
        helper.make_node("Mul", ["base", "factors"], ["scales"]),
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Mul", ["r", "w"], ["y"]),
    ]
    factors = np.array([1, 1, factor, factor], "float32")
    weights = {"base": np.ones(4, "float32"), "factors": factors, "w": np.full((1, 3, 1, 1), weight, "float32")}
    return save(path, nodes, weights, 1, 3, 4, 4)


@pytest.mark.parametrize(
    ("make", "asked"),
    [(resized, {"0"}), (reshaped, {"0"}), (computed, {"0", "1"})],
    ids=["scales", "shape", "computed"],
)
def test_a_weight_whose_value_is_needed_counts(
    site: Site, tmp_path: Path, make: Callable[[Path, float, float], Path], asked: set[str]
) -> None:
    path = tmp_path / "model.onnx"
    assert check(site, make(path, 2, 1.0)) == [""]
    assert check(site, make(path, 2, 3.0)) == []
    assert check(site, make(path, 3, 3.0)) == [""]
    assert site.changes("import") <= {f"in/weights/{each}" for each in asked}
    assert site.changes("import")
    # twice, as what is asked for must have been noted again
    assert check(site, make(path, 4, 3.0)) == [""]
    assert check(site, make(path, 1, 5.0)) == [""]
    for factor in (2, 3, 4, 1):
        assert check(site, make(path, factor, 7.0)) == []


def padded(path: Path, pads: list[int]) -> Path:
    nodes = [helper.make_node("Pad", ["x", "pads"], ["y"])]
    return save(path, nodes, {"pads": np.array(pads, "int64")}, 2, 2)


def clipped(path: Path, bound: float) -> Path:
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"])]
    return save(path, nodes, {"low": np.array(0.25, "float32"), "high": np.array(bound, "float32")}, 2, 2)


def constant(path: Path, value: list[float]) -> Path:
    # the tensor of a node is structure, whatever its size
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(value, "float32")))
    return save(path, [node, helper.make_node("Add", ["x", "c"], ["y"])], {}, 2, 2)


@pytest.mark.parametrize(
    ("make", "values"),
    [(padded, ([0, 0, 1, 1], [1, 0, 1, 0])), (clipped, (0.5, 0.75)), (constant, ([1, 2], [3, 4]))],
    ids=["pads", "bounds", "constant"],
)
def test_what_is_structure_counts(site: Site, tmp_path: Path, make: Any, values: Any) -> None:
    path = tmp_path / "model.onnx"
    assert [check(site, make(path, value)) for value in (*values, *values)] == [[""], [""], [], []]


@pytest.mark.parametrize("form", ["typed", "external", "raw"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "float16"])
def test_weights_in_every_form_are_those_of_the_file(site: Site, tmp_path: Path, form: str, dtype: str) -> None:
    path = tmp_path / "model.onnx"
    random = np.random.default_rng(4)
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])]
    for executed in ([""], [], []):
        array = (random.random((20, 6)) * 2).astype(dtype)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        weight = numpy_helper.from_array(array, "w")
        if form == "typed":
            weight = helper.make_tensor("w", kind, array.shape, array.reshape(-1).tolist())
        elif form == "external":
            (tmp_path / "w.bin").write_bytes(b"before" + array.tobytes())
            weight = TensorProto(name="w", data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "w.bin"), ("offset", 6), ("length", array.nbytes)):
                weight.external_data.add(key=key, value=str(value))
        assert check(site, save(path, nodes, {"w": weight}, 20, 6)) == executed


def test_a_weight_of_any_form_that_is_asked_for_later_counts(site: Site, tmp_path: Path) -> None:
    """Its array, loaded when the program was found, is known to be the model's."""
    path = tmp_path / "model.onnx"
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    for seed in range(3):
        array = np.random.default_rng(seed).random(6)
        weight = helper.make_tensor("w", TensorProto.FLOAT, (6,), array.tolist())
        with site.run(save(path, nodes, {"w": weight}, 6)) as run:
            (found,) = run.program.module["main"].body.args[1:]  # type: ignore[attr-defined]
            assert run.actions.weights.known(found) == 0
    assert site.executed("import") == []


def test_a_file_that_is_edited_while_it_is_read_is_used_but_not_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Network().save(tmp_path / "model.onnx")
    real = OnnxFile.read

    def edited(model: object) -> OnnxFile | None:
        found = real(model)
        # between the structure's digest and the import
        other = Network(widths=(16, 16, 32)).save(tmp_path / "other.onnx")
        os.replace(other, path)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(OnnxFile, "read", edited)
        with site.run(path) as run:
            assert len(run.program.module.functions) == 1
    assert site.stored("import") == [Storing.RACY_INPUT]
    assert check(site, Network().save(path)) == [""]
    assert check(site, Network(seed=3).save(path)) == []


def test_a_file_beside_the_model_that_is_edited_is_seen(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    (tmp_path / "w.bin").write_bytes(bytes(24))
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(6,), data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    file = OnnxFile.read(save(path, [helper.make_node("Add", ["x", "w"], ["y"])], {"w": weight}, 6))
    assert file is not None
    assert set(map(Path, file.files)) == {path, tmp_path / "w.bin"}
    assert file.files.changed() == []
    (tmp_path / "w.bin").write_bytes(bytes(25))
    assert file.files.changed() == [tmp_path / "w.bin"]
    (tmp_path / "w.bin").unlink()
    assert file.files.changed() == [tmp_path / "w.bin"]


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x3a\x05ab"])
def test_who_imports_says_what_is_wrong_with_a_file(site: Site, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(UserError, match="is not an ONNX model"), site.run(path):
        pass


def test_what_is_no_onnx_file_is_read_every_time(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.relay"
    path.write_text("def @main(%x: Tensor[(2,), float32]) { nn.relu(%x) }", encoding="utf-8")
    assert OnnxFile.read(path) is None
    for _ in range(2):
        with site.run(path) as run:
            assert run.model.provenance == {"format": "relay"}
            assert run.model.inputs == ("x",)
        (looked,) = site.journal.looked
        assert (looked.reason, looked.detail) == (MissReason.BYPASSED, "it is read every time")
        assert site.executed("import") == [""]


def test_a_module_brings_its_weights_along() -> None:
    text = (
        'def @main(%x: Tensor[(2,), float32]) { add(%x, meta[relay.Constant][0]) }\n#[metadata]\n{"relay.Constant": ['
    )
    module = parse(text + '{"dtype": "float32", "shape": [2]}]}\n', weights=[np.array([1, 2], "float32")])
    actions = Actions(None, Weights(), "model")
    request = request_of(module)
    found = import_step(request, OnnxFile.read(module), actions, Known.of(request, actions))
    assert len(actions.weights) == 1
    assert found.program.weights is actions.weights
    np.testing.assert_array_equal(actions.weights.array(0), np.array([1, 2], "float32"))
