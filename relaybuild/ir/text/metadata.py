"""The metadata section, which holds the weights of a text or says what they are; knows nothing of where they are used.

It is a JSON object whose "relay.Constant" lists the slots: "dtype", "shape", and the elements in row-major order,
little-endian, in base64 ("data"), or their SHA-256 ("digest"), or neither.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Constant
from relaybuild.ir.structural import constant_digest
from relaybuild.ir.text.names import METADATA
from relaybuild.ir.types import DTYPES

WeightForm: TypeAlias = Literal["data", "digest", "slot"]


def metadata_text(slots: Sequence[Constant], form: WeightForm) -> str:
    """The section for these slots; nothing for none."""
    if not slots:
        return ""
    entries = ",\n".join(f"  {json.dumps(_entry(weight, form))}" for weight in slots)
    return f'{METADATA}\n{{"relay.Constant": [\n{entries}\n]}}\n'


def read_metadata(text: str, weights: Sequence[NDArray[Any]] | None) -> list[Constant]:
    """The slots of a section, the part behind its heading; `weights` are arrays to put in.

    Raises ValueError, TypeError, KeyError, AttributeError or RecursionError for a section that is broken, that holds
    no data and is given none, or that says otherwise than the arrays.
    """
    entries = json.loads(text)["relay.Constant"]
    if not isinstance(entries, list):
        raise TypeError("'relay.Constant' is not a list")
    if weights is not None and len(weights) != len(entries):
        raise ValueError(f"{len(weights)} arrays were given for {len(entries)} slots")
    given = weights if weights is not None else [None] * len(entries)
    return [_read_entry(entry, array) for entry, array in zip(entries, given)]


def _entry(weight: Constant, form: WeightForm) -> dict[str, object]:
    entry: dict[str, object] = {"dtype": weight.dtype, "shape": list(weight.array.shape)}
    if form == "digest":
        entry["digest"] = constant_digest(weight)
    if form == "data":
        entry["data"] = base64.b64encode(_little_endian(weight.data).tobytes()).decode("ascii")
    return entry


def _read_entry(entry: dict[str, Any], given: NDArray[Any] | None) -> Constant:
    dtype, shape = str(entry["dtype"]), tuple(int(extent) for extent in entry["shape"])
    if dtype not in DTYPES or min(shape, default=0) < 0:
        raise ValueError(f"a constant of type {dtype} and shape {shape}")
    if given is None:
        return _decode(entry, dtype, shape)
    if given.dtype.name != dtype or given.shape != shape:
        raise ValueError(f"found an array of {given.dtype.name} {given.shape}, expected {dtype} {shape}")
    constant = Constant(given)
    if "digest" in entry and constant_digest(constant) != entry["digest"]:
        raise ValueError(f"an array of {dtype} {shape} does not have the digest {entry['digest']}")
    return constant


def _decode(entry: dict[str, Any], dtype: str, shape: tuple[int, ...]) -> Constant:
    if "data" not in entry:
        raise ValueError("it holds no data: give the arrays of the slots")
    try:
        raw = base64.b64decode(entry["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"its base64 is broken ({error})") from None
    kind = numpy_dtype(dtype)
    count = 1
    for extent in shape:
        count *= extent
    if len(raw) != count * kind.itemsize:
        raise ValueError(f"{len(raw)} bytes for {dtype} {shape}")
    return Constant(_little_endian(np.frombuffer(raw, dtype=kind)).reshape(shape))


def _little_endian(data: NDArray[Any]) -> NDArray[Any]:
    """An array with its bytes in little-endian order, or one of such bytes as this machine's: the same exchange."""
    return data if sys.byteorder == "little" else data.byteswap()
