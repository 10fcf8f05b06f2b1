"""Compiles a source of C or C++ once a session for all tests that want the same object; knows no source by name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

folder = Path()
"""Where the objects are, for all processes of the session; `conftest.py` says it."""


def compiled_once(compiler: Sequence[str | Path], source: Path) -> Path:
    """The object that a compiler, called with its flags, makes of a source; a failure shows what it said.

    What a source includes is taken to stay as it is for as long as the session runs.
    """
    words = [*map(str, compiler), str(source)]
    key = hashlib.sha256("\0".join([*words, source.read_text(encoding="utf-8")]).encode()).hexdigest()[:32]
    path = folder / f"{source.stem}-{key}.o"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_suffix(".part")
            done = subprocess.run([*words, "-c", "-o", unfinished], capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{words}\n{done.stderr}"
            os.replace(unfinished, path)
    return path
