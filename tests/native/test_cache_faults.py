"""Whole compilations with a cache that was damaged, poisoned, filled, locked away or edited under them.

Each time the library is the one that a compilation without a cache makes, what was wrong is told, and the next
compilation finds everything, or is refused what it must not have.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from common_cache import check_idle, opened
from runners.command import MODEL, Runner, has_executed_nothing

from relaybuild.build.cache import upkeep
from relaybuild.build.cache.folder import open_folder
from relaybuild.build.cache.runs import read_runs
from relaybuild.build.toolchain import LAUNCHER_VARIABLE

pytestmark = pytest.mark.usefixtures("own_cache")

NOBODY = 65534
OTHER = MODEL.replace("1f", "2f")


@pytest.fixture
def run(package: Path, tmp_path: Path) -> Runner:
    (tmp_path / "model.relay").write_text(MODEL)
    return Runner(package, tmp_path)


@pytest.fixture(scope="module")
def shared(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """`MODEL`, compiled into a shared cache. Tests go on with copies: this stays as it is."""
    runner = Runner(package, tmp_path_factory.mktemp("shared"))
    (runner.folder / "model.relay").write_text(MODEL)
    runner.done("--shared")
    return runner


def last_run(run: Runner) -> dict[str, Any]:
    """What the last compilation has written down."""
    return read_runs(open_folder(run.folder / run.cache, is_shared=True))[-1]


def check_whole(run: Runner) -> None:
    """Fail where the cache has a damaged entry, or an incomplete file."""
    with opened(run) as cache:
        assert cache.folder is not None
        check_idle(cache.folder)
        assert upkeep.verify(cache, 1.0).damaged == ()
        assert [path for path in cache.folder.tmp.iterdir() if path.is_file()] == []


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def empty(data: bytes) -> bytes:
    return b""


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {"cut": cut, "flipped": flip, "emptied": empty, "deleted": None}


def damage_files(folder: Path, change: Callable[[bytes], bytes] | None) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.unlink()
        if change is not None:
            path.write_bytes(change(data))


def damage_database(folder: Path, change: Callable[[bytes], bytes] | None) -> None:
    """Damage all values; the first eight bytes say when they were last used, which is nobody's proof."""
    connection = sqlite3.connect(folder / "cache.db")
    with connection:
        rows = connection.execute("SELECT rowid, value FROM Cache").fetchall()
        assert rows
        for row, value in rows:
            if change is None:
                connection.execute("DELETE FROM Cache WHERE rowid = ?", (row,))
            else:
                changed = value[:8] + change(value[8:])
                connection.execute("UPDATE Cache SET value = ? WHERE rowid = ?", (changed, row))
    connection.close()


PLACES: dict[str, tuple[str, bool, Callable[[Path, Callable[[bytes], bytes] | None], None]]] = {
    "blobs": ("cas", False, damage_files),
    "records in a database": ("index", False, damage_database),
    "records in files": ("ac", True, damage_files),
}


# of another length, of the same, and none
TRIED_FIRST = {
    ("blobs", "cut"),
    ("blobs", "flipped"),
    ("blobs", "deleted"),
    ("records in a database", "cut"),
    ("records in a database", "deleted"),
    ("records in files", "cut"),
}


@pytest.mark.parametrize(
    ("what", "how"),
    [
        pytest.param(what, how, marks=() if (what, how) in TRIED_FIRST else pytest.mark.slow)
        for what in PLACES
        for how in DAMAGES
    ],
)
def test_what_is_damaged_at_rest_is_made_again(
    request: pytest.FixtureRequest, run: Runner, what: str, how: str
) -> None:
    place, is_shared, damage = PLACES[what]
    options = ["--shared"] if is_shared else []
    source: Runner = request.getfixturevalue("shared" if is_shared else "filled")
    run.beginning_with(source.folder / "cache")
    damage(run.folder / "cache" / "v1" / place, DAMAGES[how])
    summary = run.done(*options)
    assert run.library() == source.library()
    assert not has_executed_nothing(summary)
    told = last_run(run)
    reasons = {miss["reason"] for miss in told["misses"]}
    if how == "deleted":
        assert reasons & {"evicted", "never-seen"}
        assert "integrity" not in reasons
    else:
        assert "integrity" in reasons
        assert what != "blobs" or told["errors"]["damaged"] > 0
    assert has_executed_nothing(run.done(*options, output="again/model.so"))
    assert run.library("again/model.so") == source.library()


class Exploit:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


POISONS = {
    "pickles": "UPDATE Cache SET mode = 4, value = :pickle",
    "pickles in files": "UPDATE Cache SET mode = 4, value = NULL, filename = :pickled",
    "files outside": "UPDATE Cache SET mode = 2, value = NULL, filename = :precious",
    "keys that are pickles": "UPDATE Cache SET raw = 0, key = CAST(:pickle || rowid AS BLOB)",
    "another table": "CREATE TABLE evil (a)",
    "a trigger": "CREATE TRIGGER evil AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
    "a setting": "INSERT INTO Settings VALUES ('_disk', 'x')",
}


@pytest.mark.parametrize(
    "poison",
    [pytest.param(name, marks=() if name in ("pickles", "a trigger") else pytest.mark.slow) for name in POISONS],
)
def test_a_poisoned_database_runs_nothing_and_reaches_nothing_outside(filled: Runner, run: Runner, poison: str) -> None:
    run.beginning_with(filled.folder / "cache")
    made, precious, pickled = run.folder / "made", run.folder / "precious", run.folder / "pickled"
    precious.write_bytes(b"precious" * 10)
    pickled.write_bytes(pickle.dumps(Exploit(made)))
    values = {"pickle": pickled.read_bytes(), "precious": str(precious), "pickled": str(pickled)}
    connection = sqlite3.connect(run.folder / "cache" / "v1" / "index" / "cache.db")
    with connection:
        used = {name: value for name, value in values.items() if f":{name}" in POISONS[poison]}
        connection.execute(POISONS[poison], used)
    connection.close()
    summary = run.done()
    assert run.library() == filled.library()
    assert not has_executed_nothing(summary)
    if poison != "keys that are pickles":
        assert last_run(run)["errors"]["poisoned"] > 0
    assert has_executed_nothing(run.done(output="again/model.so"))
    for command in ("stats", "gc", "verify"):
        assert cache_command(run, command).returncode == 0
    assert not made.exists()
    assert precious.read_bytes() == b"precious" * 10
    assert pickled.exists()


def cache_command(run: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    """`relaybuild cache` on a runner's cache."""
    return run(code=("-c", _CACHE_COMMAND, json.dumps(words)))


_CACHE_COMMAND = """
import json, sys
from relaybuild.cli import main
words = json.loads(sys.argv[1])
folder = sys.argv[sys.argv.index("--cache-dir") + 1]
sys.exit(main(["cache", "--cache-dir", folder, *words], prog_name="relaybuild"))
"""


def mounted(folder: Path, *arguments: str | Path) -> Iterator[Path]:
    """A folder that something is mounted on, for a test; skips where that cannot be done."""
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        done = subprocess.run(["mount", *arguments, folder], capture_output=True, check=False, timeout=60)
    except OSError:
        pytest.skip("there is no 'mount'")
    if done.returncode != 0:
        pytest.skip("mounting a file system needs rights that this user does not have")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True, timeout=60)


@pytest.mark.parametrize("size", [pytest.param("100k", marks=pytest.mark.slow), "300k"])
def test_a_full_disk_keeps_whole_entries_or_none(filled: Runner, run: Runner, size: str) -> None:
    expected = filled.library()
    for folder in mounted(run.folder / "cache", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs"):
        for number in range(2):
            run.done(output=f"{number}/model.so")
            assert run.library(f"{number}/model.so") == expected
            check_whole(run)
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True, timeout=60)
        run.done()
        assert has_executed_nothing(run.done())
        check_whole(run)


def test_a_read_only_cache_serves_and_stays_as_it_is(filled: Runner, run: Runner) -> None:
    shutil.copytree(filled.folder / "cache", run.folder / "original")
    before = {path: path.stat().st_mtime_ns for path in (run.folder / "original").rglob("*")}
    for view in mounted(run.folder / "cache", "--bind", run.folder / "original"):
        subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True, timeout=60)
        assert has_executed_nothing(run.done())
        assert run.library() == filled.library()
        (run.folder / "model.relay").write_text(OTHER)
        summary = run.done()
        assert summary["executed"]["link"] == 1
        assert summary["cached"]["object"] > 0
    assert {path: path.stat().st_mtime_ns for path in (run.folder / "original").rglob("*")} == before


def test_odd_characters_in_every_path(filled: Runner, runtime_cache: Path, package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a 'folder' with “ünï çödé” & $HOME"
    folder.mkdir()
    (folder / "model.relay").write_text(MODEL)
    odd = Runner(package, folder, cache="the cache, naïve").beginning_with(runtime_cache)
    odd.done(output="öut put/model.so")
    assert odd.library("öut put/model.so") == filled.library()
    assert has_executed_nothing(odd.done(output="again/model.so"))
    assert cache_command(odd, "verify").returncode == 0


def give_to_nobody(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root may give a folder away")
    os.chown(path, NOBODY, NOBODY)


PERMISSIONS: dict[str, tuple[Callable[[Path], None], str]] = {
    "of somebody else": (give_to_nobody, f"belongs to user {NOBODY}"),
    "written by all": (lambda path: path.chmod(0o777), "can be written by others (mode 777)"),
    "written by a group": (lambda path: path.chmod(0o770), "can be written by others (mode 770)"),
}


@pytest.mark.parametrize(
    "who", ["of somebody else", "written by all", pytest.param("written by a group", marks=pytest.mark.slow)]
)
def test_a_folder_that_others_can_write_is_refused_unless_it_is_shared(shared: Runner, run: Runner, who: str) -> None:
    change, message = PERMISSIONS[who]
    change(run.beginning_with(shared.folder / "cache").folder / "cache")
    (run.folder / "model.relay").write_text(OTHER)
    for result in (run(), cache_command(run, "stats")):
        assert result.returncode == 1
        assert message in " ".join(result.stderr.split())
        assert "--shared" in result.stderr
    assert not (run.folder / "out/model.so").exists()
    assert run.done("--shared")["executed"]["link"] == 1
    assert has_executed_nothing(run.done("--shared"))


EDITING = """
import shutil, sys
from relaybuild import stages
make = stages.make
def edited(*given):
    shutil.copy("other.relay", "model.relay")
    return make(*given)
stages.make = edited
from relaybuild.cli import main
main(sys.argv[1:], prog_name="relaybuild")
"""


@pytest.mark.parametrize("when", ["before it is read", "while it is compiled"])
def test_a_model_that_is_edited_during_its_compilation_is_not_stored(
    filled: Runner, runtime_cache: Path, run: Runner, when: str
) -> None:
    run.beginning_with(runtime_cache)
    (run.folder / "other.relay").write_text(OTHER)
    if when == "before it is read":
        run.done(code=("-c", EDITING))
    else:
        launcher = run.folder / "launcher"
        edit = f"cp '{run.folder}/other.relay' '{run.folder}/model.relay'"
        launcher.write_text(f'#!/bin/sh\ncase "$*" in *src/*) {edit};; esac\nexec "$@"\n')
        launcher.chmod(0o755)
        run.done(environ={LAUNCHER_VARIABLE: f"'{launcher}'"})
    assert (run.folder / "model.relay").read_text() == OTHER
    assert last_run(run)["storing"]["racy-input"] == 1
    (run.folder / "model.relay").write_text(MODEL)
    run.done()
    assert last_run(run)["executed"]["artifact"] == 1
    assert run.library() == filled.library()
    (run.folder / "model.relay").write_text(OTHER)
    run.done()
    assert run.library() != filled.library()
