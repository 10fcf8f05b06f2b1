"""Makes room: what was used longest ago goes first, never what a running build needs; opens no blob."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from relaybuild.build.cache import parts
from relaybuild.build.cache.cas import BlobFile, BlobStore
from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.cache.locks import exclusive, held
from relaybuild.build.cache.record import Entry, OtherVersion, RecordError
from relaybuild.build.cache.records import Records
from relaybuild.dataclass import dataclass

GRACE_SECONDS = 3600.0
"""A blob that no record names is younger than this while the build that makes it has yet to write the record."""

_RACE_SECONDS = 5.0
_STALE_SECONDS = 30 * 86400.0
_FILL = 0.8


@dataclass(frozen=True)
class GcReport:
    """What was found and done: bytes before and after, entries and blobs removed, entries kept because running builds
    need them; `is_busy` says that another process was at it, and nothing was done."""

    bytes_before: int = 0
    bytes_after: int = 0
    entries_removed: int = 0
    blobs_removed: int = 0
    entries_held: int = 0
    is_busy: bool = False


@dataclass
class _Survey:
    """What is in the index: entries (last use, kind, name, bytes, blobs), and by kind what is of no use to anybody."""

    entries: list[tuple[float, str, str, int, tuple[str, ...]]] = field(default_factory=list)
    stale: dict[str, list[str]] = field(default_factory=dict)
    row_bytes: int = 0

    def references(self) -> Counter[str]:
        """How many entries name each blob."""
        return Counter(blob for entry in self.entries for blob in entry[4])


def collect(
    folder: CacheFolder, records: Records, blobs: BlobStore, max_size: int, *, now: float | None = None
) -> GcReport:
    """Where there are more than `max_size` bytes, remove the entries that were used longest ago until four fifths of
    that are left; and in any case what nothing refers to any more."""
    moment = time.time() if now is None else now
    with exclusive(folder, "gc", 0.0) as is_ours:
        if not is_ours:
            return GcReport(is_busy=True)
        return _collected(folder, records, blobs, max_size, moment)


def bytes_held(records: Records, blobs: BlobStore) -> int:
    """How many bytes a cache holds: all blobs, whether or not a record names them, and all records."""
    return sum(blob.size for blob in blobs.blobs()) + sum(len(row.row.value) for row in records.rows())


def _collected(folder: CacheFolder, records: Records, blobs: BlobStore, max_size: int, now: float) -> GcReport:
    found = {_name(blob): blob for blob in blobs.blobs()}
    survey = _survey(records, now, _parts(found.values()))
    total = before = sum(blob.size for blob in found.values()) + survey.row_bytes
    references = survey.references()
    doomed = {kind: list(names) for kind, names in survey.stale.items()}
    pinned = held(folder)
    freed: list[str] = []
    removed = kept = 0
    target = int(max_size * _FILL) if before > max_size else before
    for _, kind, name, size, needed in sorted(survey.entries):
        if total <= target:
            break
        if name in pinned:
            kept += 1
            continue
        doomed.setdefault(kind, []).append(name)
        removed += 1
        total -= size
        for blob in needed:
            references[blob] -= 1
            if not references[blob] and blob in found:
                freed.append(blob)
                total -= found[blob].size
    # Records first: a record whose blobs are gone would be a hit that is none.
    for kind, names in doomed.items():
        records.forget(kind, names)
    orphans = [blob for name, blob in found.items() if name not in references and blob.modified < now - GRACE_SECONDS]
    gone = _removed([found[blob] for blob in freed], now - _RACE_SECONDS)
    gone_orphans = _removed(orphans, now - GRACE_SECONDS)
    after = total + sum(found[blob].size for blob in freed) - sum(blob.size for blob in gone + gone_orphans)
    _sweep(folder, now)
    return GcReport(before, after, removed, len(gone) + len(gone_orphans), kept)


def _name(blob: BlobFile) -> str:
    """What an entry that needs a blob needs of it: a blob may be there in one, and as a list of parts."""
    return blob.hex + parts.SUFFIX if blob.parts else blob.hex


def _parts(found: Iterable[BlobFile]) -> dict[str, set[str]]:
    """What else is needed where a blob is that is kept in parts."""
    return {blob.hex: {_name(blob), *blob.parts} for blob in found if blob.parts}


def _survey(records: Records, now: float, listed: Mapping[str, set[str]]) -> _Survey:
    survey = _Survey()
    for row in records.rows():
        size = len(row.row.value)
        survey.row_bytes += size
        if not row.kind.startswith("ac/"):
            if row.row.last_use < now - _STALE_SECONDS:
                survey.stale.setdefault(row.kind, []).append(row.name)
            continue
        try:
            needed = Entry.blobs_of(records.unsealed(row))
        except OtherVersion:
            # Its blobs are not known to us; it is removed as any other when its time comes.
            needed = ()
        except RecordError:
            survey.stale.setdefault(row.kind, []).append(row.name)
            continue
        names = set(needed).union(*(listed[blob] for blob in needed if blob in listed))
        survey.entries.append((row.row.last_use, row.kind, row.name, size, tuple(names)))
    return survey


def _removed(blobs: Iterable[BlobFile], before: float) -> list[BlobFile]:
    """Remove blobs, but not those that somebody has asked to stay since: written at `before` or later."""
    gone = []
    for blob in blobs:
        with contextlib.suppress(OSError):
            if _is_recent(blob, before):
                continue
            os.unlink(blob.path)
            gone.append(blob)
    return gone


def _is_recent(blob: BlobFile, before: float) -> bool:
    """Whether a blob was written since, and was not when the survey began."""
    return blob.modified < before <= os.stat(blob.path).st_mtime


def _sweep(folder: CacheFolder, now: float) -> None:
    """Remove what processes have left that did not end well, and what was damaged long ago."""
    for place, age in ((folder.tmp, GRACE_SECONDS), (folder.quarantine, _STALE_SECONDS)):
        for path in _listing(place):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < now - age:
                    _remove_any(path)
    for path in _listing(folder.locks):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < now - GRACE_SECONDS:
                # It goes when it is let go; one that is held stays.
                with exclusive(folder, path.name, 0.0):
                    pass


def _remove_any(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for each in _listing(path):
            _remove_any(each)
        os.rmdir(path)
    else:
        remove(path)


def _listing(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []
