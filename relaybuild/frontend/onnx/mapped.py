"""The bytes of a model's file and of those beside it; interprets none of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path


def map_file(path: Path) -> memoryview:
    """The bytes of a file, mapped and read-only; raises OSError."""
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def slices_beside(path: Path) -> Callable[[str, int, int | None], bytes]:
    """What reads a part of a file by its name relative to a model's folder: from an offset so many bytes, or all.

    It raises OSError, and ValueError for a file that lies elsewhere.
    """
    folder = path.parent.resolve()

    def read(location: str, offset: int, length: int | None) -> bytes:
        place = (folder / location).resolve()
        if not place.is_relative_to(folder) or offset < 0:
            raise ValueError(f"'{location}' lies outside the model's folder")
        with open(place, "rb") as file:
            file.seek(offset)
            return file.read() if length is None else file.read(max(0, length))

    return read
