"""Remote caches over HTTP, as Bazel lays them out: `/ac/<key>`, `/cas/<sha256>`; believes nothing that it is told.

Where the URL has `{namespace}` in its path, records lie below the namespace's own path, so that a server can say who
writes which; blobs lie in one place, without that part.

The protocol has no way to write only what is not there: `put_record` looks first. Redirections are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import quote, urlsplit

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.remote.transport import Description, Reason, RemoteFailure, Site, Source
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, digest_bytes

SCHEMES = ("http", "https")
EXTRA = ""

_CHUNK = 1 << 16
_MEBIBYTE = 1 << 20
_PLACE = "{namespace}"
_GONE = (404, 410)
_NUMBER = re.compile("[0-9]{1,18}")
_TRIAL = b"relaybuild cache doctor\n"
_REASONS = {
    401: Reason.REFUSED,
    403: Reason.REFUSED,
    405: Reason.READ_ONLY,
    407: Reason.REFUSED,
    408: Reason.TIMEOUT,
    413: Reason.TOO_LARGE,
    429: Reason.BUSY,
    501: Reason.READ_ONLY,
    503: Reason.BUSY,
}


def open_transport(site: Site) -> HttpTransport:
    """A transport that connects when it is first used."""
    return HttpTransport(site)


class HttpTransport:
    """A server that has `GET`, `HEAD` and `PUT`. Each thread has a connection of its own, which is kept open."""

    def __init__(self, site: Site) -> None:
        """Nothing is sent yet."""
        self._site = site
        self._path = urlsplit(site.url).path.rstrip("/")
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._is_closed = False

    def get_record(self, action: Action, namespace: str) -> bytes | None:
        """See `Transport`. An empty record is an error: no result is empty, but a server that lost one may say so."""
        with self._answer("GET", self._record(action.key(namespace), namespace)) as answer:
            if answer.status in _GONE:
                return None
            answer.expect_content()
            data = io.BytesIO()
            answer.copy(data, self._site.max_record)
        if not data.getvalue():
            raise RemoteFailure(Reason.PROTOCOL, "an empty record")
        return data.getvalue()

    def put_record(self, action: Action, namespace: str, result: bytes, *, replace: bool = False) -> bool:
        """See `Transport`. Of two clients that write at the same time, the last one wins."""
        path = self._record(action.key(namespace), namespace)
        if not replace and self._size(path) is not None:
            return False
        self._put(path, result)
        return True

    def missing(self, digests: Collection[Digest]) -> set[Digest]:
        """See `Transport`. A blob of another size counts as missing."""
        return {digest for digest in digests if self._size(self._blob(digest)) not in (digest.size, -1)}

    def read_blob(self, digest: Digest, into: BinaryIO) -> bool:
        """See `Transport`."""
        with self._answer("GET", self._blob(digest), carried=digest.size) as answer:
            if answer.status in _GONE:
                return False
            answer.expect_content()
            answer.copy(into, digest.size)
        return True

    def write_blob(self, digest: Digest, source: Source) -> None:
        """See `Transport`."""
        self._put(self._blob(digest), source, digest.size)

    def describe(self) -> Description:
        """See `Transport`. To find out whether it can be written, a blob of a few bytes is."""
        facts, problems = {"protocol": self._site.scheme}, []
        can_read, can_write = False, None
        digest = digest_bytes(_TRIAL)
        try:
            with self._answer("GET", self._record(digest.hex, "")) as answer:
                facts["server"] = answer.headers.get("Server") or "unknown"
                if answer.status not in _GONE:
                    answer.expect_content()
            can_read = True
            can_write = self._can_write(digest)
        except RemoteFailure as failure:
            problems.append(str(failure))
        return Description("HTTP", can_read, can_write, False, None, facts, tuple(problems))

    def close(self) -> None:
        """See `Transport`."""
        with self._lock:
            self._is_closed = True
            for connection in self._connections:
                connection.abort()
            self._connections.clear()

    def _can_write(self, digest: Digest) -> bool:
        try:
            self.write_blob(digest, _TRIAL)
        except RemoteFailure as failure:
            if failure.reason in (Reason.READ_ONLY, Reason.REFUSED):
                return False
            raise
        data = io.BytesIO()
        if not self.read_blob(digest, data) or data.getvalue() != _TRIAL:
            raise RemoteFailure(Reason.WRONG_CONTENT, "a blob that was just written comes back as another one")
        return True

    def _record(self, key: str, namespace: str) -> str:
        return f"{self._path.replace(_PLACE, quote(namespace, safe=''))}/ac/{key}"

    def _blob(self, digest: Digest) -> str:
        return f"{self._path.replace(f'/{_PLACE}', '')}/cas/{digest.hex}"

    def _size(self, path: str) -> int | None:
        """Bytes of what is there, -1 if the server does not tell; None if there is nothing."""
        with self._answer("HEAD", path) as answer:
            if answer.status in _GONE:
                return None
            answer.expect_content()
            return answer.length

    def _put(self, path: str, source: Source, size: int = 0) -> None:
        with self._answer("PUT", path, source, size) as answer:
            if not 200 <= answer.status < 300:
                raise answer.failure()

    @contextlib.contextmanager
    def _answer(self, method: str, path: str, source: Source | None = None, carried: int = 0) -> Iterator[_Answer]:
        """The answer to a request that carries so many bytes; whatever goes wrong until its end is a RemoteFailure."""
        end = time.monotonic() + self._site.request_seconds * max(1, carried // _MEBIBYTE)
        connection = self._connection()
        try:
            answer = self._sent(connection, method, path, source, end)
            try:
                yield answer
            finally:
                if not answer.drain():
                    # a connection forgets an answer that ends with it
                    answer.response.close()
                    connection.drop()
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.drop()
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise _failure(error, connection.has_met) from error

    def _sent(self, connection: _Connection, method: str, path: str, source: Source | None, end: float) -> _Answer:
        is_idle = connection.sock is not None
        try:
            return connection.ask(method, path, self._headers(source), source, end)
        except (ConnectionError, http.client.BadStatusLine):
            # The server may have closed a connection that was not used for a while.
            if not is_idle or time.monotonic() >= end or self._is_closed:
                raise
        connection.drop()
        return connection.ask(method, path, self._headers(source), source, end)

    def _headers(self, source: Source | None) -> dict[str, str]:
        headers = {"User-Agent": "relaybuild", "Accept": "*/*"}
        if self._site.token:
            headers["Authorization"] = f"Bearer {self._site.token}"
        if source is not None:
            size = len(source) if isinstance(source, bytes) else os.stat(source).st_size
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return headers

    def _connection(self) -> _Connection:
        connection: _Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = _Connection(self._site)
        with self._lock:
            if self._is_closed:
                raise RemoteFailure(Reason.CONNECT, "the connection was closed")
            self._connections.add(connection)
        return connection


class _Connection(http.client.HTTPConnection):
    """A connection whose requests end by a time that is set for each."""

    def __init__(self, site: Site) -> None:
        parts = urlsplit(site.url)
        assert parts.hostname is not None
        self._is_secure = parts.scheme == "https"
        port = parts.port or (443 if self._is_secure else 80)
        super().__init__(parts.hostname, port, timeout=site.connect_seconds)
        self.until = 0.0
        self.has_met = False

    def connect(self) -> None:
        """Connect, within the time for that."""
        self.has_met = False
        super().connect()
        plain: socket.socket = self.sock
        if self._is_secure:
            plain = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)
        self.has_met = True
        self.sock = _TimedSocket(plain, self)

    def ask(self, method: str, path: str, headers: Mapping[str, str], source: Source | None, until: float) -> _Answer:
        """Send a request; its answer, of which the head was read."""
        self.until = until
        with contextlib.ExitStack() as stack:
            body: bytes | IO[bytes] | None
            body = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
            try:
                self.request(method, path, body=body, headers=dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                # It may have said why it wants no more of it.
                if source is None or self.sock is None:
                    raise
        return _Answer(self.getresponse())

    def drop(self) -> None:
        """Close the connection; the next request opens another one."""
        self.close()

    def abort(self) -> None:
        """Let a request fail that another thread waits for, and close the connection."""
        sock = self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def __hash__(self) -> int:
        return id(self)


class _TimedSocket:
    """What `http.client` uses of a socket, where every wait ends by the time of the connection's request."""

    def __init__(self, plain: socket.socket, connection: _Connection) -> None:
        self._plain = plain
        self._connection = connection

    def wait(self) -> socket.socket:
        """The socket, whose next operation may take what is left of the time."""
        left = self._connection.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._plain.settimeout(left)
        return self._plain

    def sendall(self, data: Any) -> None:
        self.wait().sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._plain.makefile("rb", buffering=0)))

    def shutdown(self, how: int) -> None:
        self._plain.shutdown(how)

    def close(self) -> None:
        self._plain.close()


class _TimedReader(io.RawIOBase):
    """The bytes that a socket receives. `raw` keeps the socket open as long as a response is read."""

    def __init__(self, timed: _TimedSocket, raw: Any) -> None:
        self._timed = timed
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.wait().recv_into(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


@dataclass
class _Answer:
    """An answer whose head was read."""

    response: http.client.HTTPResponse
    status: int = field(init=False)

    def __post_init__(self) -> None:
        self.status = self.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The fields of the head."""
        return self.response.headers  # type: ignore[return-value]

    @property
    def length(self) -> int:
        """Bytes of the content, as the head says; -1 if it does not."""
        size = _number(self.headers.get("Content-Length", ""))
        return -1 if size is None or "Content-Encoding" in self.headers else size

    def expect_content(self) -> None:
        """Raise RemoteFailure unless this is what was asked for."""
        if self.status != 200:
            raise self.failure()
        if self.headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/html":
            raise RemoteFailure(Reason.PROTOCOL, "a page of HTML instead of content")
        if "Content-Encoding" in self.headers:
            raise RemoteFailure(Reason.PROTOCOL, "encoded content, which was not asked for")

    def copy(self, into: BinaryIO | io.BytesIO, limit: int) -> None:
        """Write the content; raises RemoteFailure where it is cut, or longer than `limit` bytes."""
        # Without either, a connection that breaks looks like the end.
        if self.length < 0 and not self.response.chunked:
            raise RemoteFailure(Reason.PROTOCOL, "content without a length")
        size = 0
        while data := self.response.read(min(_CHUNK, limit + 1 - size)):
            size += len(data)
            if size > limit:
                raise RemoteFailure(Reason.TOO_LARGE, f"content of more than {limit} bytes")
            into.write(data)
        if self.length >= 0 and size != self.length:
            raise RemoteFailure(Reason.BROKEN, f"{size} of {self.length} bytes arrived")

    def drain(self) -> bool:
        """Read the rest, if that is short; whether all was read, so that the connection can be used again."""
        left = self.response.length
        if not self.response.isclosed() and (self.response.chunked or (left is not None and left <= _CHUNK)):
            self.response.read(_CHUNK)
        return self.response.isclosed()

    def failure(self) -> RemoteFailure:
        """What an answer means that is not the one hoped for."""
        detail = f"{self.status} {self.response.reason}"
        if 300 <= self.status < 400:
            place = urlsplit(self.headers.get("Location", ""))
            return RemoteFailure(Reason.PROTOCOL, f"{detail}: redirects to '{place.hostname or place.path}'")
        default = Reason.SERVER if self.status >= 500 else Reason.PROTOCOL
        return RemoteFailure(_REASONS.get(self.status, default), detail, _retry_after(self.headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as a head says: a number, or a time."""
    text = headers.get("Retry-After", "").strip()
    if (seconds := _number(text)) is not None:
        return float(seconds)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0) if text else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _number(text: str) -> int | None:
    """What a field of a head says that is a number; None where it is none that means something."""
    return int(text) if _NUMBER.fullmatch(text) else None


def _failure(error: OSError | http.client.HTTPException | ValueError, has_met: bool) -> RemoteFailure:
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        return RemoteFailure(Reason.TIMEOUT if has_met else Reason.CONNECT, "no answer in time")
    if isinstance(error, OSError) and not has_met:
        return RemoteFailure(Reason.CONNECT, text)
    if isinstance(error, (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected)):
        return RemoteFailure(Reason.BROKEN, text)
    return RemoteFailure(Reason.PROTOCOL, f"not HTTP: {text}")
