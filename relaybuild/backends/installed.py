"""What tells the code of backends that other packages install, without importing it; knows no backend."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest, Hasher
from relaybuild.entry_points import EntryPoint, entry_points, metadata_folders
from relaybuild.errors import UserError

GROUP = "relaybuild.backends"
"""The entry point group; `partition.backend` loads what is in it."""


class UnknownCode(Exception):
    """The code behind an entry point is not where its name says."""


def installed_backends(inputs: TreeInputs) -> dict[str, Digest]:
    """The digest of the code of each installed backend, by the name of its entry point.

    Where there are any, names and versions of all installed packages count, for one may use another. Raises
    UnknownCode, OSError.
    """
    try:
        points = entry_points(GROUP)
    except UserError as error:
        raise UnknownCode(str(error)) from None
    if not points:
        return {}
    packages = tuple(sorted({os.path.basename(folder) for folder in metadata_folders()}))
    return {
        point.name: Hasher("installed-backend.1")
        .field("value", point.value)
        .field("packages", packages)
        .field("code", _code(point, inputs))
        .digest()
        for point in points
    }


def package_folders() -> list[Path]:
    """The folders on Python's path into which packages were installed, and more may be."""
    return [Path(place) for place in dict.fromkeys(map(os.path.dirname, metadata_folders()))]


def _code(point: EntryPoint, inputs: TreeInputs) -> Digest:
    """The digest of the top-level package or module that an entry point's object is in."""
    head = point.module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise UnknownCode(f"the entry point '{point.value}' names '{head}', which is no package with files")
    if not spec.submodule_search_locations:
        return inputs.digest(Path(spec.origin))
    hasher = Hasher("package.1")
    for place in spec.submodule_search_locations:
        hasher.field("place", inputs.tree(Path(place), is_source)[0])
    return hasher.digest()


def is_source(name: str) -> bool:
    """Whether a file of a package is more than what Python made of another."""
    return not name.endswith(("__pycache__", ".pyc", ".pyo"))
