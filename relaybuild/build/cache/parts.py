"""Where a blob is cut into parts that others may share, and the list of them as a file; reads and writes no blob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from relaybuild.digest import Digest

SUFFIX = ".parts"
"""Ends the name of a list, which begins with that of the blob."""

MOST_BYTES = 8 << 20
"""A part is no larger: it is read as a whole."""

_LEAST_BYTES = 256 << 10
_MOST_PARTS = 128
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9]{1,20})\n")


def spans(size: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Where the parts of `size` bytes begin and end, which may be cut at `cuts` (ascending).

    What comes before the first cut is a part of its own. Of the rest neighbours are joined that are small, and what is
    too large to be read as a whole is divided.
    """
    least = max(_LEAST_BYTES, size // _MOST_PARTS)
    begin, found = 0, []
    for cut in cuts:
        if 0 < cut < size and (begin == 0 or cut - begin >= least):
            found.append((begin, cut))
            begin = cut
    found.append((begin, size))
    return [piece for span in found for piece in _pieces(*span)]


def _pieces(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for start in range(begin, end, MOST_BYTES):
        yield start, min(start + MOST_BYTES, end)


def encode(parts: Sequence[Digest]) -> bytes:
    """The list of parts, in order."""
    return "".join(f"{part.hex} {part.size}\n" for part in parts).encode()


def decode(data: bytes) -> tuple[Digest, ...] | None:
    """The parts of a list; None for bytes that are none."""
    text = data.decode("ascii", "replace")
    if not text or _LINE.sub("", text):
        return None
    return tuple(Digest(match[1], int(match[2])) for match in _LINE.finditer(text))
