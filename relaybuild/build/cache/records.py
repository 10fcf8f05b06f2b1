"""Sealed records in an index, with all that can go wrong counted and healed; does not know what a record says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from relaybuild.build.cache.folder import CacheFolder
from relaybuild.build.cache.index import (
    Index,
    IndexFailure,
    NamedRow,
    NoIndex,
    PoisonedEntry,
    open_index,
    replace_index,
)
from relaybuild.build.cache.record import OtherVersion, RecordError, read_reference, reference, seal, unseal
from relaybuild.digest import Digest

T = TypeVar("T")

TOUCH_SECONDS = 3600.0
"""A use is written down if the last one that was is older."""

MEMO = "memo"


class Records:
    """The records of a cache folder. What goes wrong in reading is told to `fail`: a word to count, and a sentence."""

    def __init__(
        self,
        folder: CacheFolder,
        fail: Callable[[str, str], None],
        secret: bytes = b"",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._fail = fail
        self._secret = secret
        self._clock = clock
        self._used: dict[str, set[str]] = {}
        self._late: dict[str, dict[str, bytes]] = {}
        self.late_bytes = 0
        """How many bytes of records were written by `flush`."""
        self._was_replaced = False
        self._index = self._opened(open_index)

    @property
    def title(self) -> str:
        """What the index is, for people."""
        return self._index.title

    def read(self, kind: str, name: str) -> bytes | None:
        """The payload of a record, which counts as a use; None if there is none.

        Raises RecordError for one that cannot be believed; it is gone then, so that it can be written anew.
        """
        if (late := self._late.get(kind, {}).get(name)) is not None:
            return late
        row = self._asked(lambda index: index.get(kind, name), kind, name)
        if row is None:
            return None
        try:
            payload = unseal(kind, name, row.value, self._secret)
        except RecordError as error:
            # Another version's record is of use to that version.
            if not isinstance(error, OtherVersion):
                self.forget(kind, [name])
            raise
        if self._clock() - row.last_use > TOUCH_SECONDS:
            self._used.setdefault(kind, set()).add(name)
        return payload

    def write(self, kind: str, name: str, payload: bytes, *, replace: bool = False) -> bool:
        """Keep a record; without `replace` the first one stays, and the answer is False. Raises IndexFailure."""
        record = seal(kind, name, payload, self._secret)
        try:
            return self._index.put(kind, name, record, replace=replace)
        except IndexFailure as failure:
            if not failure.is_damaged:
                raise
            self._heal(failure)
            return self._index.put(kind, name, record, replace=replace)

    def write_late(self, kind: str, name: str, payload: bytes) -> None:
        """Keep a record in place of any other, for other processes from `flush` on: those that nobody waits for take
        a tenth of the time together."""
        if self._folder.is_writable:
            self._late.setdefault(kind, {})[name] = payload

    def forget(self, kind: str, names: Sequence[str]) -> None:
        """Remove records; those that are not there, or cannot be removed, are no error."""
        for name in names:
            self._late.get(kind, {}).pop(name, None)
        if self._folder.is_writable and names:
            self._asked(lambda index: index.delete(kind, names))

    def rows(self) -> Iterator[NamedRow]:
        """All rows, unread."""
        try:
            yield from self._index.rows()
        except IndexFailure as failure:
            self._fail(failure.reason, str(failure))

    def unsealed(self, row: NamedRow) -> bytes:
        """The payload of a row; raises RecordError."""
        return unseal(row.kind, row.name, row.row.value, self._secret)

    def recall(self, name: str) -> Digest | None:
        """The digest that was remembered under the name of a file's state."""
        if self._folder.is_network:
            return None
        try:
            payload = self.read(MEMO, name)
        except RecordError as error:
            self._fail("record", str(error))
            return None
        return read_reference(payload) if payload is not None else None

    def remember(self, name: str, digest: Digest) -> None:
        """Remember a digest under the name of a file's state, if the folder can be written."""
        if not self._folder.is_network:
            self.write_late(MEMO, name, reference(digest))

    def flush(self) -> None:
        """Write down what was used and what is to be remembered, and let go of the index."""
        if self._folder.is_writable:
            self._write_what_is_late()
            for kind, names in self._used.items():
                self._asked(lambda index, kind=kind, names=names: index.touch(kind, sorted(names), self._clock()))
        self._used.clear()
        self._index.close()

    def _write_what_is_late(self) -> None:
        late, self._late = self._late, {}
        for kind, payloads in late.items():
            records = {name: seal(kind, name, payload, self._secret) for name, payload in payloads.items()}
            self._asked(lambda index, kind=kind, records=records: index.replace(kind, records))
            self.late_bytes += sum(map(len, records.values()))

    def _asked(self, ask: Callable[..., T], kind: str = "", name: str = "") -> T | None:
        try:
            return ask(self._index)
        except IndexFailure as failure:
            self._fail(failure.reason, str(failure))
            if failure.is_damaged:
                self._heal(failure)
            elif isinstance(failure, PoisonedEntry) and name:
                self.forget(kind, [name])
            return None

    def _heal(self, failure: IndexFailure) -> None:
        """Begin with a new index, once; a second one that is damaged is not replaced but done without."""
        self._index.close()
        self._index = NoIndex() if self._was_replaced else self._opened(replace_index)
        self._was_replaced = True

    def _opened(self, opener: Callable[[CacheFolder], Index]) -> Index:
        try:
            return opener(self._folder)
        except IndexFailure as failure:
            self._fail(failure.reason, str(failure))
            return NoIndex()
