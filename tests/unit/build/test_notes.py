"""Notes are replaced, are read and written as the cache's mode allows, and never fail anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import open_cache
from relaybuild.build.notes import Notes

NAME = "ab" * 32


def test_the_last_note_stays(tmp_path: Path) -> None:
    for payload in (b"first", b"second"):
        with open_cache(CacheSettings(tmp_path)) as cache:
            Notes(cache).write("kind", NAME, payload)
    with open_cache(CacheSettings(tmp_path)) as cache:
        assert Notes(cache).read("kind", NAME) == b"second"
        assert Notes(cache).read("other", NAME) is None


@pytest.mark.parametrize(
    ("mode", "reads", "writes"),
    [(Mode.OFF, False, False), (Mode.READ, True, False), (Mode.READ_WRITE, True, True), (Mode.RECACHE, False, True)],
)
def test_modes(tmp_path: Path, mode: Mode, reads: bool, writes: bool) -> None:
    with open_cache(CacheSettings(tmp_path)) as cache:
        Notes(cache).write("kind", NAME, b"old")
    with open_cache(CacheSettings(tmp_path, mode)) as cache:
        assert Notes(cache).read("kind", NAME) == (b"old" if reads else None)
        Notes(cache).write("kind", NAME, b"new")
    with open_cache(CacheSettings(tmp_path)) as cache:
        assert Notes(cache).read("kind", NAME) == (b"new" if writes else b"old")


@pytest.mark.parametrize("travels", [True, False])
def test_others_see_at_once_what_they_wait_for_and_the_rest_when_a_run_ends(tmp_path: Path, travels: bool) -> None:
    with open_cache(CacheSettings(tmp_path)) as other:
        with open_cache(CacheSettings(tmp_path)) as cache:
            Notes(cache).write("kind", NAME, b"payload", travels=travels)
            assert Notes(cache).read("kind", NAME, travels=travels) == b"payload"
            assert Notes(other).read("kind", NAME, travels=travels) == (b"payload" if travels else None)
        assert Notes(other).read("kind", NAME, travels=travels) == b"payload"


def test_without_a_cache_there_are_none() -> None:
    for notes in (Notes(None), Notes(open_cache(CacheSettings(None)))):
        notes.write("kind", NAME, b"payload")
        assert notes.read("kind", NAME) is None


def test_a_note_without_its_seal_is_none_and_is_counted(tmp_path: Path) -> None:
    with open_cache(CacheSettings(tmp_path, secret=b"one")) as cache:
        Notes(cache).write("kind", NAME, b"payload")
    with open_cache(CacheSettings(tmp_path, secret=b"another")) as cache:
        assert Notes(cache).read("kind", NAME) is None
        assert len(cache.journal.failed) == 1
