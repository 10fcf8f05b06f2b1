"""Writes and reads which files an output was made from, in the syntax of make; does not know what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from relaybuild.build.files import write_if_changed
from relaybuild.errors import UserError

# A backslash stands for itself unless it precedes what it would make literal.
_LITERAL = r"(\\*)([ #])"
# Characters of a name; a line's end with a backslash before it is none.
_NAME = re.compile(r"(?:(?:\\\\)*\\[ #]|(?:\\\\)+(?=[\s#])|\\+(?![\s#\\])|[^\s\\]+)+")


def depfile_text(output: Path, inputs: Iterable[Path]) -> str:
    """The rule `OUTPUT: INPUTS`, as compilers write it with `-MF`: a line for each input, names escaped.

    Raises UserError for a name with a line's end, which make cannot have.
    """
    return " \\\n  ".join([f"{_name(output)}:", *map(_name, inputs)]) + "\n"


def write_depfile(path: Path, output: Path, inputs: Iterable[Path]) -> None:
    """Put that rule into a file, which is left alone if it holds it already. Raises UserError."""
    write_if_changed(path, depfile_text(output, inputs))


def read_depfile(text: str) -> tuple[str, ...]:
    """The inputs of the one rule in such a text, which compilers write, too; none where it is no rule."""
    words = [match[0] for match in _NAME.finditer(text)]
    colon = next((number for number, word in enumerate(words) if word.endswith(":")), len(words))
    return tuple(map(_plain, words[colon + 1 :]))


def _plain(word: str) -> str:
    """A name without what makes its characters literal."""
    if "\\" in word:
        word = re.sub(_LITERAL, lambda match: "\\" * (len(match[1]) // 2) + match[2], word)
    return word.replace("$$", "$")


def _name(path: Path) -> str:
    name = path.as_posix()
    if "\n" in name or "\r" in name:
        raise UserError(f"the file {name!r} has a line's end in its name, which no dependency file can have; rename it")
    return re.sub(_LITERAL, r"\1\1\\\2", name.replace("$", "$$"))
