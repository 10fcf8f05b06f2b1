"""Evaluates `@weights`, the function of a program's weights, to the bytes of a library; does not know who reads it."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

import numpy as np

from relaybuild.build.weights import WeightBlob
from relaybuild.ir.interpreter import interpret
from relaybuild.partition.backend import GeneratedCode


def evaluate_weights(code: GeneratedCode) -> WeightBlob | None:
    """The bytes of `@weights`, each result at its offset."""
    if code.weights is None or not code.weight_bytes:
        return None
    blob = np.zeros(code.weight_bytes, np.uint8)
    for value, offset in zip(interpret(code.weights), code.weight_offsets):
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        blob[offset : offset + data.size] = data
    digest = hashlib.sha256(blob.data).hexdigest()

    def write(file: BinaryIO) -> None:
        file.write(blob.data)

    return WeightBlob(write, digest, code.weight_bytes)
