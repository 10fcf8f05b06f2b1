"""What a model's inputs and outputs are called and how they look; knows no library and no array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (numpy's name, `float32`) of one input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature(Sequence[TensorSpec]):
    """All tensors of a model: a sequence of the inputs, then the outputs, which are also there by themselves."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __len__(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @overload
    def __getitem__(self, index: int) -> TensorSpec: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TensorSpec]: ...
    def __getitem__(self, index: int | slice) -> TensorSpec | Sequence[TensorSpec]:
        return (self.inputs + self.outputs)[index]
