"""Work beside a run is done, or counted as lost."""

from __future__ import annotations

import functools
import threading
import time

from relaybuild.build.cache.remote.uploads import Uploads


def test_everything_is_done_by_the_end() -> None:
    done: list[int] = []
    uploads = Uploads()
    for number in range(100):
        uploads.offer(functools.partial(done.append, number))
    assert uploads.finish(10.0) == 0
    assert sorted(done) == list(range(100))


def test_what_finds_no_place_is_counted() -> None:
    gate = threading.Event()
    uploads = Uploads(threads=1, max_waiting=2)
    for _ in range(10):
        uploads.offer(lambda: bool(gate.wait(10)) and None)
    gate.set()
    lost = uploads.finish(10.0)
    assert 7 <= lost <= 8


def test_what_takes_too_long_is_counted_and_not_begun() -> None:
    gate = threading.Event()
    begun: list[int] = []
    uploads = Uploads(threads=1)

    def work(number: int) -> None:
        begun.append(number)
        gate.wait(10)

    for number in range(3):
        uploads.offer(functools.partial(work, number))
    begin = time.monotonic()
    assert uploads.finish(0.2) == 3
    assert time.monotonic() - begin < 5
    gate.set()
    time.sleep(0.2)
    assert begun == [0]


def test_what_comes_after_the_end_is_counted() -> None:
    uploads = Uploads()
    assert uploads.finish(0.0) == 0
    uploads.offer(lambda: None)
    assert uploads.finish(0.0) == 1


def test_no_more_threads_than_there_is_work() -> None:
    before = threading.active_count()
    uploads = Uploads()
    assert threading.active_count() == before
    uploads.offer(lambda: None)
    assert threading.active_count() <= before + 1
    uploads.finish(5.0)
