"""A change after a moment is never missed, whatever the ticks of the file system's clock."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from relaybuild.build.moment import Moment


def wait_for_tick(folder: Path) -> None:
    """Until files get a later time than now."""
    first = Moment.now(folder)
    end = time.monotonic() + 5
    while Moment.now(folder) == first:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_moment_leaves_no_file(tmp_path: Path) -> None:
    Moment.now(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_was_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    wait_for_tick(tmp_path)
    assert not Moment.now(tmp_path).is_before_change_of(path)


@pytest.mark.parametrize("how", ["written", "dated back", "replaced by an old file", "removed"])
def test_a_change_is_seen(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "x", tmp_path / "y"
    path.write_text("1", encoding="utf-8")
    other.write_text("2", encoding="utf-8")
    os.utime(other, (1, 1))
    wait_for_tick(tmp_path)
    moment = Moment.now(tmp_path)
    if how == "removed":
        path.unlink()
    elif how == "replaced by an old file":
        shutil.copy2(other, path)
    else:
        path.write_text("2", encoding="utf-8")
        if how == "dated back":
            os.utime(path, (1, 1))
    assert moment.is_before_change_of(path)


def test_a_clock_of_whole_seconds_may_be_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.touch()
    second = 1_000_000_000

    def times(modified: int, changed: int) -> None:
        state = type("State", (), {"st_mtime_ns": modified, "st_ctime_ns": changed})
        monkeypatch.setattr("relaybuild.build.moment.os.stat", lambda _path: state)

    moment = Moment(100 * second + 5)
    times(98 * second + 1, 98 * second + 1)
    assert not moment.is_before_change_of(path)
    times(99 * second, 98 * second + 1)
    assert moment.is_before_change_of(path)
    times(98 * second, 97 * second)
    assert not moment.is_before_change_of(path)
