"""What an operator that is lowered by a template tells the host; knows no operator by name.

An anchor is one file in `relaybuild/contrib/host/anchors`, which ends with `ANCHORS = (Anchor(...), ...)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Literal, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import call_op
from relaybuild.lower.index import IndexLike
from relaybuild.lower.layout import NO_HALO
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.body import Body, Operand

Halo: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Buffer:
    """An argument that the template reads from memory: in channel blocks, row-major, or either (preferably row-major),
    with at least this halo."""

    layout: Literal["blocked", "row", "any"]
    halo: Halo = NO_HALO


@dataclass(frozen=True)
class Packed:
    """A weight, rearranged by an operator when the library is built."""

    op: str
    attrs: Mapping[str, object] = field(default_factory=dict)

    def of(self, weight: Expr) -> Call:
        """The expression that packs `weight`."""
        return call_op(self.op, [weight], weight.span, **self.attrs)


@dataclass(frozen=True)
class Loaded:
    """An argument that the template reads element by element, through whatever computes it."""


Need: TypeAlias = Buffer | Packed | Loaded
ElementAt: TypeAlias = Callable[[ScalarBuilder, int, Sequence[IndexLike]], ScalarExpr]
"""Element of argument number k at an index, for arguments that are `Loaded`."""


@dataclass(frozen=True)
class Setting:
    """What lowering is done for: the machine, and whether reassociation beyond summation order is ruled out."""

    machine: Machine
    precise: bool = False


@dataclass(frozen=True)
class Site:
    """One call to be lowered: its operands in argument order first among `body.inputs`, and what it may load."""

    call: Call
    body: Body
    operands: tuple[Operand | None, ...]
    element: ElementAt
    setting: Setting

    @property
    def machine(self) -> Machine:
        return self.setting.machine


@dataclass(frozen=True)
class Anchor:
    """How the host lowers an operator by a template.

    `needs(call, is_weight, setting)` says for each argument how it is read, where `is_weight[k]` tells whether argument
    k is known when the library is built. `blocked(call)` tells whether the result lies in channel blocks;
    `writes_halo` whether the template writes zeros around it, where its users want a halo; `widens` whether numbers of
    half precision are to be given to it in single precision; `loads` what may be computed on the way of a `Loaded`
    argument: nothing, a change of place, or arithmetic too (where the template reads each element once).
    """

    ops: tuple[str, ...]
    needs: Callable[[Call, Sequence[bool], Setting], tuple[Need, ...]]
    lower: Callable[[Site], Kernel]
    blocked: Callable[[Call], bool] = lambda call: False
    writes_halo: bool = False
    widens: bool = False
    loads: Literal["nothing", "place", "arithmetic"] = "nothing"


@cache
def all_anchors() -> Mapping[str, Anchor]:
    """Every anchor by operator name, collected from the files of `relaybuild.contrib.host.anchors`."""
    package = importlib.import_module("relaybuild.contrib.host.anchors")
    found: dict[str, Anchor] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        for anchor in module.ANCHORS:
            found.update((name, anchor) for name in anchor.ops)
    return found
