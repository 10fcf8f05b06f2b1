"""Puts a file in the place of relaybuild's own code, as far as keys are made of it; knows no key."""

from __future__ import annotations

from pathlib import Path

import pytest

import relaybuild
from relaybuild.artifact import own_code


def fix_code(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """While `patch` lasts, all code is a file in `folder`: equal in all such folders, whoever edits the checkout."""
    (folder / "code.py").write_text("# stands for all of relaybuild's code\n", encoding="utf-8")
    patch.setattr(own_code, "_PACKAGE", folder)
    patch.setattr(relaybuild, "IMPORTED_NS", 1 << 63)
