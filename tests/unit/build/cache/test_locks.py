"""Locks and leases end with the process that has them, however it ends."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from relaybuild.build.cache import locks
from relaybuild.build.cache.folder import CacheFolder, open_folder
from relaybuild.build.cache.locks import Lease, exclusive, held

from .conftest import Start


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return open_folder(tmp_path / "cache")


def test_the_lock_of_a_killed_process_is_free_within_a_second(folder: CacheFolder, start: Start) -> None:
    holder = start("hold", folder.root.parent, "key")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    with exclusive(folder, "key", 0.05) as is_ours:
        assert not is_ours
    killer = threading.Timer(0.2, holder.kill)
    killer.start()
    begin = time.monotonic()
    with exclusive(folder, "key", 10.0) as is_ours:
        assert is_ours
    killer.join()
    assert time.monotonic() - begin < 1.2
    assert list(folder.locks.iterdir()) == []


def test_waiting_is_bounded_and_the_work_is_done_anyway(folder: CacheFolder) -> None:
    begin = time.monotonic()
    with exclusive(folder, "key", 1.0) as first, exclusive(folder, "key", 0.1) as second:
        assert (first, second) == (True, False)
    assert 0.1 <= time.monotonic() - begin < 1.0


def test_a_stale_lock_file_locks_nothing(folder: CacheFolder) -> None:
    folder.make(folder.locks)
    (folder.locks / "key").write_bytes(b"pid 1\n")
    with exclusive(folder, "key", 0.0) as is_ours:
        assert is_ours


def test_one_thread_at_a_time_holds_a_lock_that_comes_and_goes(folder: CacheFolder) -> None:
    inside = most = taken = 0

    def work() -> None:
        nonlocal inside, most, taken
        for _ in range(30):
            with exclusive(folder, "key", 30.0) as is_ours:
                assert is_ours
                inside += 1
                most = max(most, inside)
                taken += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, taken) == (1, 180)


def test_the_lock_of_a_file_that_was_removed_meanwhile_is_none(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = locks._open
    removed = 0

    def open_as_the_holder_lets_go(place: CacheFolder, path: Path) -> int:
        nonlocal removed
        file = original(place, path)
        if removed < 2:
            path.unlink()
            removed += 1
        return file

    monkeypatch.setattr(locks, "_open", open_as_the_holder_lets_go)
    with exclusive(folder, "key", 5.0) as is_ours:
        assert (is_ours, removed) == (True, 2)
        assert (folder.locks / "key").exists()


def test_a_failing_block_lets_go(folder: CacheFolder) -> None:
    with pytest.raises(KeyError), exclusive(folder, "key", 0.0):
        raise KeyError
    with exclusive(folder, "key", 0.0) as is_ours:
        assert is_ours


def test_without_locks_everybody_goes_ahead(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    ran = False
    with exclusive(folder, "key", 1.0) as is_ours:
        ran = not is_ours
    assert ran
    lease = Lease(folder)
    lease.hold("00")
    lease.close()


def test_a_lease_says_what_is_needed_until_it_is_closed(folder: CacheFolder) -> None:
    lease = Lease(folder)
    assert held(folder) == frozenset()
    assert not folder.leases.exists()
    lease.hold("aa")
    lease.hold("bb")
    assert held(folder) == {"aa", "bb"}
    lease.close()
    assert held(folder) == frozenset()
    assert list(folder.leases.iterdir()) == []


def test_leases_of_dead_processes_are_removed(folder: CacheFolder) -> None:
    folder.make(folder.leases)
    dead = folder.leases / folder.temporary().name
    dead.write_text("aa\n")
    elsewhere = folder.leases / "otherhost-1-00"
    elsewhere.write_text("bb\n")
    assert held(folder) == {"bb"}
    assert not dead.exists()
    old = time.time() - 25 * 3600
    os.utime(elsewhere, (old, old))
    assert held(folder) == frozenset()


def test_a_lease_that_is_taken_for_a_dead_one_is_made_again(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = locks._open

    def open_and_bury(folder: CacheFolder, path: Path) -> int:
        file = opened(folder, path)
        monkeypatch.setattr(locks, "_open", opened)
        # somebody looks between the opening and the lock
        assert locks.bury(folder) == 1
        return file

    monkeypatch.setattr(locks, "_open", open_and_bury)
    lease = Lease(folder)
    lease.hold("aa")
    assert held(folder) == {"aa"}
    lease.close()
