"""What is known of a finished artifact, as its summary says it and as the cache keeps it; makes none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relaybuild.build.cache.journal import Journal
from relaybuild.dataclass import dataclass

STAGES = ("import", "pass", "partition", "codegen", "object", "link")

_FACTS = ("kernels", "regions", "arena_bytes", "weight_bytes", "link")


@dataclass(frozen=True)
class Steps:
    """What a compilation did, by stage: steps that ran, steps whose results were there, and seconds; `whole` counts
    those that are no parts of others, which come up only where these are not found."""

    executed: Mapping[str, int] = field(default_factory=dict)
    cached: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)


def pack(facts: Mapping[str, Any], steps: Steps) -> bytes:
    """What a cache keeps for the summary: facts of the library, and of how many whole steps it is made by stage.

    Equal libraries give equal bytes: neither times nor what happened to be cached are in them.
    """
    counts = {stage: steps.whole.get(stage, 0) for stage in STAGES}
    return json.dumps({"facts": dict(facts), "steps": counts}, sort_keys=True).encode()


def unpack(data: bytes) -> tuple[Mapping[str, Any], Steps]:
    """What `pack` was given, all steps as cached; raises ValueError for anything else."""
    found = json.loads(data)
    if not isinstance(found, dict) or not found.get("facts", {}).keys() >= {*_FACTS, "warnings"}:
        raise ValueError("not the facts of an artifact")
    return found["facts"], Steps(cached=found["steps"])


def summary(facts: Mapping[str, Any], steps: Steps, journal: Journal) -> dict[str, Any]:
    """The summary of a compilation, but for where the library is: `executed` and `cached` count steps by stage.

    Of an artifact that was found whole, all steps that it is made of count as cached.
    """
    return {
        "seconds": {stage: round(steps.seconds.get(stage, 0.0), 4) for stage in STAGES},
        "executed": {stage: steps.executed.get(stage, 0) for stage in STAGES},
        "cached": {stage: steps.cached.get(stage, 0) for stage in STAGES},
        "misses": journal.summary()["misses"],
        **{name: facts[name] for name in _FACTS},
    }
