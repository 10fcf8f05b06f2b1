"""What a run may do with the cache, and with whom it shares; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

DEFAULT_MAX_SIZE = 5_000_000_000
DEFAULT_NAMESPACE = "main"


class Mode(Enum):
    """What a run may do. RECACHE executes everything and replaces what is there."""

    OFF = "off"
    READ = "read"
    READ_WRITE = "readwrite"
    RECACHE = "recache"


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
