"""Which scripts CMake read, by its file API, and which environment variables they name; knows no project."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from relaybuild.build.evidence import ALL_NAMES, Subjects
from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Inputs:
    """The scripts that CMake read, as absolute paths: those of projects, and its own."""

    scripts: frozenset[str]
    own: frozenset[str]


def request_inputs(build: Path) -> None:
    """Ask, before a run, for the list that `inputs_of` reads after it."""
    query = build / ".cmake" / "api" / "v1" / "query"
    query.mkdir(parents=True)
    (query / "cmakeFiles-v1").touch()


def inputs_of(build: Path) -> Inputs | None:
    """The scripts that the last run in `build` read, without those that it made; None if CMake does not tell."""
    replies = list((build / ".cmake" / "api" / "v1" / "reply").glob("cmakeFiles-v1-*.json"))
    if len(replies) != 1:
        return None
    reply = json.loads(replies[0].read_text(encoding="utf-8"))
    source = reply["paths"]["source"]
    scripts: set[str] = set()
    own: set[str] = set()
    for entry in reply["inputs"]:
        path = os.path.normpath(os.path.join(source, entry["path"]))
        if not entry.get("isGenerated") and not _is_below(path, str(build)):
            (own if entry.get("isCMake") else scripts).add(path)
    return Inputs(frozenset(scripts), frozenset(own))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


_VARIABLE = re.compile(rb"\bENV\{([^}]*)\}")


def variables_of(inputs: Inputs, environ: Mapping[str, str]) -> Subjects:
    """The environment variables that scripts name, whether or not the line ran; all, where a name is made up."""
    names: set[str] = set()
    for path in inputs.scripts | inputs.own:
        try:
            found = {match.decode(errors="replace") for match in _VARIABLE.findall(Path(path).read_bytes())}
        except OSError:
            continue
        composed = {name for name in found if "$" in name}
        names |= found - composed
        if composed and path in inputs.scripts:
            names |= {ALL_NAMES, *environ}
    return Subjects(variables=frozenset(names))
