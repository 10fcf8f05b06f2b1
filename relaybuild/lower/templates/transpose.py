"""Maps that read along another axis than they write: square tiles, transposed in registers; knows no layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from relaybuild.lower.emit import is_vectorizable
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.loop_ir import Builder
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, walk
from relaybuild.lower.templates.body import Body, Rule, is_heavy, store

Places = Callable[[Index, Index], Sequence[IndexLike]]
"""The logical index of (lane, number of the vector) in a tile."""


class Ahead(NamedTuple):
    """The tile that is computed later in place of this one: `distance` further along `axis` (None: along the lanes)."""

    axis: Axis | None
    distance: int


def crosses(body: Body, places: Places, machine: Machine) -> bool:
    """Whether the expression over a tile has vector form once the loads that run across it are transposed."""
    if machine.lanes == 1 or body.output.dtype != "float32":
        return False
    lane, across = Axis("lane", machine.lanes - 1), Axis("across", machine.lanes - 1)
    index = places(Index.of(lane), Index.of(across))
    scalars = ScalarBuilder()
    root = body.rule(scalars, index, None)
    straight = body.output.layout.address(index).coefficient(lane) == 1
    if not straight or scalars.run_time_indices or any(node.op == "range" for node in walk(root)):
        return False
    loads = crossing_loads(root, lane)
    fits = all(_is_across(load, lane, across) for load in loads)
    return bool(loads) and fits and is_vectorizable(root, lane, scalars)


def crossing_loads(root: ScalarExpr, lane: Axis) -> list[ScalarExpr]:
    """The loads that are neither contiguous along `lane` nor the same for all lanes."""
    return [node for node in walk(root) if node.op == "load" and node.data[1].coefficient(lane) not in (0, 1)]


def _is_across(load: ScalarExpr, lane: Axis, across: Axis) -> bool:
    address: Index = load.data[1]
    return address.coefficient(lane) is not None and address.coefficient(across) == 1


def store_tile(
    builder: Builder,
    body: Body,
    machine: Machine,
    places: Places,
    vectors: tuple[int, int],
    ahead: Ahead | None = None,
) -> None:
    """Compute and store vectors `vectors[0]` to `vectors[1] - 1` of a tile of lanes x lanes elements.

    What the tile `ahead` reads and writes is brought near meanwhile.
    """
    lane, across = builder.axis("lane", machine.lanes), builder.axis("across", machine.lanes)
    root = body.rule(ScalarBuilder(), places(Index.of(lane), Index.of(across)), None)
    tiles: dict[tuple[int, Index], str] = {}
    for load in crossing_loads(root, lane):
        operand, address = load.data
        tile = tiles[operand, address] = builder.declare("rb_v", "tile", (machine.lanes,))
        step = address.coefficient(lane)
        first = f"{body.pointers[operand]} + {address.substitute({lane: 0, across: 0})}"
        builder.evaluate(f"rb_load_transposed({tile}, {first}, {step})")
    with builder.loop("j", vectors[1], vectors[0], unroll=not is_heavy(body)) as j:
        known = {
            (operand, address.substitute({across: j})): f"{tile}[{j}]" for (operand, address), tile in tiles.items()
        }
        named = replace(body, rule=_with_vectors(body.rule, known))
        store(builder, named, places(Index.of(lane), j), None, machine.lanes, lane)
        if ahead is not None:
            for operand, address in tiles:
                source = f"{body.pointers[operand]} + {address.substitute({lane: j, across: 0})}"
                _fetch(builder, source, address, ahead, lane, machine.lanes - 1)
            written = body.output.layout.address(places(Index.of(lane), j))
            _fetch(builder, f"out + {written.substitute({lane: 0})}", written, ahead, lane, 0)


def _fetch(builder: Builder, pointer: str, address: Index, ahead: Ahead, lane: Axis, further: int) -> None:
    """Fetch what lies at `address` in the tile ahead, `further` elements on; `pointer` is its place in this tile."""
    step = address.coefficient(ahead.axis or lane)
    if step:
        builder.evaluate(f"RB_PREFETCH({pointer} + {step * ahead.distance + further})")


def _with_vectors(rule: Rule, known: Mapping[tuple[int, Index], str]) -> Rule:
    """The rule with loads replaced by vectors that C code names, by operand and address."""

    def found(scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
        root = rule(scalars, index, anchor)
        loads = [node for node in walk(root) if node.op == "load" and node.data in known]
        return scalars.replaced(root, {id(node): scalars.vector(known[node.data], node.dtype) for node in loads})

    return found
