"""What tells the code of backends that other packages install, without importing it; knows no backend.

The entry points are read from the packages' folders directly: `importlib.metadata` would cost a fully cached run more
than all the rest of it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest, Hasher

GROUP = "relaybuild.backends"
"""The entry point group; `partition.backend` loads what is in it."""

_METADATA = (".dist-info", ".egg-info")


class UnknownCode(Exception):
    """The code behind an entry point is not where its name says."""


def installed_backends(inputs: TreeInputs) -> dict[str, Digest]:
    """The digest of the code of each installed backend, by the name of its entry point.

    Where there are any, names and versions of all installed packages count, for one may use another. Raises
    UnknownCode, OSError.
    """
    folders = list(_metadata_folders())
    points = [point for folder in folders for point in _points(folder)]
    if not points:
        return {}
    packages = tuple(sorted({os.path.basename(folder) for folder in folders}))
    return {
        name: Hasher("installed-backend.1")
        .field("value", value)
        .field("packages", packages)
        .field("code", _code(value, inputs))
        .digest()
        for name, value in points
    }


def package_folders() -> list[Path]:
    """The folders on Python's path into which packages were installed, and more may be."""
    return [Path(place) for place in dict.fromkeys(map(os.path.dirname, _metadata_folders()))]


def _metadata_folders() -> Iterator[str]:
    for place in dict.fromkeys(sys.path):
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        yield from (os.path.join(place, name) for name in names if name.endswith(_METADATA))


def _points(folder: str) -> list[tuple[str, str]]:
    """The entry points of the group that a package declares, with their values."""
    try:
        with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return []
    if GROUP not in text:
        return []
    import configparser

    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UnknownCode(f"'{folder}' has entry points that cannot be read: {error}") from None
    return parser.items(GROUP) if parser.has_section(GROUP) else []


def _code(value: str, inputs: TreeInputs) -> Digest:
    """The digest of the top-level package or module that an entry point's value names."""
    head = value.partition(":")[0].partition(".")[0].strip()
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise UnknownCode(f"the entry point '{value}' names '{head}', which is no package with files")
    if not spec.submodule_search_locations:
        return inputs.digest(Path(spec.origin))
    hasher = Hasher("package.1")
    for place in spec.submodule_search_locations:
        hasher.field("place", inputs.tree(Path(place), is_source)[0])
    return hasher.digest()


def is_source(name: str) -> bool:
    """Whether a file of a package is more than what Python made of another."""
    return not name.endswith(("__pycache__", ".pyc", ".pyo"))
