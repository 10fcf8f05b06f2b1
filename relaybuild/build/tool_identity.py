"""What a compiler is, apart from where it is: contents, what scripts run, what would be called; runs nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from relaybuild.build.tool_record import ToolRecords
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher

SHOW = "-###"
"""Has a driver print the commands that it would run."""


@dataclass(frozen=True)
class Identity:
    """What to hash, and why what the compiler makes cannot be looked up by that; empty where it can."""

    hasher: Hasher
    objection: str


def identity(
    domain: str,
    compiler: Sequence[str],
    version: str,
    programs: Mapping[str, str],
    shown: str,
    records: ToolRecords,
    environ: Mapping[str, str],
) -> Identity:
    """A compiler by its command without launchers, what it says of its version, its programs by role (paths, or words
    of the PATH), and what it prints with `SHOW`.

    A script around the compiler counts by what it runs. One that cannot be followed is asked what it would call, each
    time; one in place of another program cannot be asked.
    """
    # a version's text begins with the name under which the compiler was called
    hasher = Hasher(domain).field("version", version.partition(" ")[2])
    hasher.field("arguments", tuple(compiler[1:])).field("commands", tuple(shown_words(shown)))
    _, contents = records.followed(compiler[0])
    hasher.field("driver", contents)
    objection = ""
    for role, program in programs.items():
        path = which(program, path=environ.get("PATH"))
        is_followed, contents = records.followed(path) if path else (True, ())
        hasher.field(role, contents)
        if not is_followed:
            objection = objection or f"'{program}' is a script of which it is not known what it runs"
    return Identity(hasher, objection)


def shown_words(text: str) -> Iterator[str]:
    """The words of the commands that a driver prints with `SHOW`, as far as they are no paths.

    Where files lie does not count, and names of temporary files are others every time.
    """
    for line in text.splitlines():
        if line.startswith(" "):
            try:
                words = shlex.split(line)
            except ValueError:
                words = line.split()
            yield from (word.partition(os.sep)[0] for word in words)
