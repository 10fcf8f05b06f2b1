"""Says in a line for each cause why a run did not find everything, root causes first; knows no layer by name.

A miss whose changed inputs were all made by what this run executed follows from that, and is folded into its cause.
What was executed again with the outputs of the time before ends such a chain: an early cutoff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from relaybuild.build.cache.action import is_hex_digest
from relaybuild.build.cache.journal import Change, Executed, Journal, Looked, MissReason
from relaybuild.dataclass import dataclass

_DIGITS = 8
_LONGEST = 40
_SHOWN = 3


@dataclass
class Cause:
    """Misses with one reason: `misses` are those that have it themselves, `followers` those that follow from them."""

    reason: MissReason
    detail: str
    changes: tuple[Change, ...]
    misses: list[Looked] = field(default_factory=list)
    followers: list[Looked] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        """`MISS codegen/host#sub_3: toolchain/cc changed (13bb0c2e → 99aa01f0); 41 object follow (18.2 s)`."""
        parts = [f"MISS {_who(self.misses)}: {self._why()}"]
        if self.followers:
            counts = Counter(event.layer for event in self.followers)
            follow = "follows" if len(self.followers) == 1 else "follow"
            parts.append(f"{', '.join(f'{count} {layer}' for layer, count in counts.items())} {follow}")
        return "; ".join(parts) + (f" ({self.seconds:.1f} s)" if self.seconds >= 0.05 else "")

    def _why(self) -> str:
        if self.reason is MissReason.CHANGED:
            shown = [_change_text(change) for change in self.changes[:_SHOWN]]
            more = len(self.changes) - len(shown)
            return ", ".join(shown) + (f" and {more} more" if more else "")
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value

    def to_json(self) -> dict[str, Any]:
        """The cause as JSON has it."""
        return {
            "reason": self.reason.value,
            "detail": self.detail,
            "changes": [{"component": each.component, "old": each.old, "new": each.new} for each in self.changes],
            "misses": [_name(event) for event in self.misses],
            "followers": dict(Counter(event.layer for event in self.followers)),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Explanation:
    """Hits by layer; the causes of a run's misses in the order in which they came up; what was executed again for
    nothing, and what gave other outputs for equal inputs; what came of asking a remote cache."""

    hits: Mapping[str, int]
    causes: tuple[Cause, ...]
    cutoffs: tuple[Executed, ...]
    unstable: tuple[Executed, ...]
    remote: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Lines for people: causes, early cutoffs, what is not deterministic, hits by layer."""
        return [
            *(cause.line() for cause in self.causes),
            *(f"SAME {_name(event)}: executed again, outputs identical" for event in self.cutoffs),
            *(
                f"UNSTABLE {_name(event)}: {event.detail or 'equal inputs gave other outputs'}"
                for event in self.unstable
            ),
            *(f"HIT  {layer}: {count}" for layer, count in self.hits.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return {
            "hits": dict(self.hits),
            "causes": [cause.to_json() for cause in self.causes],
            "cutoffs": [_name(event) for event in self.cutoffs],
            "unstable": [_name(event) for event in self.unstable],
            "remote": dict(self.remote),
        }


def explain(journal: Journal) -> Explanation:
    """Why a run missed what it missed."""
    # the first one: what changes nothing has for its output what it was given
    makers = {digest: event for event in reversed(journal.executed) for digest in event.products}
    seconds = {event.key: event.seconds for event in journal.executed}
    causes: dict[object, Cause] = {}
    cause_of: dict[str, Cause] = {}
    for event in journal.looked:
        if event.reason is None:
            continue
        parent = next((cause_of[each.key] for each in _upstream(event, makers) if each.key in cause_of), None)
        if parent is not None:
            parent.followers.append(event)
        else:
            parent = _cause(causes, event, makers)
            parent.misses.append(event)
        parent.seconds += seconds.get(event.key, 0.0)
        if event.key:
            cause_of[event.key] = parent
    changed = {event.key for event in journal.looked if event.reason is MissReason.CHANGED}
    return Explanation(
        Counter(event.layer for event in journal.looked if event.reason is None),
        tuple(causes.values()),
        tuple(event for event in journal.executed if event.is_same and event.key in changed),
        tuple(event for event in journal.executed if event.is_unstable),
        journal.remote(),
    )


def _upstream(event: Looked, makers: Mapping[str, Executed]) -> list[Executed]:
    """What this run executed to make the changed inputs of a miss; empty unless it made all of them, and stably."""
    if event.reason is not MissReason.CHANGED:
        return []
    found = [makers.get(change.new or "") for change in event.changes]
    made = [each for each in found if each is not None and not each.is_unstable]
    return made if len(made) == len(found) else []


def _cause(causes: dict[object, Cause], event: Looked, makers: Mapping[str, Executed]) -> Cause:
    """The cause that a miss shares with others of its layer, or a new one."""
    assert event.reason is not None
    reason, detail = event.reason, event.detail
    # What this run has made is not why it was made.
    own = tuple(change for change in event.changes if change.new is None or change.new not in makers)
    if reason is MissReason.CHANGED and not own:
        reason, detail = MissReason.NONDETERMINISTIC, "an input has other content, made of equal inputs"
    key = (event.layer, event.name, reason, detail, own)
    if key not in causes:
        causes[key] = Cause(reason, detail, own)
    return causes[key]


def _who(events: Iterable[Looked]) -> str:
    first, *others = events
    return _name(first) if not others else f"{first.layer}/{first.name} ({len(others) + 1} times)"


def _name(event: Looked | Executed) -> str:
    return f"{event.layer}/{event.name}" + (f"#{event.slot}" if event.slot else "")


def _change_text(change: Change) -> str:
    if change.old is None:
        return f"{change.component} is new"
    if change.new is None:
        return f"{change.component} is gone"
    return f"{change.component} changed ({_short(change.old)} → {_short(change.new)})"


def _short(text: str) -> str:
    if is_hex_digest(text):
        return text[:_DIGITS]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
