"""Which weights' values a step looked at."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.asking import asked_values, unheard
from relaybuild.ir.expr import Constant
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.infra import PassContext
from relaybuild.passes.pipelines import default_pipeline

WEIGHT = Constant(np.arange(6, dtype="float32").reshape(2, 3))


def conv_bn() -> IRModule:
    """A convolution and a batch norm over weights of random values."""
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 8, 8), float32]) {
  %0 = nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1])
  %1 = nn.batch_norm(%0, meta[relay.Constant][1], meta[relay.Constant][2],
                     meta[relay.Constant][3], meta[relay.Constant][4])
  %1.0
}
#[metadata]
{"relay.Constant": [
  {"dtype": "float32", "shape": [4, 3, 3, 3]},
  {"dtype": "float32", "shape": [4]}, {"dtype": "float32", "shape": [4]},
  {"dtype": "float32", "shape": [4]}, {"dtype": "float32", "shape": [4]}
]}
"""
    random = np.random.default_rng(0)
    shapes = [(4, 3, 3, 3), (4,), (4,), (4,), (4,)]
    return parse(text, weights=[random.random(shape, dtype="float32") for shape in shapes])


def test_a_value_that_is_asked_for_is_heard_by_all_and_a_type_is_not() -> None:
    first: list[Constant] = []
    second: list[Constant] = []
    with asked_values(first.append), asked_values(second.append):
        assert WEIGHT.is_weight
        assert WEIGHT.tensor_type.static_shape == (2, 3)
        assert first == []
        assert WEIGHT.data[1, 2] == 5
        with unheard():
            assert WEIGHT.data[0, 0] == 0
    assert first == second == [WEIGHT]
    assert WEIGHT.data.size == 6
    assert len(first) == 1


def test_structure_is_no_weight() -> None:
    heard: list[Constant] = []
    with asked_values(heard.append):
        assert Constant(np.asarray(3, dtype="int64")).data == 3
    assert heard == []


def test_the_default_pipeline_and_a_slot_text_ask_for_no_weight() -> None:
    heard: list[Constant] = []
    module = conv_bn()
    with asked_values(heard.append), PassContext(opt_level=3) as context:
        done = default_pipeline()(module, context)
        print_module(done, weights="slot", show_spans=True)
    assert heard == []


def test_folding_weights_asks_for_them() -> None:
    heard: list[Constant] = []
    text = """#[version = "0.0.5"]
def @main() { negative(meta[relay.Constant][0]) }
#[metadata]
{"relay.Constant": [{"dtype": "float32", "shape": [3]}]}
"""
    module = parse(text, weights=[np.ones(3, "float32")])
    with asked_values(heard.append), PassContext():
        FoldConstant()(module)
    assert len(heard) == 1
