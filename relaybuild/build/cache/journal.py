"""What a run asked of the cache and what came of it, in order; all counts are taken from here, none is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple

from relaybuild.dataclass import dataclass


class MissReason(str, Enum):
    """Why something was not in the cache; the list is closed."""

    NEVER_SEEN = "never-seen"
    CHANGED = "changed"
    EVICTED = "evicted"
    BYPASSED = "bypassed"
    INTEGRITY = "integrity"
    INCOMPLETE_REMOTE = "incomplete-remote"
    REMOTE_UNAVAILABLE = "remote-unavailable"
    RACY_INPUT = "racy-input"
    NONDETERMINISTIC = "nondeterministic"
    TRUST = "trust"
    FORMAT_VERSION = "format-version"


class Storing(str, Enum):
    """What became of a result; the list is closed."""

    STORED = "stored"
    KNOWN = "known"
    CONFLICT = "determinism-conflict"
    RACY_INPUT = "racy-input"
    INCOMPLETE = "incomplete"
    TOO_LARGE = "too-large"
    NO_SPACE = "no-space"
    NOT_WRITABLE = "not-writable"
    BYPASSED = "bypassed"
    FAILED = "failed"


class Answer(str, Enum):
    """What came of asking a remote cache; the list is closed."""

    HIT = "hits"
    MISS = "misses"
    STORED = "stored"
    KNOWN = "known"
    CONFLICT = "conflicts"
    LOST = "not_sent"
    HELD_BACK = "not_asked"


class Change(NamedTuple):
    """One named input that is not what it was: None stands for one that was not, or is no longer there."""

    component: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Looked:
    """An action was looked up. `reason` is None for a hit; `changes` say what differs from the last action in its slot;
    `saved` is how many seconds it took when it was executed; `is_remote`: a hit that came from another machine."""

    layer: str
    name: str
    slot: str
    key: str
    reason: MissReason | None = None
    detail: str = ""
    changes: tuple[Change, ...] = ()
    saved: float = 0.0
    is_remote: bool = False


@dataclass(frozen=True)
class Executed:
    """An action was executed, in so many seconds; `products` are the digests that later actions may name.

    `is_same`: the outputs are those of the last action in its slot. `is_unstable`: equal inputs gave other outputs
    before.
    """

    layer: str
    name: str
    slot: str
    key: str
    seconds: float
    storing: Storing
    detail: str = ""
    products: frozenset[str] = frozenset()
    is_same: bool = False
    is_unstable: bool = False
    stored_bytes: int = 0


@dataclass(frozen=True)
class Failed:
    """The cache could not do something, which cost time and nothing else. `reason` is a word to count."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Asked:
    """A remote cache was asked for a result, or to keep one, and so many bytes went one way or the other."""

    answer: Answer
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass
class Journal:
    """The events of one run, in order; those of `asked` in that in which the answers came."""

    looked: list[Looked] = field(default_factory=list)
    executed: list[Executed] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Counts as JSON has them: by layer `executed` and `cached`; `misses` with reasons; `storing`, `errors`; what
        `remote` caches answered, which is empty where none was asked."""
        return {
            "executed": _counts(event.layer for event in self.executed),
            "cached": _counts(event.layer for event in self.looked if event.reason is None),
            "misses": [_miss(event) for event in self.looked if event.reason is not None],
            "storing": _counts(event.storing.value for event in self.executed),
            "conflicts": [event.key for event in self.executed if event.is_unstable],
            "errors": _counts(event.reason for event in self.failed),
            "stored_bytes": sum(event.stored_bytes for event in self.executed),
            "seconds_saved": round(sum(event.saved for event in self.looked), 3),
            "remote": self.remote(),
        }

    def line(self) -> str:
        """The summary for people: `212/215 hits (98.6 %), saved 4m12s, 3 misses: changed`."""
        hits = sum(event.reason is None for event in self.looked)
        total = len(self.looked)
        parts = [f"{hits}/{total} hits ({100 * hits / total:.1f} %)" if total else "nothing looked up"]
        if saved := sum(event.saved for event in self.looked):
            parts.append(f"saved {_duration(saved)}")
        if total - hits:
            reasons = dict.fromkeys(event.reason.value for event in self.looked if event.reason is not None)
            parts.append(f"{total - hits} {'miss' if total - hits == 1 else 'misses'}: {', '.join(reasons)}")
        if remote := self.remote():
            hit, stored = (remote.get(answer.value, 0) for answer in (Answer.HIT, Answer.STORED))
            rest = f", left alone: {held} not asked for" if (held := remote.get(Answer.HELD_BACK.value)) else ""
            parts.append(f"remote: {hit} hit{'' if hit == 1 else 's'}, {stored} stored{rest}")
        if self.failed:
            parts.append(f"errors: {', '.join(_error_texts(self.failed))}")
        return ", ".join(parts)

    def remote(self) -> dict[str, int]:
        """Counts of what came of asking a remote cache, and the bytes; empty where none was asked."""
        if not self.asked:
            return {}
        read, written = sum(each.read_bytes for each in self.asked), sum(each.written_bytes for each in self.asked)
        return {**_counts(each.answer.value for each in self.asked), "bytes_read": read, "bytes_written": written}


def _miss(event: Looked) -> dict[str, Any]:
    assert event.reason is not None
    return {
        "layer": event.layer,
        "name": event.name,
        "slot": event.slot,
        "key": event.key,
        "reason": event.reason.value,
        "detail": event.detail,
        "changed": [change.component for change in event.changes],
    }


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _error_texts(failed: Iterable[Failed]) -> Iterator[str]:
    for reason, count in _counts(event.reason for event in failed).items():
        yield f"{count} {reason}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
