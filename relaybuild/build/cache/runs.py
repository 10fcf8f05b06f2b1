"""What each run did, as small files, and the end of a run; does not know what the runs built."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from relaybuild.build.cache.cas import BlobStore
from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.cache.journal import Failed, Journal
from relaybuild.build.cache.locks import bury, exclusive
from relaybuild.build.cache.records import Records

KEPT = 200
"""Runs that are remembered."""

_SUFFIX = ".json"
_USAGE = "usage"
_COUNTS = ("executed", "cached", "storing", "errors", "remote")
_LOCK_SECONDS = 0.5


def finish_run(
    folder: CacheFolder, journal: Journal, records: Records, blobs: BlobStore, max_size: int, now: float
) -> None:
    """Write down what a run did, if it asked for anything, and make room if it has filled the cache."""
    if journal.looked or journal.executed or journal.failed:
        try:
            _write(folder, {"time": round(now, 3), **journal.summary()})
        except OSError as error:
            journal.failed.append(Failed("run-summary", str(error)))
    added = sum(event.stored_bytes for event in journal.executed) + records.late_bytes
    if added and _usage_now(folder, records, blobs, added) > max_size:
        # Imported where there is too much, which is seldom.
        from relaybuild.build.cache.gc import collect

        report = collect(folder, records, blobs, max_size, now=now)
        if not report.is_busy:
            write_usage(folder, report.bytes_after)


def read_runs(folder: CacheFolder) -> list[dict[str, Any]]:
    """The runs that are remembered, oldest first; what cannot be read is left out."""
    runs = []
    for name in _names(folder):
        with contextlib.suppress(OSError, ValueError):
            run = json.loads((folder.runs / name).read_text(encoding="utf-8"))
            if isinstance(run, dict):
                runs.append(run)
    return runs


def forget_runs(folder: CacheFolder) -> None:
    """Begin to count anew."""
    for name in _names(folder):
        remove(folder.runs / name)


def totals(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums of runs: counts by layer, misses by reason, and the rest of what a summary has."""
    found: dict[str, Any] = {name: Counter() for name in _COUNTS}
    reasons: Counter[str] = Counter()
    number, saved, conflicts = 0, 0.0, 0
    for run in runs:
        number += 1
        for name in _COUNTS:
            found[name].update(_numbers(run.get(name)))
        reasons.update(str(miss.get("reason")) for miss in run.get("misses", ()) if isinstance(miss, dict))
        saved += float(run.get("seconds_saved", 0.0))
        conflicts += len(run.get("conflicts", ()))
    return {
        "runs": number,
        **{name: dict(sorted(counter.items())) for name, counter in found.items()},
        "misses": dict(sorted(reasons.items())),
        "conflicts": conflicts,
        "seconds_saved": round(saved, 3),
    }


def read_usage(folder: CacheFolder) -> int:
    """About how many bytes the cache holds, as was last written down."""
    try:
        return int((folder.root / _USAGE).read_bytes())
    except (OSError, ValueError):
        return 0


def write_usage(folder: CacheFolder, usage: int) -> None:
    """Write down about how many bytes the cache holds, if possible."""
    with contextlib.suppress(OSError):
        folder.publish(folder.write_new(b"%d" % usage, folder.file_mode), folder.root / _USAGE, replace=True)


def _write(folder: CacheFolder, run: Mapping[str, Any]) -> None:
    data = json.dumps(run, sort_keys=True).encode()
    # Names sort by time.
    name = f"{int(run['time'] * 1000):015d}-{folder.temporary().name}{_SUFFIX}"
    folder.publish(folder.write_new(data, folder.file_mode), folder.runs / name, replace=False)
    for old in _names(folder)[:-KEPT]:
        remove(folder.runs / old)


def _names(folder: CacheFolder) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder.runs) if name.endswith(_SUFFIX))
    except OSError:
        return []


def _numbers(value: Any) -> dict[str, int]:
    return {str(k): int(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _usage_now(folder: CacheFolder, records: Records, blobs: BlobStore, added: int) -> int:
    """About how many bytes the cache holds now, after so many were added; counted where that cannot be known."""
    if not bury(folder):
        return _add_usage(folder, added)
    # A process that was killed has not said what it wrote.
    from relaybuild.build.cache.gc import bytes_held

    usage = bytes_held(records, blobs)
    write_usage(folder, usage)
    return usage


def _add_usage(folder: CacheFolder, added: int) -> int:
    """About how many bytes the cache holds now, after so many were added."""
    with exclusive(folder, "usage", _LOCK_SECONDS):
        usage = read_usage(folder) + added
        write_usage(folder, usage)
    return usage
