"""Opens a model and turns its tensors into read-only arrays, mapped from files; knows nothing of operators."""

from __future__ import annotations

import math
import os
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.frontend.onnx.mapped import map_file
from relaybuild.frontend.onnx.wire import WireError, strip_model
from relaybuild.ir import dtypes
from relaybuild.ir.types import DTYPES

_OTHER_NAMES = {"float": "float32", "double": "float64"}
_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
_FIELD_OF_OTHERS = "int32_data"
"""Of those with two bytes that are not integers, it holds the bits."""

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"


@dataclass
class LoadedModel:
    """A parsed model: `proto` lacks the payloads that `payloads` holds by initializer name, as views of `path`.

    `source` is what errors and spans call the model; `folder` is where external data may lie, None for a model given
    in memory.
    """

    proto: ModelProto
    source: str
    folder: Path | None = None
    payloads: dict[str, memoryview] = field(default_factory=dict)
    _files: dict[Path, memoryview] = field(default_factory=dict, init=False)

    def initializer(self, tensor: TensorProto) -> NDArray[Any]:
        """The value of an initializer of the model's own graph, whose payload may have stayed in the file."""
        payload = self.payloads.get(tensor.name)
        if payload is None or tensor.data_location == TensorProto.EXTERNAL:
            return self.array(tensor)
        where = f"{self.source}: tensor '{tensor.name}'"
        return _from_bytes(payload, numpy_dtype(tensor.data_type, where), tensor, where)

    def array(self, tensor: TensorProto) -> NDArray[Any]:
        """The value of any other tensor, mapped where its bytes are in a file."""
        where = f"{self.source}: tensor '{tensor.name}'"
        dtype = numpy_dtype(tensor.data_type, where)
        if tensor.data_location == TensorProto.EXTERNAL:
            return _from_bytes(self._external(tensor, where), dtype, tensor, where)
        if tensor.HasField("raw_data"):
            return _from_bytes(memoryview(tensor.raw_data), dtype, tensor, where)
        return _from_values(tensor, dtype, where)

    def _external(self, tensor: TensorProto, where: str) -> memoryview:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        data = self._mapped(self._external_path(location, where), location, where)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries["length"]) if "length" in entries else len(data) - offset
        except ValueError:
            raise UserError(
                f"the offset or length of its external data is not a number: {entries}", where=where
            ) from None
        if offset < 0 or length < 0 or offset + length > len(data):
            raise UserError(
                f"bytes {offset} to {offset + length} of external data '{location}' were expected, the file has"
                f" {len(data)}; is it truncated?",
                where=where,
            )
        return data[offset : offset + length]

    def _external_path(self, location: str, where: str) -> Path:
        if self.folder is None:
            raise UserError(
                f"its data is in the file '{location}', but the model was given in memory; give its path", where=where
            )
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not location or not path.is_relative_to(folder) or path == folder:
            raise UserError(
                f"external data '{location}' lies outside the model's folder; only files within it are read",
                where=where,
            )
        return path

    def _mapped(self, path: Path, location: str, where: str) -> memoryview:
        if path not in self._files:
            try:
                self._files[path] = map_file(path)
            except OSError as error:
                raise UserError(
                    f"cannot read external data '{location}': {error.strerror}; it belongs beside the model",
                    where=where,
                ) from None
        return self._files[path]


def read_model(source: ModelSource, name: str | None = None) -> LoadedModel:
    """Parse a model from a path, bytes or a proto; a file that is none is a UserError."""
    if isinstance(source, ModelProto):
        loaded = LoadedModel(source, name or source.graph.name or "model")
    elif isinstance(source, bytes):
        loaded = _parse(memoryview(source), "the model", name or "model", None)
    else:
        path = Path(source)
        try:
            data = map_file(path)
        except OSError as error:
            raise UserError(f"cannot read '{path}': {error.strerror}") from None
        loaded = _parse(data, f"'{path}'", name or path.name, path.parent)
    return _inlined(loaded)


def numpy_dtype(data_type: int, where: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX element type; one that relaybuild lacks is a UserError."""
    try:
        known = TensorProto.DataType.Name(data_type).lower()
    except ValueError:
        raise UserError(f"its element type has the unknown number {data_type}", where=where) from None
    name = _OTHER_NAMES.get(known, known)
    if name not in DTYPES:
        raise UserError(f"element type '{known}' is not supported; the types are {', '.join(DTYPES)}", where=where)
    return dtypes.numpy_dtype(name)


def _parse(data: memoryview, shown: str, source: str, folder: Path | None) -> LoadedModel:
    if not data:
        raise UserError(f"{shown} is not an ONNX model: it is empty")
    proto = ModelProto()
    try:
        stripped = strip_model(data)
        proto.ParseFromString(stripped.message)
    except (WireError, DecodeError) as error:
        raise UserError(f"{shown} is not an ONNX model: {error}") from None
    if not proto.HasField("graph"):
        raise UserError(f"{shown} is not an ONNX model: it has no graph")
    payloads = {name: data[begin:end] for name, (begin, end) in stripped.payloads.items()}
    return LoadedModel(proto, source, folder, payloads)


def _inlined(loaded: LoadedModel) -> LoadedModel:
    if not loaded.proto.functions:
        return loaded
    from onnx import inliner

    proto = inliner.inline_local_functions(loaded.proto)
    return LoadedModel(proto, loaded.source, loaded.folder, loaded.payloads)


def _from_values(tensor: TensorProto, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    """The value of a tensor whose elements are numbers of a field, as onnx.proto assigns fields to element types."""
    values = getattr(tensor, _FIELDS.get(dtype.name, _FIELD_OF_OTHERS))
    shape = tuple(tensor.dims)
    if math.prod(shape) != len(values) or min(shape, default=0) < 0:
        raise UserError(f"its values do not fill its shape {shape}: there are {len(values)}", where=where)
    if dtype.name in _FIELDS:
        return np.array(values, dtype).reshape(shape)
    numbers = np.array(values, np.int32)
    holds_bits = dtype.name in ("float16", "bfloat16")
    return (numbers.astype(np.uint16).view(dtype) if holds_bits else numbers.astype(dtype)).reshape(shape)


def _from_bytes(data: memoryview, dtype: np.dtype[Any], tensor: TensorProto, where: str) -> NDArray[Any]:
    shape = tuple(tensor.dims)
    expected = math.prod(shape) * dtype.itemsize
    if expected != len(data) or min(shape, default=0) < 0:
        raise UserError(f"shape {shape} of {dtype.name} takes {expected} bytes, found {len(data)}", where=where)
    return np.frombuffer(data, dtype).reshape(shape) if expected else np.zeros(shape, dtype)
