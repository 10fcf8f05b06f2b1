"""What diskcache is given to store values with: bytes inside of rows; never unpickles, opens or removes anything.

Imported only where something is written.
"""

from __future__ import annotations

from typing import Any

import diskcache
from diskcache.core import MODE_RAW, UNKNOWN

from relaybuild.build.cache.index import PoisonedEntry


class InlineDisk(diskcache.Disk):  # type: ignore[misc]
    """Refuses every key and value that is not bytes, and every row that it has not written."""

    def put(self, key: Any) -> tuple[Any, bool]:
        if not isinstance(key, bytes):
            raise TypeError(f"a key of type '{type(key).__name__}', expected bytes")
        return memoryview(key), True

    def get(self, key: Any, raw: Any) -> bytes:
        if not raw or not isinstance(key, (bytes, memoryview)):
            raise PoisonedEntry("a row whose key is not bytes")
        return bytes(key)

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> tuple[int, int, None, memoryview]:
        if read or not isinstance(value, bytes):
            raise TypeError(f"a value of type '{type(value).__name__}', expected bytes")
        return 0, MODE_RAW, None, memoryview(value)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> bytes:
        if mode != MODE_RAW or filename is not None or read or not isinstance(value, (bytes, memoryview)):
            raise PoisonedEntry(f"a row of mode {mode!r} that names the file {filename!r}")
        return bytes(value)

    def filename(self, key: Any = UNKNOWN, value: Any = UNKNOWN) -> tuple[str, str]:
        raise PoisonedEntry("a value outside of its row")

    def remove(self, file_path: Any) -> None:
        """Files are never this index's; a row that names one is refused where it is read."""
