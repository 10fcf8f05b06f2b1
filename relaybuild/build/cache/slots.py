"""Remembers what was last done at a place of a project, to say what changed since; decides nothing else.

A slot names a place where work comes up again (`resnet50/pass/FoldConstant`). It never enters a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.journal import Change, MissReason, Storing
from relaybuild.build.cache.record import RecordError, Result
from relaybuild.build.cache.records import Records
from relaybuild.build.cache.wire import WireError, bytes_field, expect_text, read_fields
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher

KIND = "slot"

_KEPT = frozenset((Storing.STORED, Storing.KNOWN, Storing.CONFLICT))


@dataclass(frozen=True)
class Past:
    """The last action in a slot, its key and its result; `storing` is what became of the result."""

    key: str
    action: Action
    result: Result
    storing: Storing

    def encode(self) -> bytes:
        """The payload of a record."""
        return (
            bytes_field(1, self.key)
            + bytes_field(2, self.action.encode())
            + bytes_field(3, self.result.encode())
            + bytes_field(4, self.storing.value)
        )

    @classmethod
    def decode(cls, data: bytes) -> Past:
        """The past of a payload; raises RecordError for what is none."""
        try:
            parts = {number: value for number, value in read_fields(data) if isinstance(value, bytes)}
            action, result = Action.decode(parts[2]), Result.decode(parts[3])
            return cls(expect_text(parts[1]), action, result, Storing(expect_text(parts[4])))
        except (WireError, KeyError, ValueError) as error:
            raise RecordError(f"not the past of a slot: {error}") from error


def recall(records: Records, layer: str, slot: str) -> Past | None:
    """What was last done in a slot; None if nothing is known of it."""
    try:
        payload = records.read(KIND, _name(layer, slot))
        return Past.decode(payload) if payload is not None else None
    except RecordError:
        return None


def remember(records: Records, layer: str, slot: str, past: Past) -> None:
    """Write down what was done in a slot."""
    records.write_late(KIND, _name(layer, slot), past.encode())


def is_news(past: Past | None, key: str, storing: Storing) -> bool:
    """Whether what was done in a slot differs from what is remembered of it."""
    if past is None or past.key != key:
        return True
    return past.storing is not storing and not {past.storing, storing} <= _KEPT


def is_contradicted(past: Past | None, key: str, result: Result) -> bool:
    """Whether the same action had other outputs before, of inputs that were what its key says."""
    return past is not None and past.key == key and past.storing in _KEPT and not past.result.has_same_outputs(result)


def why_missing(past: Past | None, action: Action, key: str) -> tuple[MissReason, str, tuple[Change, ...]]:
    """Why there is no result of an action, from what was last done in its slot: the reason, a detail, the changes."""
    if past is None:
        return MissReason.NEVER_SEEN, "", ()
    if past.key == key and past.storing is Storing.RACY_INPUT:
        return MissReason.RACY_INPUT, "an input was changed while it was in use", ()
    if past.key == key:
        return MissReason.EVICTED, "" if past.storing in _KEPT else f"was not kept: {past.storing.value}", ()
    try:
        changes = difference(past.action.components(), action.components())
    except WireError:
        changes = ()
    # Without a change it is the same work in another namespace, or with other declared outputs.
    return (MissReason.CHANGED, "", changes) if changes else (MissReason.NEVER_SEEN, "", ())


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    """The components that differ, by name."""
    return tuple(
        Change(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _name(layer: str, slot: str) -> str:
    return Hasher("slot.1").field("layer", layer).field("slot", slot).digest().hex
