"""Remote caches in a bucket of S3, or of a store that speaks its protocol; knows nothing of what is kept there.

`s3://BUCKET/PREFIX?endpoint=URL&region=NAME`. Records are `PREFIX/ac/<namespace>/<key>`, blobs `PREFIX/cas/<sha256>`. A
record is written only where there is none, which the store itself sees to. Who asks, and what the URL does not say, is
in the variables that AWS's own programs read (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, ...).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.remote.transport import Description, Reason, RemoteFailure, Site, Source
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, digest_bytes
from relaybuild.errors import UserError

SCHEMES = ("s3",)
EXTRA = "s3"

_OPTIONS = ("endpoint", "region")
_PART = 8 << 20
"""Bytes of one request: larger blobs are sent and fetched in parts."""
_CONCURRENT_PARTS = 4
_MAX_DETAIL = 200

_STATUS = re.compile(r"status code: (\d{3})")
_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_BY_STATUS = {
    401: Reason.REFUSED,
    403: Reason.REFUSED,
    405: Reason.READ_ONLY,
    408: Reason.TIMEOUT,
    413: Reason.TOO_LARGE,
    429: Reason.BUSY,
    501: Reason.PROTOCOL,
    503: Reason.BUSY,
}
_BY_KIND = {
    "Connect": Reason.CONNECT,
    "Timeout": Reason.TIMEOUT,
    "Request": Reason.BROKEN,
    "Interrupted": Reason.BROKEN,
}


@dataclass
class S3Transport:
    """A bucket, or what is below a prefix in it. `_obstore` is the package, imported by nobody who does not need it."""

    _site: Site
    _obstore: Any
    _store: Any
    _is_closed: bool = False

    def get_record(self, action: Action, namespace: str) -> bytes | None:
        """See `Transport`."""
        with self._failing():
            found = self._found(_record(action, namespace))
            if found is None:
                return None
            if str(found.attributes.get("Content-Type", "")).startswith("text/html"):
                raise RemoteFailure(Reason.PROTOCOL, "a page of HTML instead of a record")
            size: int = found.meta["size"]
            if size > self._site.max_record:
                raise RemoteFailure(Reason.TOO_LARGE, f"a record of {size} bytes")
            return bytes(found.bytes())

    def put_record(self, action: Action, namespace: str, result: bytes, *, replace: bool = False) -> bool:
        """See `Transport`. Of several clients that write at the same time, one is told that it was the first."""
        mode = "overwrite" if replace else "create"
        with self._failing():
            try:
                self._obstore.put(self._store, _record(action, namespace), result, mode=mode, use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def missing(self, digests: Collection[Digest]) -> set[Digest]:
        """See `Transport`. A blob of another size counts as missing."""
        return {digest for digest in digests if self._size(_blob(digest)) != digest.size}

    def read_blob(self, digest: Digest, into: BinaryIO) -> bool:
        """See `Transport`."""
        if digest.size == 0:
            return True
        path = _blob(digest)
        for start in range(0, digest.size, _PART):
            part = self._part(path, start, min(_PART, digest.size - start))
            if part is None:
                return False
            into.write(part)
        return True

    def write_blob(self, digest: Digest, source: Source) -> None:
        """See `Transport`."""
        if digest.size == 0:
            return
        with contextlib.ExitStack() as stack:
            # Opened here, so that a file that cannot be read is not taken for something that the store lacks.
            content = stack.enter_context(open(source, "rb")) if isinstance(source, Path) else source
            stack.enter_context(self._failing())
            self._obstore.put(self._store, _blob(digest), content, chunk_size=_PART, max_concurrency=_CONCURRENT_PARTS)

    def describe(self) -> Description:
        """See `Transport`. Nothing is written: whether that is allowed is not known."""
        parts = urlsplit(self._site.url)
        facts = {"bucket": parts.hostname or "", "prefix": parts.path.strip("/") or "(none)"}
        title, problem = f"S3 at {self._site.url}", ""
        try:
            with self._failing():
                self._found(_blob(digest_bytes(b"")))
        except RemoteFailure as failure:
            problem = str(failure)
        problems = (problem,) if problem else ()
        return Description(title, not problem, False if problem else None, True, False, facts, problems)

    def close(self) -> None:
        """See `Transport`."""
        self._is_closed = True

    def _found(self, path: str) -> Any:
        """An object, of which the content was not read; None if there is none."""
        try:
            return self._obstore.get(self._store, path)
        except FileNotFoundError as error:
            _check_bucket(error)
            return None

    def _size(self, path: str) -> int | None:
        """Bytes of an object; None if there is none."""
        with self._failing():
            try:
                size: int = self._obstore.head(self._store, path)["size"]
            except FileNotFoundError:
                return None
            return size

    def _part(self, path: str, start: int, length: int) -> bytes | None:
        """Some bytes of an object, fewer where it ends before; None if there is none."""
        with self._failing():
            try:
                return bytes(self._obstore.get_range(self._store, path, start=start, length=length))
            except FileNotFoundError as error:
                _check_bucket(error)
                return None

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever obstore raises inside is raised as RemoteFailure."""
        if self._is_closed:
            raise RemoteFailure(Reason.CONNECT, "the connection was closed")
        try:
            yield
        except FileNotFoundError as error:
            _check_bucket(error)
            raise _failure(str(error)) from error
        except self._obstore.exceptions.BaseError as error:
            raise _failure(str(error)) from error


def open_transport(site: Site) -> S3Transport:
    """See `Transport`; raises ImportError without obstore, UserError for a URL with other options."""
    import obstore
    from obstore.store import S3Store

    parts = urlsplit(site.url)
    options = _options(parts)
    endpoint = (
        options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    )
    store: Any = S3Store
    opened = store(
        parts.hostname,
        prefix=unquote(parts.path).strip("/") or None,
        config={name: value for name, value in (("endpoint", endpoint), ("region", options.get("region"))) if value},
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": f"{site.connect_seconds}s",
            "timeout": f"{site.request_seconds}s",
            "user_agent": "relaybuild",
        },
        retry_config={"max_retries": 0},
    )
    return S3Transport(site, obstore, opened)


def _options(parts: SplitResult) -> dict[str, str]:
    """What the URL says behind its question mark; raises UserError."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise UserError(
            f"the URL of the remote cache at 's3://{parts.hostname}' has the option '{unknown[0]}', "
            f"expected {' and '.join(_OPTIONS)} at most"
        )
    return options


def _record(action: Action, namespace: str) -> str:
    return f"ac/{quote(namespace, safe='')}/{action.key(namespace)}"


def _blob(digest: Digest) -> str:
    return f"cas/{digest.hex}"


def _check_bucket(error: FileNotFoundError) -> None:
    """Raise RemoteFailure where it is not the object that is missing."""
    if "NoSuchBucket" in str(error):
        raise RemoteFailure(Reason.SERVER, "there is no such bucket") from error


def _failure(text: str) -> RemoteFailure:
    """What an error means, by the status of the answer, or how the request ended; both are in its text alone."""
    detail = " ".join(text.partition("\n\nDebug source")[0].split())[:_MAX_DETAIL]
    if status := _STATUS.search(text):
        code = int(status[1])
        return RemoteFailure(_BY_STATUS.get(code, Reason.SERVER if code >= 500 else Reason.PROTOCOL), detail)
    kind = _KIND.search(text)
    return RemoteFailure(_BY_KIND.get(kind[1], Reason.PROTOCOL) if kind else Reason.PROTOCOL, detail)
