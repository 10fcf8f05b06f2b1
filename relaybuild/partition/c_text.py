"""C text that generated sources of every backend share: strings, element types, descriptions of tensors.

It knows neither programs nor operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.types import TensorType

_DLPACK_CODES = {"float": "kDLFloat", "int": "kDLInt", "uint": "kDLUInt", "bool": "kDLBool", "bfloat": "kDLBfloat"}


@dataclass(frozen=True)
class Port:
    """A named input or output."""

    name: str
    type: TensorType


def tensor_infos(name: str, ports: Sequence[Port]) -> list[str]:
    """Lines that define the static array `name` of RbTensorInfo; nothing for no ports, see `infos_pointer`."""
    if not ports:
        return []
    lines = []
    for number, port in enumerate(ports):
        shape = ", ".join(str(extent) for extent in port.type.static_shape) or "0"
        lines.append(f"static const int64_t {name}_{number}_shape[] = {{{shape}}};")
    rows = [
        f"    {{{c_string(port.name)}, {port.type.rank}, {name}_{number}_shape, {dlpack_dtype(port.type.dtype)}}},"
        for number, port in enumerate(ports)
    ]
    return [*lines, f"static const RbTensorInfo {name}[] = {{", *rows, "};"]


def infos_pointer(name: str, ports: Sequence[Port]) -> str:
    """The array that `tensor_infos` defines, or a null pointer."""
    return name if ports else "0"


def dlpack_dtype(dtype: str) -> str:
    """A DLDataType's initializer."""
    stem = dtype.rstrip("0123456789")
    bits = dtype.removeprefix(stem) or "8"
    return f"{{{_DLPACK_CODES[stem]}, {bits}, 1}}"


def c_string(text: str) -> str:
    """A C string literal, in pieces that every compiler takes."""
    escaped: list[str] = []
    for byte in text.encode():
        char = chr(byte)
        plain = 32 <= byte < 127 and char not in '"\\?'
        escaped.append(char if plain else f"\\{byte:03o}")
    pieces = ["".join(escaped[start : start + 400]) for start in range(0, len(escaped), 400)] or [""]
    return "\n        ".join(f'"{piece}"' for piece in pieces)


def c_bytes(data: bytes) -> str:
    """The elements of an array of unsigned characters, sixteen in a line."""
    rows = [data[start : start + 16] for start in range(0, len(data), 16)]
    return ",\n    ".join(", ".join(f"{byte}" for byte in row) for row in rows)
