"""What runs did is written down, added up and forgotten; what is damaged is left out."""

from __future__ import annotations

import pytest

from relaybuild.build.cache import runs
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache

from .conftest import action


def run(settings: CacheSettings, number: int) -> Cache:
    with open_cache(settings) as cache:
        cache.run(action(x=b"%d" % number), lambda: {"out": b"1"}, slot="m")
    return cache


def test_runs_add_up(settings: CacheSettings) -> None:
    for number in (1, 1, 2):
        cache = run(settings, number)
    assert cache.folder is not None
    found = runs.read_runs(cache.folder)
    assert [each["time"] for each in found] == sorted(each["time"] for each in found)
    assert runs.totals(found) == {
        "runs": 3,
        "executed": {"pass": 2},
        "cached": {"pass": 1},
        "storing": {"stored": 2},
        "errors": {},
        "remote": {},
        "misses": {"changed": 1, "never-seen": 1},
        "conflicts": 0,
        "seconds_saved": pytest.approx(0.0, abs=0.1),
    }
    runs.forget_runs(cache.folder)
    assert runs.totals(runs.read_runs(cache.folder))["runs"] == 0


def test_what_a_killed_run_has_written_is_counted_by_the_next(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        cache.store(action(x=b"1"), {"out": b"1" * 5000})
    assert cache.folder is not None
    folder = cache.folder
    assert runs.read_usage(folder) == 5000
    # as a killed process leaves it: a blob, and a lease that nobody holds
    cache.blobs.put_bytes(b"2" * 7000)
    (folder.leases / folder.temporary().name).touch()
    with open_cache(settings) as cache:
        cache.store(action(x=b"3"), {"out": b"3" * 2000})
    assert 14_000 < runs.read_usage(folder) < 16_000
    with open_cache(settings) as cache:
        cache.store(action(x=b"4"), {"out": b"4" * 2000})
        before = runs.read_usage(folder)
    assert runs.read_usage(folder) == before + 2000


def test_a_run_that_asked_for_nothing_is_none(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        pass
    assert cache.folder is not None
    assert runs.read_runs(cache.folder) == []


def test_the_last_runs_are_kept(settings: CacheSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEPT", 3)
    for number in range(6):
        cache = run(settings, number)
    assert cache.folder is not None
    assert len(runs.read_runs(cache.folder)) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_run_is_left_out(settings: CacheSettings, content: bytes) -> None:
    cache = run(settings, 1)
    assert cache.folder is not None
    (cache.folder.runs / "000-x.json").write_bytes(content)
    assert runs.totals(runs.read_runs(cache.folder))["runs"] == 1
