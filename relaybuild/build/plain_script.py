"""Reads a CMake script that does nothing but set names to words, as CMake would; leaves any other script to CMake."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

_COMMENT = r"#(?!\[=*\[)[^\n]*"
_SET = r"[ \t]*[sS][eE][tT][ \t]*\([ \t]*(?P<name>[A-Za-z_]\w*)[ \t]+(?P<word>\w+)[ \t]*\)"
_LINE = re.compile(rf"(?:{_SET})?[ \t]*(?:{_COMMENT})?\r?", re.ASCII)


def plain_settings(script: Path, words: Collection[str]) -> dict[str, str] | None:
    """The names that a script sets, of two settings of one the last; `words` are the values, in upper case, that they
    may have. None where it does anything else, or cannot be read."""
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or (match["word"] and match["word"].upper() not in words):
            return None
        if match["name"]:
            found[match["name"]] = match["word"]
    return found
