"""The messages of the remote-execution API's cache services, encoded and decoded by hand; sends nothing.

Field numbers are those of `build.bazel.remote.execution.v2`, `google.bytestream` and `google.rpc`. What is unknown is
skipped; what is no message raises WireError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaybuild.build.cache.action import decode_digest, encode_digest
from relaybuild.build.cache.wire import (
    bytes_field,
    expect_bytes,
    expect_int,
    expect_text,
    optional_field,
    read_fields,
    read_packed,
    varint_field,
)
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest

SHA256 = 1
"""The digest function, as the API numbers them."""

OK, INVALID_ARGUMENT, NOT_FOUND = 0, 3, 5
"""Codes of `Status` that say something of a single blob."""

_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@dataclass(frozen=True)
class Status:
    """`google.rpc.Status`: a gRPC code, a sentence, and the seconds after which the server wants to be asked again."""

    code: int = OK
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True)
class Capabilities:
    """What a server says it can. Versions are (major, minor); `max_batch` is in bytes, 0 where it sets no limit."""

    digest_functions: frozenset[int] = frozenset()
    may_update: bool = False
    max_batch: int = 0
    low_version: tuple[int, int] = (0, 0)
    high_version: tuple[int, int] = (0, 0)


def get_capabilities(instance: str) -> bytes:
    """A `GetCapabilitiesRequest`."""
    return optional_field(1, instance)


def read_capabilities(data: bytes) -> Capabilities:
    """What a `ServerCapabilities` says of caching."""
    parts = _messages(data)
    caching = parts.get(1, b"")
    functions: set[int] = set()
    may_update, max_batch = False, 0
    for number, value in read_fields(caching):
        if number == 1:
            functions |= set(_enums(value))
        elif number == 2:
            may_update = dict(read_fields(expect_bytes(value))).get(1) == 1
        elif number == 4:
            max_batch = expect_int(value)
    return Capabilities(
        frozenset(functions), may_update, max_batch, _version(parts.get(4, b"")), _version(parts.get(5, b""))
    )


def get_action_result(instance: str, action: Digest) -> bytes:
    """A `GetActionResultRequest`, the answer to which is an `ActionResult`."""
    return optional_field(1, instance) + bytes_field(2, encode_digest(action))


def update_action_result(instance: str, action: Digest, result: bytes) -> bytes:
    """An `UpdateActionResultRequest`."""
    return optional_field(1, instance) + bytes_field(2, encode_digest(action)) + bytes_field(3, result)


def find_missing(instance: str, digests: Iterable[Digest]) -> bytes:
    """A `FindMissingBlobsRequest`."""
    return optional_field(1, instance) + b"".join(bytes_field(2, encode_digest(digest)) for digest in digests)


def read_missing(data: bytes) -> set[Digest]:
    """The digests in a `FindMissingBlobsResponse`."""
    return {decode_digest(expect_bytes(value)) for number, value in read_fields(data) if number == 2}


def batch_update(instance: str, blobs: Iterable[tuple[Digest, bytes]]) -> bytes:
    """A `BatchUpdateBlobsRequest`."""
    return optional_field(1, instance) + b"".join(
        bytes_field(2, bytes_field(1, encode_digest(digest)) + optional_field(2, data)) for digest, data in blobs
    )


def read_updated(data: bytes) -> Iterator[tuple[Digest, Status]]:
    """What became of each blob, by a `BatchUpdateBlobsResponse`."""
    for number, value in read_fields(data):
        if number == 1:
            parts = _messages(expect_bytes(value))
            yield decode_digest(parts.get(1, b"")), read_status(parts.get(2, b""))


def batch_read(instance: str, digests: Iterable[Digest]) -> bytes:
    """A `BatchReadBlobsRequest`."""
    return optional_field(1, instance) + b"".join(bytes_field(2, encode_digest(digest)) for digest in digests)


def read_blobs(data: bytes) -> Iterator[tuple[Digest, bytes, Status]]:
    """The blobs of a `BatchReadBlobsResponse`, or why one is not there."""
    for number, value in read_fields(data):
        if number == 1:
            parts = dict(read_fields(expect_bytes(value)))
            digest, status = (expect_bytes(parts.get(each, b"")) for each in (1, 3))
            yield decode_digest(digest), expect_bytes(parts.get(2, b"")), read_status(status)


def stream_read(resource: str) -> bytes:
    """A `ReadRequest` of all of a resource."""
    return optional_field(1, resource)


def read_chunk(data: bytes) -> bytes:
    """The bytes that a `ReadResponse` brings."""
    return _messages(data).get(10, b"")


def stream_write(resource: str, offset: int, data: bytes, *, is_last: bool) -> bytes:
    """A `WriteRequest`; the resource is named by the first one of a stream."""
    return (
        optional_field(1, resource) + varint_field(2, offset) + varint_field(3, int(is_last)) + optional_field(10, data)
    )


def read_committed(data: bytes) -> int:
    """How many bytes a `WriteResponse` says are kept."""
    return expect_int(dict(read_fields(data)).get(1, 0))


def request_metadata(tool: str) -> bytes:
    """A `RequestMetadata` that says who asks."""
    return bytes_field(1, bytes_field(1, tool))


def read_status(data: bytes) -> Status:
    """A `Status`."""
    code, message, retry_after = OK, "", None
    for number, value in read_fields(data):
        if number == 1:
            code = expect_int(value)
        elif number == 2:
            message = expect_text(value)
        elif number == 3:
            detail = _messages(expect_bytes(value))
            if detail.get(1) == _RETRY_INFO.encode():
                retry_after = _seconds(_messages(detail.get(2, b"")).get(1, b""))
    return Status(code, message, retry_after)


def _messages(data: bytes) -> dict[int, bytes]:
    """The fields of a message that are bytes, text or messages, by number: the last one of each."""
    return {number: value for number, value in read_fields(data) if isinstance(value, bytes)}


def _enums(value: int | bytes) -> Iterable[int]:
    """The elements of a repeated enumeration: one by one, or packed."""
    return (value,) if isinstance(value, int) else read_packed(value)


def _version(data: bytes) -> tuple[int, int]:
    """Major and minor of a `SemVer`."""
    parts = dict(read_fields(data))
    return expect_int(parts.get(1, 0)), expect_int(parts.get(2, 0))


def _seconds(duration: bytes) -> float:
    """A `Duration` that is not negative, in seconds."""
    parts = dict(read_fields(duration))
    seconds = expect_int(parts.get(1, 0)) + expect_int(parts.get(2, 0)) / 1e9
    return seconds if seconds < 1 << 62 else 0.0
