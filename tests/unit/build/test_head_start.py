"""Units that are compiled before the rest of a library is known: nothing differs but when it is done."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.head_start import HeadStart, head_start
from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.ninja import FinishedEdge
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.workspace import Workspace
from relaybuild.errors import InternalError, ToolError

from .caching import ADD, MAIN, MUL, Site, write_headers

NOTHING = {"object": 0, "link": 0}


@pytest.fixture
def site(tmp_path: Path, toolchain: Toolchain) -> Site:
    write_headers(tmp_path / "include")
    return Site(tmp_path, toolchain, tmp_path / "cache")


def early(site: Site, *units: Unit) -> LibrarySpec:
    return dataclasses.replace(site.spec(), units=units, weights=None)


def build_uncached(site: Site, *head: Unit, jobs: int | None = None) -> list[tuple[int, int]]:
    """Build without a cache, to `plain.so`; the reports of progress."""
    calls: list[tuple[int, int]] = []
    with head_start(early(site, *head), site.toolchain, site.folder / "head", jobs=jobs) as begun:
        report = build_library(
            site.spec(),
            site.toolchain,
            site.folder / "plain",
            site.library("plain"),
            jobs=jobs,
            on_progress=lambda finished, total: calls.append((finished, total)),
            head=begun,
        )
    assert (report.executed, report.cached) == ({"object": 3, "link": 1}, NOTHING)
    return calls


@pytest.mark.parametrize("jobs", [1, None])
def test_without_a_cache_the_same_library_comes_out(site: Site, jobs: int | None) -> None:
    build_uncached(site)
    expected = site.library("plain").read_bytes()
    assert build_uncached(site, ADD, MUL, jobs=jobs)[-1] == (4, 4)
    assert site.library("plain").read_bytes() == expected
    assert build_uncached(site, ADD, MUL, MAIN, jobs=jobs)[-1] == (4, 4)
    assert site.library("plain").read_bytes() == expected
    assert {path.name for path in site.folder.iterdir()} == {"include", "plain.so"}


@pytest.mark.parametrize("jobs", [1, None])
def test_with_a_cache_objects_are_looked_up_and_kept_once(site: Site, jobs: int | None) -> None:
    first = site.build(head=(ADD, MAIN), jobs=jobs)
    assert (first.executed, first.cached) == ({"object": 3, "link": 1}, NOTHING)
    assert site.executed() == ["library", "main.c", "rb_add.c", "rb_mul.c"]
    assert [event.name for event in site.journal.looked] == ["rb_add.c", "main.c", "rb_mul.c", "library"]
    assert site.build(name="second").executed == NOTHING
    assert site.build(name="third", head=(ADD, MAIN)).executed == NOTHING
    assert [event.reason for event in site.journal.looked] == [None] * 4
    assert site.library("third").read_bytes() == site.library().read_bytes()
    assert not (site.folder / "third-head").exists()


def test_what_is_there_is_not_begun(site: Site) -> None:
    site.build(site.spec(ADD, weights=None))
    with (
        open_cache(CacheSettings(site.cache)) as cache,
        head_start(early(site, ADD, MUL), site.toolchain, site.folder / "head", cache=cache) as begun,
    ):
        assert [unit.name for unit in begun.making] == ["rb_mul"]
    report = site.build(head=(ADD, MUL), name="next")
    assert (report.executed, report.cached) == ({"object": 2, "link": 1}, {"object": 1, "link": 0})


def test_recache_compiles_what_is_there(site: Site) -> None:
    site.build()
    report = site.build(head=(ADD, MUL), name="again", mode=Mode.RECACHE)
    assert report.executed == {"object": 3, "link": 1}


def test_what_another_process_makes_is_left_to_it(site: Site) -> None:
    with open_cache(CacheSettings(site.cache)) as cache:
        spec, folder = early(site, ADD, MUL), site.folder
        with (
            head_start(spec, site.toolchain, folder / "a", cache=cache) as begun,
            head_start(spec, site.toolchain, folder / "b", cache=cache) as late,
        ):
            assert len(begun.making) == 2
            assert list(late.making) == []
    # who began them has gone, so they are made here
    assert site.build(head=(ADD, MUL)).executed == {"object": 3, "link": 1}


def test_nobody_waits_for_one_who_waits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has begun objects does not wait for a build that may wait for these objects."""
    events: list[str] = []
    claim, finish = Cache.claim, HeadStart.finish

    @contextlib.contextmanager
    def busy_at_first(self: Cache, action: Action, timeout: float = 0.0) -> Iterator[bool]:
        events.append("claim")
        if events == ["claim"]:
            yield False
        else:
            with claim(self, action, timeout) as is_ours:
                yield is_ours

    def told(self: HeadStart, into: Workspace) -> tuple[FinishedEdge, ...]:
        events.append("finish")
        return finish(self, into)

    with (
        open_cache(CacheSettings(site.cache)) as cache,
        head_start(early(site, ADD, MUL), site.toolchain, site.folder / "head", cache=cache) as begun,
    ):
        monkeypatch.setattr(Cache, "claim", busy_at_first)
        monkeypatch.setattr(HeadStart, "finish", told)
        build_library(site.spec(), site.toolchain, site.folder / "work", site.library(), cache=cache, head=begun)
    assert events[:3] == ["claim", "finish", "claim"]


def test_a_failure_is_that_of_the_unit(site: Site) -> None:
    broken = dataclasses.replace(ADD, text="int rb_add(int a { return a; }\n")
    spec = site.spec(broken, MUL, MAIN)
    with pytest.raises(ToolError, match=r"the build step 'object src/rb_add\.c' failed"):
        site.build(spec, head=(broken,))
    assert {path.name for path in site.folder.iterdir()} == {"include", "cache"}


def test_compilers_end_with_the_block(site: Site) -> None:
    """A model that turns out to be wrong does not wait for what was begun."""
    slow = site.folder / "slow-cc"
    slow.write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    toolchain = dataclasses.replace(site.toolchain, command=(str(slow),))
    start = time.monotonic()
    with (
        contextlib.suppress(ZeroDivisionError),
        head_start(early(site, ADD, MUL), toolchain, site.folder / "head") as begun,
    ):
        assert begun.left == 2
        raise ZeroDivisionError
    assert time.monotonic() - start < 30
    assert not (site.folder / "head").exists()


def test_units_of_another_library_are_refused(site: Site) -> None:
    other = dataclasses.replace(ADD, text=ADD.text + "\n")
    with pytest.raises(InternalError, match="not the units that were begun"):
        site.build(head=(other,))
