"""Reads the table of failures in docs/caching.md and the mutations of its rows; runs no test.

A mutation is a file `<name>.diff`: for each change the lines that go and those that come, wherever they stand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent

_ROW = re.compile(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_HEADING = "## What must not happen"


@dataclass(frozen=True)
class TestName:
    """A test by its file, a path below the checkout, and the beginning of its name."""

    path: str
    prefix: str

    __test__ = False

    def is_there(self, root: Path = ROOT) -> bool:
        text = (root / self.path).read_text(encoding="utf-8")
        return re.search(rf"^ *def {re.escape(self.prefix)}", text, re.MULTILINE) is not None


@dataclass(frozen=True)
class Row:
    """One failure: its name, what goes wrong, the tests that hold it (the first finds the mutation), what is taken out.

    A row without tests says there why the failure cannot be.
    """

    name: str
    failure: str
    tests: tuple[TestName, ...]
    taken_out: str


@dataclass(frozen=True)
class Change:
    """Lines of a file, and what stands there instead."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The file's text with the change; raises ValueError where the lines do not stand there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.path}: the lines to take out stand there {count} times, expected once:\n{self.old}"
            )
        return text.replace(self.old, self.new)


def rows() -> list[Row]:
    """The rows of the table."""
    page = (ROOT / "docs" / "caching.md").read_text(encoding="utf-8")
    return [Row(name, failure, tuple(_tests(cell)), out) for name, failure, cell, out in _ROW.findall(_section(page))]


def mutation(name: str) -> list[Change]:
    """The changes of a mutation, by the name of its row."""
    changes: list[Change] = []
    path, old, new = "", "", ""
    for line in [*(FOLDER / f"{name}.diff").read_text(encoding="utf-8").splitlines(keepends=True), "@@ end"]:
        if line.startswith(("--- ", "@@")) and old:
            changes.append(Change(path, old, new))
            old = new = ""
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").strip()
        elif line.startswith("-") and not line.startswith("--- "):
            old += line[1:]
        elif line.startswith("+"):
            new += line[1:]
    return changes


def _section(page: str) -> str:
    _, _, rest = page.partition(f"{_HEADING}\n")
    return rest.partition("\n## ")[0]


def _tests(cell: str) -> Iterator[TestName]:
    """The tests of a cell: `file: name`, of which further names follow."""
    path = ""
    for text in re.findall(r"`([^`]+)`", cell):
        file, colon, name = text.rpartition(": ")
        path = _path_of(file) if colon else path
        yield TestName(path, f"test_{name}")


def _path_of(file: str) -> str:
    """The one file of tests with that name, or that end of its path."""
    found = [path for path in _files() if path.endswith(f"/{file}.py")]
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} files of tests '{file}.py', expected one")
    return found[0]


@functools.cache
def _files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
