"""Names the files in which a model's tensors have their data; reads none of them, and no tensor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from relaybuild.frontend.onnx.reader import read_model


def external_files(path: Path) -> tuple[str, ...]:
    """The locations of external data, as the model spells them, each once; raises UserError for what is no model."""
    found = (_location(tensor) for tensor in _tensors(read_model(path).proto) if tensor.external_data)
    return tuple(dict.fromkeys(name for name in found if name))


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model, in subgraphs, attributes and functions too."""
    pending: list[Any] = [model]
    while pending:
        message = pending.pop()
        if isinstance(message, TensorProto):
            yield message
            continue
        for descriptor, value in message.ListFields():
            if descriptor.message_type is not None:
                is_repeated = not hasattr(value, "ListFields")
                pending.extend(value if is_repeated else (value,))


def _location(tensor: TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
