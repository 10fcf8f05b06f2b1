"""Finds the files that ship beside the package: config.cmake and CMake modules; does not know what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relaybuild.errors import InternalError

_PACKAGE = Path(__file__).resolve().parents[1]


def share_dir() -> Path:
    """The folder with `config.cmake` and `cmake/`: the root of a checkout, or a folder inside the installed package."""
    # A checkout comes first: a build may have left an older copy inside the package.
    for folder in (_PACKAGE.parent, _PACKAGE / "_share"):
        if (folder / "config.cmake").is_file() and (folder / "cmake" / "modules" / "contrib").is_dir():
            return folder
    raise InternalError(f"the installation is incomplete: there is no '{_PACKAGE / '_share' / 'config.cmake'}'")


def contrib_modules() -> Mapping[str, Path]:
    """The CMake modules of `cmake/modules/contrib`, by name without suffix, sorted."""
    files = sorted((share_dir() / "cmake" / "modules" / "contrib").glob("*.cmake"))
    return {file.stem: file for file in files}
