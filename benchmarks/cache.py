"""Measures how long it takes to make room in a cache of many entries, and what writers notice of it.

    python benchmarks/cache.py [--entries 100000] [--runs 3] [--json FILE]

Each run fills a new folder: records in the database, of every hundredth entry a blob as well. Then room is made until
about a tenth is left, while another process puts one entry after the other. "gc" is the wall time of the first; "put"
that of each entry of the second, all the while. Its first entry, before there is anything to wait for, opens the
database: "first put".
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchlib.processes import environment
from benchlib.report import progress, run_benchmark, save, table

from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.gc import collect
from relaybuild.build.cache.record import Entry, Output, Result, seal
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import digest_bytes

KEPT = 0.1

Run = dict[str, float]
"""`gc`, `removed`, `first`, `puts`, and of these `median` and `worst`; all times in seconds."""

PUTTER = """\
import sys, threading, time
from pathlib import Path
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.digest import digest_bytes

is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), is_over.set()), daemon=True).start()
with open_cache(CacheSettings(Path(sys.argv[1]))) as cache:
    number = 0
    while not is_over.is_set():
        data = b"put %d" % number
        action = ActionBuilder("pass", "Put").input("in/data", digest_bytes(data)).build()
        begin = time.perf_counter()
        cache.store(action, {"out": data})
        print(time.perf_counter() - begin, flush=True)
        number += 1
"""


def fill(cache: Cache, count: int) -> int:
    """Entries as they would be after as many actions, the numbers their last uses; about how many bytes they count."""
    cache.records.remember("0" * 64, digest_bytes(b"makes the database"))
    cache.records.flush()
    assert cache.folder is not None
    made = ActionBuilder("pass", "Fill").input("in/data", digest_bytes(b"")).build().encode()
    connection, size = sqlite3.connect(cache.folder.index / "cache.db"), 0
    with connection:
        for number in range(count):
            key, is_blob = f"{number:064x}", number % 100 == 0
            data = b"%d" % number * (500 if is_blob else 1)
            if is_blob:
                cache.blobs.put_bytes(data)
            output = Output("out", digest_bytes(data), contents=None if is_blob else data)
            value = seal("ac/main", key, Entry(Result((output,), 1.0, 0.5, "host"), made).encode())
            size += len(value) + (len(data) if is_blob else 0)
            connection.execute(
                "INSERT INTO Cache (key, raw, store_time, access_time, size, mode, value) VALUES (?, 1, 0, 0, 0, 1, ?)",
                (f"ac/main\0{key}".encode(), struct.pack(">d", float(number)) + value),
            )
    connection.close()
    return size


def measure(count: int, folder: Path) -> Run:
    """One run in an empty folder."""
    settings = CacheSettings(folder / "cache")
    with open_cache(settings) as cache:
        size = fill(cache, count)
    command = [sys.executable, "-c", PUTTER, str(settings.folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment(folder / "bytecode"), **pipes) as putter:
        assert putter.stdout is not None
        first = putter.stdout.readline()
        with open_cache(settings) as cache:
            assert cache.folder is not None
            begin = time.perf_counter()
            report = collect(cache.folder, cache.records, cache.blobs, int(KEPT * size))
            seconds = time.perf_counter() - begin
        output, _ = putter.communicate("stop\n")
    puts = [float(line) for line in output.split()]
    return {
        "gc": seconds,
        "removed": report.entries_removed,
        "first": float(first),
        "puts": len(puts),
        "median": statistics.median(puts),
        "worst": max(puts),
    }


def time_table(runs: Sequence[Run]) -> str:
    """A row for each run."""
    rows = [
        (
            str(number + 1),
            f"{run['gc']:.2f}",
            f"{run['removed']:.0f}",
            f"{run['puts']:.0f}",
            *(f"{1000 * run[name]:.1f}" for name in ("first", "median", "worst")),
        )
        for number, run in enumerate(runs)
    ]
    return table(("run", "gc s", "removed", "puts", "first put ms", "median put ms", "worst put ms"), rows)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure a cache that makes room while others write.")
    parser.add_argument("--entries", type=int, default=100_000, help="entries of the cache (default: 100000)")
    parser.add_argument("--runs", type=int, default=3, help="runs, each in a new folder (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    runs: list[Run] = []
    for number in range(max(1, options.runs)):
        progress(f"run {number + 1} of {options.runs}")
        with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
            runs.append(measure(max(100, options.entries), Path(folder)))
    print(f"{options.entries} entries\n")
    print(time_table(runs))
    save(options.json, {"entries": options.entries, "runs": runs})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
