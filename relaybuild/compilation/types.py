"""Tensor types and ports as JSON has them; knows no step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaybuild.ir.types import TensorType
from relaybuild.partition.c_text import Port


def type_json(kind: TensorType) -> list[Any]:
    """The shape and element type of a tensor of known shape."""
    return [list(kind.static_shape), kind.dtype]


def type_of(value: Any) -> TensorType:
    """The type that `type_json` was given."""
    shape, dtype = value
    return TensorType(tuple(int(extent) for extent in shape), str(dtype))


def ports_json(ports: Sequence[Port]) -> list[Any]:
    """Named tensors."""
    return [[port.name, *type_json(port.type)] for port in ports]


def ports_of(value: Any) -> tuple[Port, ...]:
    """The ports that `ports_json` was given."""
    return tuple(Port(str(name), type_of(kind)) for name, *kind in value)
