"""What an outcome rested upon, and whether it still is so; does not know who read it, or what for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from relaybuild.dataclass import dataclass
from relaybuild.digest import digest_file

ALL_NAMES = ""
"""Among variables: the names of all that are set."""


@dataclass(frozen=True)
class Subjects:
    """What has to be looked at again.

    `files` are files whose content was read; `paths` are asked for existence, kind and where links lead; `entries` are
    pairs of a folder and a text, for the folder's entries with that text in their name, in upper or lower case, of
    which the same is asked, unless the text is empty; `variables` are names of environment variables, or `ALL_NAMES`.
    """

    files: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    entries: frozenset[tuple[str, str]] = frozenset()
    variables: frozenset[str] = frozenset()

    def __or__(self, other: Subjects) -> Subjects:
        return Subjects(
            self.files | other.files,
            self.paths | other.paths,
            self.entries | other.entries,
            self.variables | other.variables,
        )


def observe(subjects: Subjects, environ: Mapping[str, str]) -> dict[str, Any]:
    """The state of all subjects, as values for JSON; what cannot be read is as if it were not there."""
    entries = {
        folder: {
            text: [[name, _kind(os.path.join(folder, name))] for name in names] if text else names
            for text, names in _entries(folder, texts).items()
        }
        for folder, texts in _texts_by_folder(subjects).items()
    }
    return {
        "files": {path: _content(path) for path in sorted(subjects.files)},
        "paths": {path: _kind(path) for path in sorted(subjects.paths)},
        "entries": entries,
        "variables": {name: _variable(name, environ) for name in sorted(subjects.variables)},
    }


def holds(observed: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether what `observe` returned would be returned again; False for what it never returned."""
    try:
        entries = ((folder, text) for folder, texts in observed["entries"].items() for text in texts)
        subjects = Subjects(
            frozenset(observed["files"]),
            frozenset(observed["paths"]),
            frozenset(entries),
            frozenset(observed["variables"]),
        )
    except (AttributeError, KeyError, TypeError):
        return False
    return observe(subjects, environ) == observed


def changed_since(subjects: Subjects, time_ns: int) -> bool:
    """Whether a file or a named entry among the subjects was written, or came to its place, at or after a time
    (`time.time_ns`): perhaps it was read before."""
    texts = _texts_by_folder(subjects)
    seen = (
        os.path.join(folder, name)
        for folder, wanted in texts.items()
        for names in _entries(folder, (text for text in wanted if text)).values()
        for name in names
    )
    return any(_changed(path) >= time_ns for path in (*subjects.files, *subjects.paths, *seen))


def _changed(path: str) -> int:
    """The later of the times at which a file was written and at which its name or rights were changed; 0 if none."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    # What is written into a folder changes the folder's time, whoever it concerns.
    return 0 if stat.S_ISDIR(status.st_mode) else max(status.st_mtime_ns, status.st_ctime_ns)


def _texts_by_folder(subjects: Subjects) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for folder, text in sorted(subjects.entries):
        texts.setdefault(folder, []).append(text)
    return texts


def _entries(folder: str, texts: Iterable[str]) -> dict[str, list[str]]:
    """The names in a folder that have each text in them, sorted."""
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    # One search over all names at once is some ten times as fast as one in each: a folder of libraries has thousands.
    joined = "\0".join(names).lower()
    return {text: _with_text(names, text.lower()) if text.lower() in joined else [] for text in texts}


def _with_text(names: Iterable[str], text: str) -> list[str]:
    return sorted(name for name in names if text in name.lower())


def _content(path: str) -> str | None:
    try:
        return digest_file(path).hex
    except OSError:
        return None


def _variable(name: str, environ: Mapping[str, str]) -> str | None:
    return " ".join(sorted(environ)) if name == ALL_NAMES else environ.get(name)


def _kind(path: str) -> str:
    """What lies at a path, and where it leads."""
    if os.path.isdir(path):
        kind = "folder"
    elif os.path.exists(path):
        kind = "program" if os.access(path, os.X_OK) else "file"
    else:
        kind = "nothing"
    real = os.path.realpath(path)
    return kind if real == path else f"{kind} {real}"
