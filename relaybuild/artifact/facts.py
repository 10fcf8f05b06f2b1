"""Remembers, beside the cache's results, what can be read off an input by its digest alone; knows no fact's meaning."""

from __future__ import annotations

import json
from typing import Any

from relaybuild.build.cache.store import Cache
from relaybuild.build.notes import Notes
from relaybuild.digest import Digest

_KIND = "fact"


def recall(cache: Cache, of: Digest, *, travels: bool = False) -> Any:
    """The value remembered of what has this digest, as JSON has it; None if there is none that can be believed.

    One that `travels` may come from another machine: it is a guess, of any form, and has to be verified.
    """
    payload = Notes(cache).read(_KIND, of.hex, travels=travels)
    try:
        return json.loads(payload) if payload is not None else None
    except ValueError:
        return None


def remember(cache: Cache, of: Digest, value: Any, *, travels: bool = False) -> None:
    """Remember a value other than None, if the cache can be written; it must follow from what has the digest."""
    Notes(cache).write(_KIND, of.hex, json.dumps(value).encode(), travels=travels)
