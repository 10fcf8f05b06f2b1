"""Where the headers of generated kernels are; knows nothing of what is in them."""

from __future__ import annotations

from pathlib import Path


def include_dir() -> Path:
    """The folder to pass to `-I` when a generated kernel is compiled."""
    return Path(__file__).parent / "include"
