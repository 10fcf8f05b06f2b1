"""Finds cmake, and says what it is asked and what it is told of this Python's environment; does not run it."""

from __future__ import annotations

import importlib.util
import os
import site
import struct
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError


@dataclass(frozen=True)
class DetectRequest:
    """What is to be evaluated: the user's script, if there is one; every flag with the CMake module behind it, if there
    is one; names that the command line sets, with their values."""

    config: Path | None
    modules: Mapping[str, Path | None]
    given: Mapping[str, str]


def find_cmakes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Programs that may be cmake, best first: on the PATH, of the PyPI package. Raises UserError if there is none."""
    packaged = _packaged_cmake()
    on_path = which("cmake", path=environ.get("PATH"))
    # The package's script of that name starts a Python before it starts the program.
    if on_path is not None and packaged is not None and Path(on_path).parent == Path(sys.executable).parent:
        on_path = None
    found = tuple(dict.fromkeys(path for path in (on_path, packaged) if path is not None))
    if not found:
        raise UserError(
            "cmake was not found, neither on the PATH nor as a Python package, but backends have to be configured; "
            "run 'pip install cmake'"
        )
    return found


def _packaged_cmake() -> str | None:
    spec = importlib.util.find_spec("cmake")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / "bin" / "cmake"
        if os.access(path, os.X_OK):
            return str(path)
    return None


def python_environment() -> Mapping[str, tuple[str, ...]]:
    """What CMake is told of this Python's environment: folders of packages, and prefixes that these install into."""
    sites = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    prefixes = [sysconfig.get_path("data")]
    if site.ENABLE_USER_SITE and site.USER_SITE in sites and site.USER_BASE:
        prefixes.append(site.USER_BASE)
    return {
        "RELAYBUILD_PYTHON_SITES": tuple(sites),
        "RELAYBUILD_PYTHON_PREFIXES": tuple(prefixes),
        "CMAKE_LIBRARY_ARCHITECTURE": (sysconfig.get_config_var("MULTIARCH") or "",),
        "CMAKE_SIZEOF_VOID_P": (str(struct.calcsize("P")),),
    }
