"""Says where relaybuild keeps what it need not do twice; knows nothing of what is kept there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "RELAYBUILD_CACHE_DIR"
"""The environment variable that names the folder."""


def cache_folder(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path | None:
    """The folder of this user's caches, which need not exist or be writable: `$RELAYBUILD_CACHE_DIR`, else `relaybuild`
    in the platform's cache folder; None where the user has no home.

    `environ` is the environment to read (default: ours), `platform` a value of `sys.platform`.
    """
    source = os.environ if environ is None else environ
    if chosen := source.get(VARIABLE):
        return Path(os.path.abspath(chosen))
    parent = _platform_folder(source, platform)
    return parent / "relaybuild" if parent is not None else None


def _platform_folder(environ: Mapping[str, str], platform: str) -> Path | None:
    if platform == "win32":
        return _absolute(environ.get("LOCALAPPDATA"))
    home = _absolute(environ.get("HOME"))
    if platform == "darwin":
        return home / "Library" / "Caches" if home is not None else None
    # The XDG base directory specification has relative paths ignored.
    if (folder := _absolute(environ.get("XDG_CACHE_HOME"))) is not None:
        return folder
    return home / ".cache" if home is not None else None


def _absolute(text: str | None) -> Path | None:
    return Path(text) if text and os.path.isabs(text) else None
