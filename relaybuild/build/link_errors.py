"""Tells from a linker's output that units collide; knows the words of linkers, but not what the units are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relaybuild.errors import UserError

# GNU ld and gold quote the symbol; lld writes it behind a colon, and mold behind the two objects
_COLLISION = re.compile(r"multiple definition of [`'](?P<gnu>[^'\n]+)'|duplicate symbol: (?P<llvm>[^\n]+)")
_OBJECT = re.compile(r"(?:^|[\s/])(?P<unit>[\w.+-]+)\.o\b", re.M)
_MAX_NAMES = 8


def collision(output: str) -> UserError | None:
    """The error for a link that failed since units define the same symbol; None where it failed for another reason."""
    found = [match["gnu"] or match["llvm"].rsplit(": ", 1)[-1] for match in _COLLISION.finditer(output)]
    if not found:
        return None
    units = sorted(match["unit"] for match in _OBJECT.finditer(output))
    return UserError(
        f"more than one unit of the library defines {_listed(found)}, found in {_listed(units)}: what units do not "
        "share must be static, or carry the name of the region"
    )


def _listed(names: Iterable[str]) -> str:
    """The names in quotes, each once; only the first of many."""
    quoted = [f"'{name}'" for name in dict.fromkeys(names)]
    return ", ".join(quoted[:_MAX_NAMES]) + (
        f" and {len(quoted) - _MAX_NAMES} more" if len(quoted) > _MAX_NAMES else ""
    )
