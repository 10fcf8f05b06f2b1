"""Makes C identifiers of names; knows nothing of what they name."""

from __future__ import annotations

import re


def c_identifier(name: str) -> str:
    """A C identifier that resembles `name`: the prefix of a model's functions. Not empty, no leading digit."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return text if text and not text[0].isdigit() else f"model_{text}".rstrip("_")
