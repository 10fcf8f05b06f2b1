"""Makes C identifiers of names; knows nothing of what they name."""

from __future__ import annotations

import re

_TAKEN = frozenset("cnd mtx pthread rb relaybuild sem thrd timer tss".split())
"""Before `_create`, `_destroy` and the like these make names of the C library's, or of relaybuild's own."""


def c_identifier(name: str) -> str:
    """A C identifier that resembles `name`: the prefix of a model's functions. Not empty, no leading digit, and none
    with which functions of others begin."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    if text in _TAKEN:
        return f"{text}_model"
    return text if text and not text[0].isdigit() else f"model_{text}".rstrip("_")
