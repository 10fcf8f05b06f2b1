"""What is done to a whole cache: found out, verified, cleared, examined; runs no action."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.cas import BlobError, Fault
from relaybuild.build.cache.folder import CacheFolder, file_system, is_network, remove
from relaybuild.build.cache.locks import exclusive
from relaybuild.build.cache.record import Entry, RecordError
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache, reserve_of
from relaybuild.build.cache.wire import WireError
from relaybuild.dataclass import dataclass

_SKEW_SECONDS = 2.0


@dataclass(frozen=True)
class StoredEntry:
    """An entry as it stands in the cache: where, when it was last used, and what it is of."""

    namespace: str
    key: str
    last_use: float
    entry: Entry
    action: Action

    def to_json(self) -> dict[str, Any]:
        """Everything known of the entry, as JSON has it."""
        result = self.entry.result
        outputs = [{"name": each.name, "digest": each.digest.hex, "size": each.digest.size} for each in result.outputs]
        return {
            "key": self.key,
            "namespace": self.namespace,
            "layer": self.action.layer,
            "name": self.action.name,
            "inputs": self.action.components(),
            "outputs": outputs,
            "ended": round(result.ended, 3),
            "seconds": round(result.seconds, 6),
            "origin": result.origin,
            "last_use": round(self.last_use, 3),
        }


@dataclass(frozen=True)
class Verification:
    """How many entries were verified, and what was wrong with those that were not whole; these are gone."""

    verified: int
    damaged: tuple[str, ...]


def entries(cache: Cache) -> Iterator[StoredEntry]:
    """All entries that can be read, in no order."""
    for row in cache.records.rows():
        if row.kind.startswith("ac/"):
            namespace = row.kind.removeprefix("ac/")
            try:
                entry = Entry.decode(cache.records.unsealed(row))
                yield StoredEntry(namespace, row.name, row.row.last_use, entry, Action.decode(entry.action))
            except (RecordError, WireError):
                continue


def count(cache: Cache) -> dict[str, Any]:
    """How much there is, as JSON has it: entries by layer, blobs, bytes."""
    layers = Counter(stored.action.layer for stored in entries(cache))
    blobs = list(cache.blobs.blobs())
    return {
        "entries": sum(layers.values()),
        "layers": dict(sorted(layers.items())),
        "blobs": len(blobs),
        "bytes": sum(blob.size for blob in blobs),
    }


def verify(cache: Cache, share: float, chooser: random.Random | None = None) -> Verification:
    """Read a share (0 to 1) of the entries with all their blobs, and remove those that are not what they claim."""
    choose = chooser or random.Random()
    verified = 0
    damaged: list[str] = []
    for row in list(cache.records.rows()):
        if not row.kind.startswith("ac/") or choose.random() >= share:
            continue
        try:
            entry = Entry.decode(cache.records.unsealed(row))
            if not entry.belongs_to(row.name, row.kind.removeprefix("ac/")):
                raise RecordError("the record of another action")
            for output in entry.result.outputs:
                if output.contents is None:
                    cache.blobs.verify(output.digest)
            verified += 1
        except (RecordError, BlobError) as error:
            damaged.append(f"{row.name[:16]}: {error}")
            cache.records.forget(row.kind, [row.name])
    return Verification(verified, tuple(damaged))


def clear(folder: CacheFolder) -> None:
    """Remove all that the cache keeps; builds that run go on without it. Raises OSError."""
    for place in (folder.index, folder.records, folder.cas, folder.runs, folder.quarantine, folder.tmp, folder.leases):
        _remove_tree(place)
    remove(folder.root / "usage")


def examine(cache: Cache) -> dict[str, Any]:
    """What may keep a cache from working, and the remote one behind it, as JSON has it; `problems` are sentences."""
    return _with_remote(_examine_local(cache), cache)


def examine_absent(settings: CacheSettings, folder: Path) -> dict[str, Any]:
    """The same of a folder without a cache, in which nothing is made."""
    facts: dict[str, Any] = {
        "folder": str(folder),
        "cache": "none yet",
        "file_system": file_system(folder) or "unknown",
        "network": is_network(folder),
        "shared": settings.is_shared,
        "max_size": settings.max_size,
        "namespace": settings.namespace,
        "problems": [] if _may_be_made(folder) else ["the folder cannot be made: nothing is kept"],
    }
    with open_cache(replace(settings, folder=None)) as cache:
        return _with_remote(facts, cache)


def _may_be_made(folder: Path) -> bool:
    above = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    return above.is_dir() and os.access(above, os.W_OK | os.X_OK)


def _with_remote(facts: dict[str, Any], cache: Cache) -> dict[str, Any]:
    remote = cache.examine_remote()
    if remote is None:
        return facts
    problems = [f"remote cache: {problem}" for problem in remote.pop("problems")]
    return {**facts, "remote": remote, "problems": [*facts["problems"], *problems]}


def _examine_local(cache: Cache) -> dict[str, Any]:
    folder = cache.folder
    if folder is None:
        return {"problems": ["this user has no cache folder; name one with --cache-dir"]}
    facts: dict[str, Any] = {
        "folder": str(folder.root),
        "file_system": file_system(folder.root) or "unknown",
        "network": folder.is_network,
        "shared": folder.is_shared,
        "writable": folder.is_writable,
        "index": cache.records.title,
        "max_size": cache.settings.max_size,
        "namespace": cache.settings.namespace,
    }
    problems = [f"{failed.reason}: {failed.detail}" for failed in cache.journal.failed]
    if not folder.is_writable:
        problems.append("the folder cannot be written: results are read, none is kept")
        return facts | {"problems": problems}
    try:
        facts |= _free(folder.root) | _trial(cache, folder)
    except OSError as error:
        problems.append(f"a file could not be written: {error.strerror or error}")
    if facts.get("free_bytes", 0) < facts.get("reserve_bytes", 0):
        problems.append("too little of the file system is free: nothing is kept")
    if abs(facts.get("clock_skew_seconds", 0.0)) > _SKEW_SECONDS:
        problems.append("the clock of the file system differs from this machine's: no digest of a file is remembered")
    if not facts.get("locks", True):
        problems.append("the file system has no locks: processes do the same work at the same time")
    return facts | {"problems": problems}


def _free(root: Path) -> dict[str, int]:
    found = os.statvfs(root)
    return {"free_bytes": found.f_bavail * found.f_frsize, "reserve_bytes": reserve_of(root)}


def _trial(cache: Cache, folder: CacheFolder) -> dict[str, Any]:
    """Whether a blob can be written and read, locks work, and clocks agree. Raises OSError."""
    data = os.urandom(4096)
    digest = cache.blobs.put_bytes(data)
    path = cache.blobs.path_of(digest.hex)
    skew = path.stat().st_mtime - time.time()
    fault = cache.blobs.has(digest)
    remove(path)
    with exclusive(folder, "doctor", 0.5) as has_locks:
        pass
    return {"blobs": fault is not Fault.MISSING, "locks": has_locks, "clock_skew_seconds": round(skew, 3)}


def _remove_tree(path: Path) -> None:
    """Remove a folder and what is in it, without following links."""
    if not path.is_dir() or path.is_symlink():
        remove(path)
        return
    for name in os.listdir(path):
        _remove_tree(path / name)
    os.rmdir(path)
