"""Which flags of a compiler stand in the way of a key: what they read or make is not known; knows no compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNKEYED_FLAGS = re.compile(
    r"""
    (?P<file> @ | -{1,2}specs\b | -fplugin | -fprofile- | -fauto-profile | -fsanitize-\w*list= | -include-pch | -fmodule
      | -B | -Xclang | -Xassembler | -Xpreprocessor | -Wp, | -load\b | -fuse-ld | --config | -wrapper )
    | (?P<output> --coverage | -coverage | -ftest-coverage | -save-temps | -gsplit-dwarf | -fdump- | -dump | -M
      | -fcallgraph-info | -fstack-usage | -frecord- | -o )
    | (?P<machine> -m(?:arch|tune|cpu)=native\b )
    | (?P<random> -flto )
    """,
    re.VERBOSE,
)
_OBJECTIONS = {
    "file": "may read files that are not known",
    "output": "makes other files than the object",
    "machine": "depends on this machine",
    "random": "makes other bytes every time",
}
_NAMING_FILES = re.compile(r"-include\b | -imacros\b | -L | -T | -Wl, | -Xlinker\b | -l", re.VERBOSE)


def objection_to_flags(flags: Sequence[str]) -> str:
    """Why what is made with these flags cannot be looked up by them; empty if it can."""
    for flag in flags:
        if match := _UNKEYED_FLAGS.match(flag):
            return f"'{flag}' {_OBJECTIONS[match.lastgroup or 'file']}"
    return ""


def objection_to_command(flags: Sequence[str]) -> str:
    """The same of flags that are a part of a compiler's own command, for a key that is known before anything has been
    compiled: nobody has told yet which files they have it read."""
    found = next((flag for flag in flags if _NAMING_FILES.match(flag)), "")
    return objection_to_flags(flags) or (f"'{found}' {_OBJECTIONS['file']}" if found else "")
