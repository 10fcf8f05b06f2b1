"""The language: types, expressions, modules, their text, their types and their meaning; knows nothing of passes.

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaybuild.ir.structural import structural_digest, structural_equal, structural_hash

__all__ = ["structural_digest", "structural_equal", "structural_hash"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'relaybuild.ir' has no attribute '{name}'")
    return getattr(importlib.import_module("relaybuild.ir.structural"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
