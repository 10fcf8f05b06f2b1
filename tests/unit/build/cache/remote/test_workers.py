"""Work beside a run is done, or counted as lost."""

from __future__ import annotations

import functools
import threading
import time

from relaybuild.build.cache.remote.workers import Workers


def test_everything_is_done_by_the_end() -> None:
    done: list[int] = []
    workers = Workers()
    for number in range(100):
        workers.offer(functools.partial(done.append, number))
    assert workers.finish(10.0) == 0
    assert sorted(done) == list(range(100))


def test_what_finds_no_place_is_counted() -> None:
    gate = threading.Event()
    workers = Workers(threads=1, max_waiting=2)
    for _ in range(10):
        workers.offer(lambda: bool(gate.wait(10)) and None)
    gate.set()
    lost = workers.finish(10.0)
    assert 7 <= lost <= 8


def test_what_takes_too_long_is_counted_and_not_begun() -> None:
    gate = threading.Event()
    begun: list[int] = []
    workers = Workers(threads=1)

    def work(number: int) -> None:
        begun.append(number)
        gate.wait(10)

    for number in range(3):
        workers.offer(functools.partial(work, number))
    begin = time.monotonic()
    assert workers.finish(0.2) == 3
    assert time.monotonic() - begin < 5
    gate.set()
    time.sleep(0.2)
    assert begun == [0]


def test_what_comes_after_the_end_is_counted() -> None:
    workers = Workers()
    assert workers.finish(0.0) == 0
    workers.offer(lambda: None)
    assert workers.finish(0.0) == 1


def test_no_more_threads_than_there_is_work() -> None:
    before = threading.active_count()
    workers = Workers()
    assert threading.active_count() == before
    workers.offer(lambda: None)
    assert threading.active_count() <= before + 1
    workers.finish(5.0)
