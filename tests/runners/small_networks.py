"""Small convolutional networks as ONNX models, by their widths, names and weights; knows no test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

IN_CHANNELS, SIDE, CLASSES = 3, 12, 10


@dataclass(frozen=True)
class Network:
    """Convolutions of 3×3 with batch norms, of so many channels each; then the mean of each channel, and classes.

    `prefix` begins every name, `seed` decides all weights, `batch_norm` whether there are batch norms.
    """

    widths: Sequence[int] = (16, 16, 24)
    prefix: str = "net"
    seed: int = 0
    batch_norm: bool = True

    def save(self, path: Path) -> Path:
        """Write the model."""
        onnx.save(self.proto(), path)
        return path

    def proto(self) -> onnx.ModelProto:
        """The model."""
        nodes: list[NodeProto] = []
        weights: list[TensorProto] = []
        random = np.random.default_rng(self.seed)
        value, channels = self._name("x"), IN_CHANNELS
        for number, width in enumerate(self.widths):
            value = self._block(f"conv{number}", value, channels, width, random, nodes, weights)
            channels = width
        nodes.append(helper.make_node("GlobalAveragePool", [value], [self._name("pooled")], self._name("pool")))
        nodes.append(helper.make_node("Flatten", [self._name("pooled")], [self._name("flat")], self._name("flatten")))
        weights.append(self._tensor("fc.w", random.standard_normal((CLASSES, channels)) * 0.3))
        weights.append(self._tensor("fc.b", random.standard_normal(CLASSES)))
        operands = [self._name(name) for name in ("flat", "fc.w", "fc.b")]
        nodes.append(helper.make_node("Gemm", operands, [self._name("y")], self._name("fc"), transB=1))
        graph = helper.make_graph(
            nodes,
            self._name("graph"),
            [helper.make_tensor_value_info(self._name("x"), TensorProto.FLOAT, [1, IN_CHANNELS, SIDE, SIDE])],
            [helper.make_tensor_value_info(self._name("y"), TensorProto.FLOAT, [1, CLASSES])],
            weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _block(
        self,
        name: str,
        value: str,
        channels: int,
        width: int,
        random: np.random.Generator,
        nodes: list[NodeProto],
        weights: list[TensorProto],
    ) -> str:
        weights.append(self._tensor(f"{name}.w", random.standard_normal((width, channels, 3, 3)) * 0.2))
        operands = [value, self._name(f"{name}.w")]
        nodes.append(
            helper.make_node("Conv", operands, [self._name(f"{name}.out")], self._name(name), pads=[1, 1, 1, 1])
        )
        value = self._name(f"{name}.out")
        if self.batch_norm:
            parts = [f"{name}.{part}" for part in ("scale", "shift", "mean", "var")]
            weights += [self._tensor(part, random.uniform(0.5, 1.5, width)) for part in parts]
            operands = [value, *map(self._name, parts)]
            value = self._name(f"{name}.bn.out")
            nodes.append(helper.make_node("BatchNormalization", operands, [value], self._name(f"{name}.bn")))
        nodes.append(helper.make_node("Relu", [value], [self._name(f"{name}.act")], self._name(f"{name}.relu")))
        return self._name(f"{name}.act")

    def _name(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def _tensor(self, name: str, value: NDArray[np.float64]) -> TensorProto:
        return numpy_helper.from_array(value.astype("float32"), self._name(name))
