"""Remote caches that serve the remote-execution API over gRPC; knows nothing of what is kept there.

`grpc://HOST:PORT/INSTANCE`, or `grpcs://` with TLS. The server says first what it can. Small blobs go in batches, large
ones in streams. With a result go its `Action`, the `Command`, the directories and the blobs of inline outputs, because
servers look whether all is there that an action names, and may parse it.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import unquote, urlsplit

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.record import Result
from relaybuild.build.cache.remote import reapi_messages as messages
from relaybuild.build.cache.remote.reapi_failures import GrpcFailure, failure_of
from relaybuild.build.cache.remote.transport import Description, Reason, RemoteFailure, Site, Source
from relaybuild.build.cache.wire import WireError
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, digest_bytes

_T = TypeVar("_T")

SCHEMES = ("grpc", "grpcs")
EXTRA = "reapi"

_PORTS = {"grpc": 80, "grpcs": 443}
_MIB = 1 << 20
_CHUNK = _MIB
_MAX_BATCH = 4 * _MIB - 1024
"""gRPC takes messages of 4 MiB where nothing else is configured, on either side."""
_MAX_MESSAGE = 16 * _MIB
_BLOB_OVERHEAD = 256
"""More bytes than stand around one blob in a batch."""
_DIGESTS_PER_CALL = 10_000
_VERSION = 2
_NO_ACTION = Digest("0" * 64, 1)

_VERBOSITY = "GRPC_VERBOSITY"

_API = "build.bazel.remote.execution.v2"
_GET_CAPABILITIES = f"/{_API}.Capabilities/GetCapabilities"
_GET_RESULT = f"/{_API}.ActionCache/GetActionResult"
_UPDATE_RESULT = f"/{_API}.ActionCache/UpdateActionResult"
_FIND_MISSING = f"/{_API}.ContentAddressableStorage/FindMissingBlobs"
_BATCH_UPDATE = f"/{_API}.ContentAddressableStorage/BatchUpdateBlobs"
_BATCH_READ = f"/{_API}.ContentAddressableStorage/BatchReadBlobs"
_STREAM_READ = "/google.bytestream.ByteStream/Read"
_STREAM_WRITE = "/google.bytestream.ByteStream/Write"
_METADATA_HEADER = f"{_API.lower()}.requestmetadata-bin"


@dataclass
class ReapiTransport:
    """One instance of one server."""

    _site: Site
    _grpc: Any
    """The package, which is imported by nobody who does not need it."""
    _channel: Any
    _instance: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: messages.Capabilities | None = None

    def get_record(self, action: Action, namespace: str) -> bytes | None:
        """See `Transport`."""
        self._capabilities()
        return self._result(_digest_of(action, namespace))

    def put_record(self, action: Action, namespace: str, result: bytes, *, replace: bool = False) -> bool:
        """See `Transport`. A server that keeps the first result of an action refuses in words of its own: where there
        is a result after a refusal, that was the reason."""
        self._check_writable()
        digest = _digest_of(action, namespace)
        if not replace and self._result(digest) is not None:
            return False
        self._put_all(_needed(action, namespace, result))
        try:
            self._call(_UPDATE_RESULT, messages.update_action_result(self._instance, digest, result), len(result))
        except RemoteFailure as failure:
            if failure.reason is not Reason.SERVER or self._result(digest) is None:
                raise
            return False
        return True

    def missing(self, digests: Collection[Digest]) -> set[Digest]:
        """See `Transport`."""
        self._capabilities()
        # The empty blob is said to be always there.
        asked = [digest for digest in digests if digest.size > 0]
        absent: set[Digest] = set()
        for start in range(0, len(asked), _DIGESTS_PER_CALL):
            request = messages.find_missing(self._instance, asked[start : start + _DIGESTS_PER_CALL])
            absent |= self._parsed(messages.read_missing, self._call(_FIND_MISSING, request, len(request)))
        return absent & set(asked)

    def read_blob(self, digest: Digest, into: BinaryIO) -> bool:
        """See `Transport`."""
        if digest.size == 0:
            return True
        if self._is_small(digest):
            return self._read_batch(digest, into)
        return self._read_stream(digest, into)

    def write_blob(self, digest: Digest, source: Source) -> None:
        """See `Transport`."""
        self._check_writable()
        if digest.size == 0:
            return
        if self._is_small(digest):
            self._write_batch([(digest, _read_whole(digest, source))])
        else:
            self._write_stream(digest, source)

    def describe(self) -> Description:
        """See `Transport`. The two services are asked for what is not there."""
        title = f"remote-execution API at {self._site.url}"
        try:
            known = self._capabilities()
        except RemoteFailure as failure:
            return Description(title, can_read=False, can_write=False, problems=(str(failure),))
        problems = [
            f"{service}: {failure}"
            for service, failure in (
                ("ActionCache", _failure_in(lambda: self._result(_NO_ACTION))),
                ("ContentAddressableStorage", _failure_in(lambda: self.missing([_NO_ACTION]))),
            )
            if failure is not None
        ]
        if not known.may_update:
            problems.append("the server takes no results")
        return Description(
            title,
            can_read=not problems or problems == ["the server takes no results"],
            can_write=known.may_update,
            checks_content=True,
            facts=self._facts(known),
            problems=tuple(problems),
        )

    def close(self) -> None:
        """See `Transport`."""
        self._channel.close()

    def _facts(self, known: messages.Capabilities) -> Mapping[str, str]:
        low, high = (".".join(map(str, version)) for version in (known.low_version, known.high_version))
        return {
            "instance": self._instance or "(the unnamed one)",
            "API versions": f"{low} to {high}",
            "bytes in a batch": str(self._max_batch(known)),
        }

    def _capabilities(self) -> messages.Capabilities:
        """What the server said it can; it is asked once. Raises RemoteFailure where it cannot be used."""
        with self._lock:
            if self._known is None:
                answer = self._call(_GET_CAPABILITIES, messages.get_capabilities(self._instance))
                known = self._parsed(messages.read_capabilities, answer)
                _check_usable(known)
                self._known = known
            return self._known

    def _check_writable(self) -> None:
        if not self._capabilities().may_update:
            raise RemoteFailure(Reason.READ_ONLY, "the server says that it takes no results")

    def _max_batch(self, known: messages.Capabilities) -> int:
        return min(known.max_batch or _MAX_BATCH, _MAX_BATCH)

    def _is_small(self, digest: Digest) -> bool:
        """Whether a blob fits into a message."""
        return digest.size + _BLOB_OVERHEAD <= self._max_batch(self._capabilities())

    def _result(self, action: Digest) -> bytes | None:
        request = messages.get_action_result(self._instance, action)
        result = self._found(lambda: self._call(_GET_RESULT, request, self._site.max_record))
        if result is not None and len(result) > self._site.max_record:
            raise RemoteFailure(Reason.TOO_LARGE, f"a record of {len(result)} bytes")
        return result

    def _put_all(self, blobs: Mapping[Digest, bytes]) -> None:
        """Send those of some blobs that the server does not have."""
        absent = self.missing(blobs)
        small = [(digest, data) for digest, data in blobs.items() if digest in absent and self._is_small(digest)]
        for batch in _batches(small, self._max_batch(self._capabilities())):
            self._write_batch(batch)
        for digest in absent:
            if not self._is_small(digest):
                self._write_stream(digest, blobs[digest])

    def _write_batch(self, blobs: Collection[tuple[Digest, bytes]]) -> None:
        request = messages.batch_update(self._instance, blobs)
        answer = self._call(_BATCH_UPDATE, request, len(request))
        statuses = dict(self._parsed(lambda data: list(messages.read_updated(data)), answer))
        for digest, _ in blobs:
            _check_status(digest, statuses.get(digest))

    def _read_batch(self, digest: Digest, into: BinaryIO) -> bool:
        answer = self._call(_BATCH_READ, messages.batch_read(self._instance, [digest]), digest.size)
        blobs = self._parsed(lambda data: list(messages.read_blobs(data)), answer)
        data, status = next(((data, status) for each, data, status in blobs if each == digest), (b"", None))
        if status is not None and status.code == messages.NOT_FOUND:
            return False
        _check_status(digest, status)
        _write_at_most(digest.size, [data], into)
        return True

    def _read_stream(self, digest: Digest, into: BinaryIO) -> bool:
        request = messages.stream_read(self._resource("blobs", digest))
        call = self._channel.unary_stream(_STREAM_READ)

        def receive() -> bool:
            with self._failing():
                chunks = call(request, timeout=self._seconds(digest.size), metadata=self._metadata())
                try:
                    _write_at_most(digest.size, (messages.read_chunk(each) for each in chunks), into)
                finally:
                    chunks.cancel()
            return True

        return self._found(receive) or False

    def _write_stream(self, digest: Digest, source: Source) -> None:
        resource = self._resource(f"uploads/{uuid.uuid4()}/blobs", digest)
        call = self._channel.stream_unary(_STREAM_WRITE)
        upload = _Upload(resource, digest.size, source)
        try:
            with self._failing():
                answer = call(iter(upload), timeout=self._seconds(digest.size), metadata=self._metadata())
        except RemoteFailure as failure:
            if upload.error is not None:
                raise upload.error from failure
            if upload.is_short or (isinstance(failure, GrpcFailure) and failure.code == "INVALID_ARGUMENT"):
                raise RemoteFailure(Reason.WRONG_CONTENT, failure.detail) from failure
            raise
        if self._parsed(messages.read_committed, answer) != digest.size:
            raise RemoteFailure(Reason.BROKEN, f"the server kept only a part of blob {digest.short()}")

    def _resource(self, kind: str, digest: Digest) -> str:
        """The name of a blob in a stream."""
        return "/".join([*filter(None, [self._instance]), kind, digest.hex, str(digest.size)])

    def _found(self, ask: Callable[[], _T]) -> _T | None:
        """What a call returns; None where it failed because there is no such thing, or no longer all of it."""
        try:
            return ask()
        except GrpcFailure as failure:
            if failure.code in ("NOT_FOUND", "DATA_LOSS"):
                return None
            raise

    def _call(self, method: str, request: bytes, size: int = 0) -> bytes:
        """One request and its answer, of which the larger one has about `size` bytes; raises RemoteFailure."""
        with self._failing():
            call = self._channel.unary_unary(method)
            answer: bytes = call(request, timeout=self._seconds(size), metadata=self._metadata())
        return answer

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever gRPC raises inside is raised as RemoteFailure."""
        try:
            yield
        except self._grpc.RpcError as error:
            trailing = dict(error.trailing_metadata() or ())
            raise failure_of(
                error.code().name, error.details() or "", trailing.get("grpc-status-details-bin", b"")
            ) from error
        except WireError as error:
            raise RemoteFailure(Reason.PROTOCOL, f"an answer that is no message of the API: {error}") from error
        except ValueError as error:
            raise RemoteFailure(Reason.BROKEN, "the connection is closed") from error

    def _parsed(self, read: Callable[[bytes], _T], answer: bytes) -> _T:
        with self._failing():
            return read(answer)

    def _seconds(self, size: int) -> float:
        return self._site.request_seconds * max(1, -(-size // _MIB))

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        who = (_METADATA_HEADER, messages.request_metadata("relaybuild"))
        return (who, ("authorization", f"Bearer {self._site.token}")) if self._site.token else (who,)


@dataclass
class _Upload:
    """The requests that send a blob. gRPC takes them from a thread of its own, so what goes wrong is written down here:
    an `error` in reading the source, and whether that had too few bytes."""

    resource: str
    size: int
    source: Source
    error: OSError | None = None
    is_short: bool = False

    def __iter__(self) -> Iterator[bytes]:
        offset = 0
        try:
            for data in _chunks(self.source):
                # The server waits for no more than it was told, so a file that has grown is cut; it will not match.
                is_last = offset + len(data) >= self.size
                yield messages.stream_write("" if offset else self.resource, offset, data, is_last=is_last)
                offset += len(data)
                if is_last:
                    return
            self.is_short = True
        except OSError as error:
            self.error = error


def open_transport(site: Site) -> ReapiTransport:
    """See `Transport`; raises ImportError without grpcio."""
    grpc = _quiet_grpc()
    parts = urlsplit(site.url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    target = f"{host}:{parts.port or _PORTS[parts.scheme]}"
    milliseconds = int(site.connect_seconds * 1000)
    options = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        # This is also how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", milliseconds),
        ("grpc.initial_reconnect_backoff_ms", milliseconds),
        ("grpc.max_reconnect_backoff_ms", milliseconds),
    ]
    if parts.scheme == "grpcs":
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(_root_certificates()), options)
    else:
        channel = grpc.insecure_channel(target, options)
    return ReapiTransport(site, grpc, channel, unquote(parts.path).strip("/"))


def _quiet_grpc() -> Any:
    """The package, which prints nothing: what goes wrong is raised. It looks at the variable when it is imported."""
    is_ours = _VERBOSITY not in os.environ
    if is_ours:
        os.environ[_VERBOSITY] = "NONE"
    try:
        import grpc
    finally:
        if is_ours:
            del os.environ[_VERBOSITY]
    return grpc


def _root_certificates() -> bytes | None:
    """The authorities that other programs of this machine trust, by `SSL_CERT_FILE` too; None for gRPC's own list."""
    file = ssl.get_default_verify_paths().cafile
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def _digest_of(action: Action, namespace: str) -> Digest:
    return digest_bytes(action.message(namespace))


def _needed(action: Action, namespace: str, result: bytes) -> dict[Digest, bytes]:
    """The blobs that a server looks for when it is given a result, other than those written before."""
    try:
        inline = [output.contents for output in Result.decode(result).outputs if output.contents is not None]
    except WireError as error:
        raise RemoteFailure(Reason.PROTOCOL, f"no result is to be sent: {error}") from error
    blobs = [action.message(namespace), action.command, *action.directories, *inline]
    return {digest_bytes(blob): blob for blob in blobs}


def _batches(blobs: Iterable[tuple[Digest, bytes]], limit: int) -> Iterator[list[tuple[Digest, bytes]]]:
    """Blobs that each fit, in groups that fit too."""
    batch: list[tuple[Digest, bytes]] = []
    size = 0
    for digest, data in blobs:
        weight = digest.size + _BLOB_OVERHEAD
        if batch and size + weight > limit:
            yield batch
            batch, size = [], 0
        batch.append((digest, data))
        size += weight
    if batch:
        yield batch


def _check_usable(known: messages.Capabilities) -> None:
    if known.digest_functions and messages.SHA256 not in known.digest_functions:
        raise RemoteFailure(Reason.PROTOCOL, "the server does not name blobs by SHA-256")
    low, high = (version[0] or _VERSION for version in (known.low_version, known.high_version))
    if not low <= _VERSION <= high:
        raise RemoteFailure(Reason.PROTOCOL, f"the server speaks versions {low} to {high} of the API, not {_VERSION}")


def _check_status(digest: Digest, status: messages.Status | None) -> None:
    """Raise RemoteFailure unless all is well with a blob."""
    if status is None:
        raise RemoteFailure(Reason.PROTOCOL, f"the server says nothing of blob {digest.short()}")
    if status.code == messages.INVALID_ARGUMENT:
        raise RemoteFailure(Reason.WRONG_CONTENT, f"blob {digest.short()}: {status.message}")
    if status.code != messages.OK:
        raise RemoteFailure(
            Reason.SERVER, f"blob {digest.short()}: code {status.code}, {status.message}", status.retry_after
        )


def _write_at_most(size: int, chunks: Iterable[bytes], into: BinaryIO) -> None:
    """Write so many bytes at most: whoever reads them verifies them, so that what is too long is not taken for it."""
    left = size
    for chunk in chunks:
        into.write(chunk[:left])
        left -= len(chunk)
        if left < 0:
            return


def _read_whole(digest: Digest, source: Source) -> bytes:
    """A small blob; of a file that has grown, not more than one byte too many."""
    if isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read(digest.size + 1)


def _chunks(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield from (source[start : start + _CHUNK] for start in range(0, len(source), _CHUNK))
        return
    with open(source, "rb") as file:
        while data := file.read(_CHUNK):
            yield data


def _failure_in(ask: Callable[[], object]) -> RemoteFailure | None:
    try:
        ask()
    except RemoteFailure as failure:
        return failure
    return None
