"""What a run may do with the cache, and with whom it shares; opens nothing."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from pathlib import Path

from relaybuild.dataclass import dataclass

DEFAULT_MAX_SIZE = 5_000_000_000
DEFAULT_NAMESPACE = "main"
FLUSH_SECONDS = 30.0
REQUEST_SECONDS = 20.0


class Mode(Enum):
    """What a run may do with a cache.

    WRITE looks nothing up. VERIFY executes everything and compares the results with those that are there. RECACHE
    executes everything and replaces what is there.
    """

    OFF = "off"
    READ = "read"
    WRITE = "write"
    READ_WRITE = "readwrite"
    VERIFY = "verify"
    RECACHE = "recache"

    @property
    def may_look_up(self) -> bool:
        """Whether results are taken."""
        return self in (Mode.READ, Mode.READ_WRITE)

    @property
    def may_keep(self) -> bool:
        """Whether results are kept."""
        return self not in (Mode.OFF, Mode.READ)

    @property
    def must_execute(self) -> bool:
        """Whether everything is executed, whatever is there."""
        return self in (Mode.VERIFY, Mode.RECACHE)


@dataclass(frozen=True)
class RemoteSettings:
    """A cache on another machine that is asked for what the local one does not have. Its `mode` is not RECACHE.

    A request, of a mebibyte at most, may take `request_seconds`; at the end of a run, what is not sent yet is waited
    for, for at most `flush_seconds`.
    """

    url: str
    mode: Mode = Mode.READ_WRITE
    token: str = field(default="", repr=False)
    request_seconds: float = REQUEST_SECONDS
    flush_seconds: float = FLUSH_SECONDS


@dataclass(frozen=True)
class CacheSettings:
    """Where results are kept, and who may see them.

    Results are written to `namespace` and read from it and then from `trusted`, in that order. With a `secret` only
    records that were sealed with it are believed. `max_size` is in bytes; `origin` says where results come from.
    """

    folder: Path | None
    mode: Mode = Mode.READ_WRITE
    is_shared: bool = False
    namespace: str = DEFAULT_NAMESPACE
    trusted: tuple[str, ...] = ()
    secret: bytes = field(default=b"", repr=False)
    max_size: int = DEFAULT_MAX_SIZE
    origin: str = ""
    remote: RemoteSettings | None = None
