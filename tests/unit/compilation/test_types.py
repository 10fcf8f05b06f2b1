"""Tensor types and ports through JSON."""

from __future__ import annotations

import json

from relaybuild.compilation.types import ports_json, ports_of, type_json, type_of
from relaybuild.ir.types import TensorType
from relaybuild.partition.c_text import Port

KINDS = [TensorType((), "float32"), TensorType((2, 0, 3), "int64"), TensorType((1,), "bool")]


def test_types_come_back() -> None:
    assert [type_of(json.loads(json.dumps(type_json(kind)))) for kind in KINDS] == KINDS


def test_ports_come_back() -> None:
    ports = tuple(Port(f"port {number}", kind) for number, kind in enumerate(KINDS))
    assert ports_of(json.loads(json.dumps(ports_json(ports)))) == ports
