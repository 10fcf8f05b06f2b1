"""Finds programs on a path; does not know what they are."""

from __future__ import annotations

import os


def which(word: str, path: str | None = None) -> str | None:
    """The file that a shell would run for a word: the word itself where it has a slash, else the first of that name in
    the folders of `path` (default: the variable PATH, else the system's); None if there is none.

    It is what `shutil.which` is on POSIX; to import that module takes as long as fifty searches.
    """
    if os.path.dirname(word):
        return word if _is_program(word) else None
    if path is None:
        path = os.environ.get("PATH", os.defpath)
    candidates = (os.path.join(folder, word) for folder in dict.fromkeys(path.split(os.pathsep)) if path)
    return next(filter(_is_program, candidates), None)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
