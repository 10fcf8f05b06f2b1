"""What tells relaybuild's own code, and that of the packages its results rest upon, from another version."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

import relaybuild
from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest

_PACKAGE = Path(relaybuild.__file__).resolve().parent
# The command line prints what others make, and what CMake read is known by what it found.
_UNRELATED = ("cli", "cmake", "_share", "__pycache__")
# Python's own files, and the extension module that runs libraries.
_DERIVED = (".pyc", ".so", ".pyi", ".md")
_PACKAGES = {"numpy": "version.py", "onnx": "version.py"}


class StaleCode(Exception):
    """The code on disk is not the code that this process runs."""


def own_code(inputs: TreeInputs) -> dict[str, Digest]:
    """Digests by name: of relaybuild's code, and of the files that say which version of another package there is.

    Raises StaleCode where a file was changed after this process had begun to import relaybuild, OSError.
    """
    digest, state = inputs.tree(_PACKAGE, _counts)
    if state.changed_ns > relaybuild.IMPORTED_NS:
        raise StaleCode("relaybuild's code was changed while this process ran")
    found = {"relaybuild": digest}
    for name, file in _PACKAGES.items():
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise StaleCode(f"the package '{name}' was not found")
        found[name] = inputs.digest(Path(spec.origin).with_name(file))
    return found


def platform_facts() -> str:
    """The Python and the machine that compute weights, in a line."""
    return f"{sys.implementation.cache_tag} {sys.byteorder} {platform.machine()}"


def _counts(name: str) -> bool:
    return name.rpartition("/")[2] != "__pycache__" and name not in _UNRELATED and not name.endswith(_DERIVED)
