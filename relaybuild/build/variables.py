"""Names the environment variables that change what a compiler or linker makes; does not know who sets them.

Every other variable is neutral: it may say where tools are found, where they keep temporary files or in which language
they speak, but equal tools make equal files. Those that redirect outputs never reach a tool (`process`).
"""

from __future__ import annotations

from collections.abc import Mapping

INVALIDATING = (
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "MACOSX_DEPLOYMENT_TARGET",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
)


def invalidating(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change outputs, by name."""
    return {name: environ[name] for name in INVALIDATING if name in environ}
