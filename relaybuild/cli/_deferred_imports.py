"""Lets modules be loaded where something of them is first used, rather than imported; does not know which."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType


def defer_imports(*names: str) -> None:
    """From now on, load the modules of these full names, which are not imported yet, when an attribute is looked up.

    Only for a process of the caller's own: who imports a module for what that does to others, and looks up nothing in
    it, would wait for that in vain.
    """
    _FINDER.names.update(names)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _DeferringFinder(importlib.machinery.PathFinder):
    """Finds some modules where they are found otherwise, and loads them late."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(  # type: ignore[override]
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.names:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


_FINDER = _DeferringFinder()
