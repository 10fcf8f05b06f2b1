"""What every protocol to a remote cache can do, and how one is found by the scheme of a URL; knows no protocol.

A protocol is a file of this folder. It says which schemes it serves and how to open one, in these names:

    SCHEMES: tuple[str, ...]        such as ("http", "https")
    EXTRA: str                      the extra of relaybuild that brings what it imports; empty if nothing is needed
    open_transport(site: Site) -> Transport

What is not of the standard library is imported by `open_transport`, whose ImportError names the extra to the user.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol, TypeAlias
from urllib.parse import urlsplit

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.settings import REQUEST_SECONDS
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import UserError

CONNECT_SECONDS = 1.0
MAX_RECORD = 1 << 20
"""Bytes of a record beyond which it is not read: an `ActionResult` with inline outputs."""

Source: TypeAlias = "bytes | Path"
"""The content of a blob that is sent: bytes, or a file that has them."""


class Reason(str, Enum):
    """Why a server did not do what it was asked; the list is closed, and each word is counted."""

    CONNECT = "connect"
    """there is no server, no route, no such name, or TLS was not agreed upon"""
    TIMEOUT = "timeout"
    """no answer in time"""
    BROKEN = "broken"
    """the connection ended in the middle, or an answer was cut"""
    BUSY = "busy"
    """asked to come again later (429, 503, RESOURCE_EXHAUSTED); `retry_after` says when"""
    REFUSED = "refused"
    """the token is missing, wrong, or not allowed to do this"""
    READ_ONLY = "read-only"
    """the server takes nothing"""
    SERVER = "server"
    """an error of the server"""
    PROTOCOL = "protocol"
    """an answer that is none of a cache: HTML, an empty record, a redirection to another host"""
    TOO_LARGE = "too-large"
    """larger than the one or the other takes"""
    WRONG_CONTENT = "wrong-content"
    """a blob that is not what its digest says"""


class RemoteFailure(Exception):
    """A server did not do what it was asked. `retry_after` is in seconds, where the server said it.

    Neither the sentence in `detail` nor anything else of it holds a token.
    """

    def __init__(self, reason: Reason, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


@dataclass(frozen=True)
class Site:
    """Where a server is and how it is talked to. Times are in seconds; no call takes longer than `request_seconds`
    for each mebibyte that it carries."""

    url: str
    token: str = field(default="", repr=False)
    connect_seconds: float = CONNECT_SECONDS
    request_seconds: float = REQUEST_SECONDS
    max_record: int = MAX_RECORD

    @property
    def scheme(self) -> str:
        """What the URL begins with."""
        return urlsplit(self.url).scheme


@dataclass(frozen=True)
class Description:
    """What a server is and can, for people: `facts` by name. `problems` are sentences on what keeps it from working.

    `is_write_once`: the server itself keeps the first record of a key. `checks_content`: it refuses a blob that is not
    what its digest says. None: not known.
    """

    title: str
    can_read: bool = True
    can_write: bool | None = None
    is_write_once: bool | None = None
    checks_content: bool | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Transport(Protocol):
    """One server, by one protocol. Any thread may call any method at any time; each raises RemoteFailure, nothing else.

    A transport does not try again, believes nothing and remembers nothing of former calls, but for connections that it
    keeps open: a request that a server cut off because the connection was idle may be sent once more.
    """

    def get_record(self, action: Action, namespace: str) -> bytes | None:
        """The encoded `ActionResult` of an action, as it was put; None if there is none.

        It is under `action.key(namespace)`, which has the namespace in it already: `namespace` is for servers that keep
        namespaces apart, too (a prefix), and for those that want the digest's size (`action.message(namespace)`). Never
        more than `Site.max_record` bytes.
        """
        ...

    def put_record(self, action: Action, namespace: str, result: bytes, *, replace: bool = False) -> bool:
        """Keep the encoded `ActionResult` of an action, whose blobs were written before.

        False if there was one already, which stays unless `replace` is given and the server allows it. A server may
        want more to be there first, such as the `Action` (`action.message(namespace)`), the `Command`, the directories,
        or the blobs of inline outputs: this is where that is sent.
        """
        ...

    def missing(self, digests: Collection[Digest]) -> set[Digest]:
        """Those of some blobs that the server does not have."""
        ...

    def read_blob(self, digest: Digest, into: BinaryIO) -> bool:
        """Write the bytes of a blob to `into`, unverified but never more than `digest.size` of them; False if there is
        none. What was written before a failure is of no use."""
        ...

    def write_blob(self, digest: Digest, source: Source) -> None:
        """Keep a blob. Raises OSError, too, where the file cannot be read."""
        ...

    def describe(self) -> Description:
        """What the server is and can, found out by asking it; what is wrong is in `problems`, and is not raised."""
        ...

    def close(self) -> None:
        """End all connections; calls that are under way fail."""
        ...


def connect(site: Site) -> Transport:
    """The transport for a site; nothing is sent yet.

    Raises UserError for a URL that no protocol serves, and where a package is not installed.
    """
    check_url(site.url)
    modules = {scheme: module for module in _protocols() for scheme in module.SCHEMES}
    module = modules.get(site.scheme)
    if module is None:
        known = ", ".join(f"{scheme}://" for scheme in sorted(modules))
        raise UserError(f"the remote cache '{site.url}' is of no kind that is known, expected one of {known}")
    try:
        transport: Transport = module.open_transport(site)
    except ImportError as error:
        raise UserError(
            f"a remote cache at {site.scheme}:// needs the package '{error.name}', which is not installed: "
            f"pip install 'relaybuild[{module.EXTRA}]'"
        ) from error
    return transport


def is_overheard(url: str) -> bool:
    """Whether what is sent to a server goes over a network unencrypted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme in ("http", "grpc") and not (host in ("localhost", "::1") or host.startswith("127."))


def check_url(url: str) -> None:
    """Raise UserError for what is no URL of a server, or holds a password, which would end up in logs."""
    try:
        parts = urlsplit(url)
        is_url = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url:
        raise UserError(f"the remote cache '{url}' is no URL, expected one like 'https://cache.example.org/relaybuild'")
    if "@" in parts.netloc:
        raise UserError(
            f"the URL of the remote cache at '{parts.hostname}' holds a name or a password: "
            "give a token by RELAYBUILD_REMOTE_TOKEN instead"
        )


def _protocols() -> Iterator[ModuleType]:
    """The files of this folder that serve a scheme."""
    package = importlib.import_module(__package__)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        if hasattr(module, "SCHEMES"):
            yield module
