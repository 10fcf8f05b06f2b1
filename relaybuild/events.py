"""What a compilation tells of its progress while it runs; shows nothing."""

from __future__ import annotations

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Event:
    """Progress: a stage started (`seconds` None, `total` 0), went on (`done` of `total`), or ended (`seconds` set)."""

    stage: str
    done: int = 0
    total: int = 0
    seconds: float | None = None
