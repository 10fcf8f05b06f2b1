"""What was observed holds until one of the subjects changes, and only then."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relaybuild.build.evidence import ALL_NAMES, Subjects, changed_since, holds, observe

ENVIRON = {"A": "1", "B": "2"}


@pytest.fixture
def subjects(tmp_path: Path) -> Subjects:
    (tmp_path / "read").write_text("content")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "libfoo.so.1").touch()
    (tmp_path / "folder" / "libother.so").touch()
    (tmp_path / "link").symlink_to("read")
    return Subjects(
        files=frozenset((str(tmp_path / "read"), str(tmp_path / "absent"))),
        paths=frozenset((str(tmp_path / "link"), str(tmp_path / "asked"))),
        entries=frozenset(((str(tmp_path / "folder"), "foo"), (str(tmp_path / "later"), "foo"))),
        variables=frozenset(("A", "C")),
    )


def test_the_state_of_subjects(subjects: Subjects, tmp_path: Path) -> None:
    observed = observe(subjects, ENVIRON)
    assert observed["files"][str(tmp_path / "absent")] is None
    assert observed["paths"] == {
        str(tmp_path / "asked"): "nothing",
        str(tmp_path / "link"): f"file {tmp_path / 'read'}",
    }
    assert observed["entries"] == {
        str(tmp_path / "folder"): {"foo": [["libfoo.so.1", "file"]]},
        str(tmp_path / "later"): {"foo": []},
    }
    assert observed["variables"] == {"A": "1", "C": None}
    assert holds(json.loads(json.dumps(observed)), ENVIRON)


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: _append(folder / "read"),
        lambda folder: (folder / "read").unlink(),
        lambda folder: (folder / "absent").touch(),
        lambda folder: (folder / "asked").mkdir(),
        lambda folder: (folder / "folder" / "libfoo.so.1").chmod(0o755),
        lambda folder: os.replace(folder / "link", folder / "folder" / "libfoo.so.1"),
        lambda folder: os.replace(folder / "read", folder / "link"),
        lambda folder: (folder / "folder" / "FOO.h").touch(),
        lambda folder: (folder / "folder" / "libfoo.so.1").unlink(),
        lambda folder: (folder / "folder").rename(folder / "later"),
    ],
)
def test_a_change_of_a_file_is_seen(subjects: Subjects, tmp_path: Path, change: Callable[[Path], object]) -> None:
    observed = observe(subjects, ENVIRON)
    change(tmp_path)
    assert not holds(observed, ENVIRON)


def test_a_change_of_a_variable_is_seen(subjects: Subjects) -> None:
    observed = observe(subjects, ENVIRON)
    assert holds(observed, {**ENVIRON, "B": "3"})
    assert not holds(observed, {**ENVIRON, "A": "3"})
    assert not holds(observed, {**ENVIRON, "C": ""})


def test_what_is_no_subject_may_change(subjects: Subjects, tmp_path: Path) -> None:
    observed = observe(subjects, ENVIRON)
    (tmp_path / "folder" / "libbar.so").touch()
    (tmp_path / "folder" / "libother.so").unlink()
    os.utime(tmp_path / "read")
    assert holds(observed, ENVIRON)


@pytest.mark.parametrize("observed", [{}, {"files": 1}, {"files": {}, "paths": {}, "entries": [], "variables": {}}])
def test_what_was_never_observed_does_not_hold(observed: dict[str, object]) -> None:
    assert not holds(observed, ENVIRON)


def test_what_was_written_since_is_told(subjects: Subjects, tmp_path: Path) -> None:
    assert changed_since(subjects, 0)
    # The clock of a file system may lag behind by a tick.
    time.sleep(0.02)
    start = time.time_ns()
    assert not changed_since(subjects, start)
    (tmp_path / "folder" / "libbar.so").touch()
    assert not changed_since(subjects, start)
    time.sleep(0.02)
    arrived = tmp_path / "libfoo.so.2"
    arrived.touch()
    os.utime(arrived, (1e9, 1e9))
    arrived.rename(tmp_path / "folder" / "libfoo.so.2")
    assert changed_since(subjects, start)


def test_subjects_are_joined() -> None:
    one = Subjects(files=frozenset("a"), variables=frozenset("X"))
    two = Subjects(files=frozenset("b"), paths=frozenset("p"), entries=frozenset([("f", "t")]))
    assert one | two == Subjects(frozenset("ab"), frozenset("p"), frozenset([("f", "t")]), frozenset("X"))


def test_a_variable_that_is_set_later_is_seen_among_all_names() -> None:
    observed = observe(Subjects(variables=frozenset((ALL_NAMES,))), {"A": "1"})
    assert holds(observed, {"A": "2"})
    assert not holds(observed, {"A": "1", "B": ""})
