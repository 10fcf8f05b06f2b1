"""Where the shipped C headers and sources are; knows nothing of what is in them."""

from __future__ import annotations

from pathlib import Path


def include_dir() -> Path:
    """The folder to pass to `-I`; `relaybuild/model.h` and its neighbours are in it."""
    return Path(__file__).parent / "include"


def source_dir() -> Path:
    """The folder of `runtime.c`, which is compiled into every model library."""
    return Path(__file__).parent / "src"
