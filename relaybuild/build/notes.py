"""Small replaceable records beside the results of a cache, such as which headers a unit includes; knows none of them.

A note only says what to look at: whoever uses one verifies it, so that a wrong or a lost one costs time and nothing
else. One that travels is given to the remote cache, too, and taken from there where there is none here; it is kept
apart from others of its kind, and goes along with what is exported.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.build.cache.action import is_hex_digest
from relaybuild.build.cache.index import IndexFailure
from relaybuild.build.cache.journal import Failed
from relaybuild.build.cache.record import TRAVELLING, RecordError
from relaybuild.build.cache.records import Records
from relaybuild.build.cache.settings import Mode
from relaybuild.build.cache.store import Cache


class Notes:
    """The notes of a cache, as its mode allows, each under a kind and a digest in hexadecimal; raises ValueError for
    another name alone."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        folder, mode = (cache.folder, cache.settings.mode) if cache is not None else (None, Mode.OFF)
        self._may_read = folder is not None and mode is not Mode.OFF and mode is not Mode.RECACHE
        self._may_write = folder is not None and folder.is_writable and mode and mode.may_keep

    @property
    def are_kept(self) -> bool:
        """Whether notes can be read or written at all."""
        return self._may_read or self._may_write

    def read(self, kind: str, name: str, *, travels: bool = False, may_ask: bool = True) -> bytes | None:
        """The note of a kind and a name; None if there is none that can be believed. `may_ask`: another machine, too,
        for one that travels."""
        _check_name(name)
        records = self._records(self._may_read)
        if records is None:
            return None
        try:
            found = records.read(_kept_as(kind, travels), name)
        except RecordError as error:
            self._fail("record", error)
            found = None
        if found is None and travels and may_ask and self._cache is not None:
            found = self._cache.find_note(kind, name)
            if found is not None:
                self._keep(kind, name, found, travels)
        return found

    def fetch(self, kind: str, names: Sequence[str]) -> None:
        """Begin to bring notes that travel and are not here; they will be read."""
        records = self._records(self._may_read)
        if records is not None and self._cache is not None:
            self._cache.fetch_notes(kind, [name for name in names if not self._has(records, kind, name)])

    def _has(self, records: Records, kind: str, name: str) -> bool:
        try:
            return records.read(_kept_as(kind, True), name) is not None
        except RecordError:
            return False

    def write(self, kind: str, name: str, payload: bytes, *, travels: bool = False) -> None:
        """Keep a note in place of the one that was there; other processes see one that does not travel when this run
        ends."""
        if travels and self._cache is not None:
            self._cache.send_note(kind, name, payload)
        self._keep(kind, name, payload, travels)

    def _keep(self, kind: str, name: str, payload: bytes, travels: bool) -> None:
        records = self._records(self._may_write)
        if records is None:
            return
        if not travels:
            records.write_late(kind, name, payload)
            return
        try:
            # who waits for this process to make something looks for it by what this says
            records.write(_kept_as(kind, travels), name, payload, replace=True)
        except IndexFailure as failure:
            self._fail(failure.reason, failure)

    def _records(self, is_allowed: bool) -> Records | None:
        return self._cache.records if self._cache is not None and is_allowed else None

    def _fail(self, reason: str, error: Exception) -> None:
        if self._cache is not None:
            self._cache.journal.failed.append(Failed(reason, str(error)))


def _check_name(name: str) -> None:
    """Refuse a name that an index of files could not keep."""
    if not is_hex_digest(name):
        raise ValueError(f"a note is named by a digest, not '{name}'")


def _kept_as(kind: str, travels: bool) -> str:
    """The kind of the record that holds a note."""
    return f"{TRAVELLING}{kind}" if travels else kind
