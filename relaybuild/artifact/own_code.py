"""What tells relaybuild's own code, and that of the packages its results rest upon, from another version."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

import relaybuild
from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest, digest_bytes

_PACKAGE = Path(relaybuild.__file__).resolve().parent
# The command line prints what others make, and what CMake read is known by what it found.
_UNRELATED = frozenset({"cli", "cmake", "_share", "__pycache__"})
# Python's own files, and the extension module that runs libraries.
_DERIVED = (".pyc", ".so", ".pyi", ".md", "/__pycache__")
_PACKAGES = {"numpy": "version.py", "onnx": "version.py"}
_taken: dict[str, tuple[bytes, Digest]] = {}


class StaleCode(Exception):
    """The code on disk is not the code that this process runs."""


def own_code(inputs: TreeInputs) -> dict[str, Digest]:
    """Digests by name: of relaybuild's code, and of the files that say which version of another package there is.

    Raises StaleCode where a file was changed after this process had begun to import relaybuild, OSError.
    """
    digest, state = inputs.tree(_PACKAGE, _counts, _read)
    if state.changed_ns > relaybuild.IMPORTED_NS:
        raise StaleCode("relaybuild's code was changed while this process ran")
    found = {"relaybuild": digest}
    for name, file in _PACKAGES.items():
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise StaleCode(f"the package '{name}' was not found")
        found[name] = inputs.digest(Path(spec.origin).with_name(file))
    return found


def take_source(path: str) -> tuple[bytes, Digest]:
    """A file of the code and its digest, once as `own_code` has read it, else as it is now; raises OSError."""
    return _taken.pop(path, None) or _looked_at(path)


def _read(path: str) -> Digest:
    _taken[path] = _looked_at(path)
    return _taken[path][1]


def _looked_at(path: str) -> tuple[bytes, Digest]:
    with open(path, "rb", buffering=0) as file:
        data = file.readall()
    return data, digest_bytes(data)


def platform_facts() -> str:
    """The Python and the machine that compute weights, in a line."""
    return f"{sys.implementation.cache_tag} {sys.byteorder} {platform.machine()}"


def _counts(name: str) -> bool:
    return name not in _UNRELATED and not name.endswith(_DERIVED)
