"""A process that uses the cache, for tests with several of them; prints `ready`, waits for a line, works, prints."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.folder import open_folder
from relaybuild.build.cache.hit import Hit
from relaybuild.build.cache.index import open_index
from relaybuild.build.cache.locks import exclusive
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.digest import digest_bytes


def action(number: int) -> Action:
    return ActionBuilder("codegen", "host").input("in/function", digest_bytes(b"%d" % number)).build()


def wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def race(folder: str, mark: str, count: str) -> None:
    """Store results that carry a mark, without waiting for one another; print the marks that are found afterwards."""
    with open_cache(CacheSettings(Path(folder))) as cache:
        wait_for_go()
        for number in range(int(count)):
            contents = (mark * 3000).encode()
            cache.store(action(number), {"code.c": contents, "code.h": contents[:2000]})
        found = []
        for number in range(int(count)):
            hit = cache.lookup(action(number))
            assert isinstance(hit, Hit)
            outputs = hit.read_all()
            found.append("".join(sorted({chr(byte) for data in outputs.values() for byte in data})))
        print(" ".join(found), len(cache.journal.failed))


def once(folder: str, log: str, count: str) -> None:
    """Run actions that write a line each time they are executed; print whether outputs are right."""
    with open_cache(CacheSettings(Path(folder))) as cache:
        wait_for_go()
        is_right = True
        for number in range(int(count)):

            def execute(number: int = number) -> dict[str, bytes]:
                time.sleep(0.02)
                with open(log, "a") as file:
                    file.write(f"{number}\n")
                return {"out": b"%d" % number * 700}

            is_right &= cache.run(action(number), execute) == {"out": b"%d" % number * 700}
        print(is_right, len(cache.journal.failed))


def index(folder: str, number: str) -> None:
    """Open an index that may not be there, write to it and read; print its kind and what was wrong."""
    wait_for_go()
    opened = open_index(open_folder(Path(folder)))
    opened.put("ac/main", f"{int(number):08x}", number.encode())
    opened.put("ac/main", "ffffffff", b"shared")
    mine, shared = opened.get("ac/main", f"{int(number):08x}"), opened.get("ac/main", "ffffffff")
    opened.close()
    print(opened.title, mine is not None and mine.value == number.encode(), shared is not None)


def hold(folder: str, name: str) -> None:
    """Hold a lock until killed."""
    with exclusive(open_folder(Path(folder)), name, 5.0) as is_ours:
        print("ready" if is_ours else "no", flush=True)
        time.sleep(60)


def lease(folder: str) -> None:
    """Use an entry, and need it until killed."""
    cache = open_cache(CacheSettings(Path(folder)))
    assert isinstance(cache.lookup(action(0)), Hit)
    print("ready", flush=True)
    time.sleep(60)


def die(folder: str, count: str, seed: str) -> None:
    """Kill processes that fill a cache, at random moments; print how many died before they were through."""
    chooser = random.Random(int(seed))
    died = 0
    for _ in range(int(count)):
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            with open_cache(CacheSettings(Path(folder))) as cache:
                for number in chooser.sample(range(100), 30):
                    cache.run(action(number), lambda number=number: {"a": b"%d" % number * 2000, "b": b"%d" % number})
            os._exit(0)
        time.sleep(max(chooser.uniform(0.0, 0.06) - (time.monotonic() - begin), 0.0))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
    print(died)


CHANGES = ("link", "mkdir", "open", "rename", "replace", "unlink", "utime", "write")
"""Functions of `os` by which the cache changes files."""


def die_at_each_step(folder: str) -> None:
    """Kill processes that store a result in a cache of their own, each before another change of a file; print in how
    many folders they have left something."""
    step, status = 0, 1
    while status:
        child = os.fork()
        if child == 0:
            _die_before(step)
            with open_cache(CacheSettings(Path(folder, str(step)))) as cache:
                cache.run(action(1), lambda: {"a": b"1" * 2000, "b": b"2" * 3000}, slot="place")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        step += 1
    print(step)


def _die_before(step: int) -> None:
    """Let this process be killed when it has changed files so many times."""
    left = step

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return call

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))


def read(folder: str, seconds: str) -> None:
    """Look entries up for a time, whatever happens to them; print hits, misses and errors."""
    wait_for_go()
    hits = misses = 0
    end = time.monotonic() + float(seconds)
    with open_cache(CacheSettings(Path(folder))) as cache:
        while time.monotonic() < end:
            for number in range(50):
                if cache.run(action(number), lambda number=number: {"out": b"%d" % number * 2000}):
                    hits += 1
        misses = len(cache.journal.executed)
        errors = {failed.reason for failed in cache.journal.failed} - {"missing-blob", "damaged"}
    print(hits, misses, sorted(errors))


def put(folder: str) -> None:
    """Store results until a line comes; print how many, and the seconds of the median and of the slowest."""
    seconds: list[float] = []
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    with open_cache(CacheSettings(Path(folder))) as cache:
        cache.store(action(0), {"out": b"opens the database"})
        print("ready", flush=True)
        while not stop.is_set():
            begin = time.monotonic()
            cache.store(action(len(seconds) + 1), {"out": os.urandom(20_000)})
            seconds.append(time.monotonic() - begin)
            time.sleep(0.01)
        assert not cache.journal.failed
    seconds.sort()
    print(len(seconds), f"{seconds[len(seconds) // 2]:.4f} {seconds[-1]:.4f}")


def key() -> None:
    """Print the key of an action whose parts come in an order that depends on the hash seed."""
    names = {f"name{number}" for number in range(20)}
    builder = ActionBuilder("pass", "Fold").option("targets", frozenset(names)).option("by", {n: n for n in names})
    for name in names:
        builder.input(f"in/{name}", digest_bytes(name.encode())).environment(name, "1").output(name)
    print(builder.build().key("main"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
