"""The part of a module that a function can reach; knows no pass."""

from __future__ import annotations

from collections.abc import Iterable

from relaybuild.ir.expr import GlobalVar
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order


def reached_module(module: IRModule, names: Iterable[str]) -> IRModule:
    """The module with the functions `names` and those that they reach, in any number of calls, alone."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in found or name not in module:
            continue
        found.add(name)
        pending += [node.name_hint for node in post_order(module[name]) if isinstance(node, GlobalVar)]
    return module.with_functions({name: module[name] for name in module if name in found})
