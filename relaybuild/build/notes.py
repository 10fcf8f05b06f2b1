"""Small replaceable records beside the results of a cache, such as which headers a unit includes; knows none of them.

A note only says what to look at: whoever uses one verifies it, so that a wrong or a lost one costs time and nothing
else.
"""

from __future__ import annotations

from relaybuild.build.cache.index import IndexFailure
from relaybuild.build.cache.journal import Failed
from relaybuild.build.cache.record import RecordError
from relaybuild.build.cache.records import Records
from relaybuild.build.cache.settings import Mode
from relaybuild.build.cache.store import Cache


class Notes:
    """The notes of a cache, as its mode allows; never raises."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        folder, mode = (cache.folder, cache.settings.mode) if cache is not None else (None, Mode.OFF)
        self._may_read = folder is not None and mode in (Mode.READ, Mode.READ_WRITE)
        self._may_write = folder is not None and folder.is_writable and mode in (Mode.READ_WRITE, Mode.RECACHE)

    def read(self, kind: str, name: str) -> bytes | None:
        """The note of a kind and a name; None if there is none that can be believed."""
        records = self._records(self._may_read)
        try:
            return records.read(kind, name) if records is not None else None
        except RecordError as error:
            self._fail("record", error)
            return None

    def write(self, kind: str, name: str, payload: bytes) -> None:
        """Keep a note in place of the one that was there."""
        records = self._records(self._may_write)
        try:
            if records is not None:
                records.write(kind, name, payload, replace=True)
        except IndexFailure as failure:
            self._fail(failure.reason, failure)

    def _records(self, is_allowed: bool) -> Records | None:
        return self._cache.records if self._cache is not None and is_allowed else None

    def _fail(self, reason: str, error: Exception) -> None:
        if self._cache is not None:
            self._cache.journal.failed.append(Failed(reason, str(error)))
