"""Reads a CMake script that does nothing but set names to words, as CMake would; leaves any other script to CMake."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def plain_settings(script: Path, words: Collection[str]) -> dict[str, str] | None:
    """The names that a script sets, of two settings of one the last; `words` are the values, in upper case, that they
    may have. None where it does anything else, or cannot be read."""
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    found: dict[str, str] = {}
    for line in text.split("\n"):
        code, _, comment = line.partition("#")
        parts = _parts(code)
        # a comment in brackets may go on in the next line
        is_bracket = comment.startswith("[") and comment[1:].lstrip("=").startswith("[")
        if is_bracket or (parts and not _is_setting(parts, words)):
            return None
        if parts:
            found[parts[2]] = parts[3]
    return found


def _parts(code: str) -> list[str]:
    """The words and parentheses of a line; other characters than spaces and tabs separate nothing."""
    spaced = code.rstrip("\r").replace("\t", " ").replace("(", " ( ").replace(")", " ) ")
    return [part for part in spaced.split(" ") if part]


def _is_setting(parts: list[str], words: Collection[str]) -> bool:
    if len(parts) != 5:
        return False
    command, begin, name, word, end = parts
    is_name = name.isascii() and name.isidentifier()
    return command.lower() == "set" and (begin, end) == ("(", ")") and is_name and word.upper() in words
