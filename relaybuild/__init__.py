"""The public names of relaybuild, each imported when it is first used; what registered functions are of its own."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from relaybuild.registry import get_global_func, register_deferred, register_func

if TYPE_CHECKING:
    from relaybuild import ir, relay, runtime, target
    from relaybuild.driver import Artifact, compile
    from relaybuild.ir.interpreter import interpret
    from relaybuild.ir.module import IRModule
    from relaybuild.ir.parser import parse
    from relaybuild.runtime.library import Model, load_model
    from relaybuild.runtime.module import Module, load_module

__version__ = "0.1.0"

IMPORTED_NS = time.time_ns()
"""When this process began to import relaybuild: files that were changed later are not what it runs."""

# the runtime is below what compiles, and asks for it by name
register_deferred("runtime.csource.export_library", "relaybuild.packaging", "export_csource")

_HOMES = {
    "Artifact": "relaybuild.driver",
    "compile": "relaybuild.driver",
    "interpret": "relaybuild.ir.interpreter",
    "IRModule": "relaybuild.ir.module",
    "parse": "relaybuild.ir.parser",
    "Model": "relaybuild.runtime.library",
    "Module": "relaybuild.runtime.module",
    "load_model": "relaybuild.runtime.library",
    "load_module": "relaybuild.runtime.module",
}

__all__ = [
    "Artifact",
    "IRModule",
    "Model",
    "Module",
    "__version__",
    "compile",
    "get_global_func",
    "interpret",
    "ir",
    "load_model",
    "load_module",
    "parse",
    "register_func",
    "relay",
    "runtime",
    "target",
]

_FOLDERS = ("ir", "relay", "runtime", "target")


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return importlib.import_module(f"relaybuild.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'relaybuild' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
