"""More weights than code can address: an error that says so, before anything is compiled, whatever is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import relaybuild
from relaybuild.build.forms import Form
from relaybuild.errors import UnsupportedError

EXTENT = 24_000


def large_model(folder: Path) -> Path:
    """A model with 2.3 GB of zeros beside it, which take no room on a disk."""
    onnx = pytest.importorskip("onnx")
    size = 4 * EXTENT * EXTENT
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[EXTENT, EXTENT])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "net.data"), ("offset", "0"), ("length", str(size))):
        weight.external_data.add(key=key, value=value)
    with open(folder / "net.data", "wb") as file:
        file.truncate(size)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, EXTENT]) for name in ("x", "y")]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "net", ports[:1], ports[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.slow
@pytest.mark.parametrize("form", [Form.SHARED, Form.STATIC, Form.PROJECT])
def test_they_are_refused_before_anything_is_compiled(tmp_path: Path, form: Form) -> None:
    model = large_model(tmp_path)
    events = []
    with pytest.raises(UnsupportedError, match=r"the weights take 2\.30 GB, but a library holds at most 2 GB"):
        relaybuild.compile(model, target="c", form=form, on_event=events.append)
    making = [event for event in events if event.stage in ("object", "link")]
    assert not [event for event in making if event.done or event.seconds is not None]
