"""The way from a program to regions for backends; knows no backend by name, and not how one is switched on."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.errors import UserError
from relaybuild.ir.module import IRModule
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.backend import all_backends
from relaybuild.partition.constants import constant_arguments
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.merge_composite import MergeComposite
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.pattern_table import Entry, PatternTable, table_of
from relaybuild.passes.infer_type import InferType
from relaybuild.passes.infra import Pass, Sequential

BIND_LIMIT = 4096
"""Weights of more bytes are handed to regions."""


def partition(
    mod: IRModule, tags: Sequence[str], *, bind_limit: int = BIND_LIMIT, mod_name: str = "default"
) -> IRModule:
    """The module with a function for each region that one of the backends `tags` takes, typed.

    `mod_name` becomes part of the functions' names: letters, digits and `_` alone.

    Marks that the module has are kept, also for other tags. Weights of more than `bind_limit` bytes are arguments of
    the regions' calls, and so is what is computed from constants alone, which no backend is asked about; other
    constants stand in the functions. Runs under the current PassContext.

    Raises UserError for a backend's pattern that is not named after its tag, and for marks that contradict each other.
    """
    cutting = (PartitionGraph(mod_name=mod_name, bind_limit=bind_limit), InferType())
    return Sequential((*_marking(tags), *cutting), name="partition")(mod)


def marked(mod: IRModule, tags: Sequence[str]) -> IRModule:
    """The typed module with marks around the regions that `partition` would cut out; raises as that does."""
    return Sequential(_marking(tags), name="partition")(mod)


def _marking(tags: Sequence[str]) -> tuple[Pass, ...]:
    asked = by_priority(tags)
    return (
        # the checks of patterns look at types
        InferType(),
        # whole patterns before single calls, whichever backend has them
        MergeComposite([entry for tag in asked for entry in _named_after(tag, table_of(tag))]),
        # weights that are prepared by operators are prepared once, by the host
        AnnotateTarget(asked, include_constants=False),
        MergeCompilerRegions(),
    )


def by_priority(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags, each once, those of backends of higher priority first; of equals, in the order given."""
    backends = all_backends()

    def priority(tag: str) -> int:
        return backends[tag].priority if tag in backends else 0

    return tuple(sorted(dict.fromkeys(tags), key=lambda tag: -priority(tag)))


def _named_after(tag: str, table: PatternTable) -> tuple[Entry, ...]:
    for entry in table:
        if not entry.name.startswith(f"{tag}."):
            raise UserError(f"a pattern of '{tag}' is named '{entry.name}', expected '{tag}.' and a name")
    return table


__all__ = ["BIND_LIMIT", "by_priority", "constant_arguments", "marked", "partition"]
