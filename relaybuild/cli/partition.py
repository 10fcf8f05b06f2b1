"""`relaybuild partition`: what goes to which backend, and why the host has the rest; compiles nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relaybuild import stages
from relaybuild.build.files import check_writable, write_if_changed
from relaybuild.cli import _options
from relaybuild.cli._text import table
from relaybuild.partition.report import PlacedCall, RegionFacts, Report

_MOST_NODES = 3
_MOST_OPERATORS = 5


@click.command(name="partition")
@click.argument("model", type=_options.PATH)
@_options.shape_option
@_options.config_options
@click.option("--target", metavar="NAME", help="What the backends are to generate code for; as for compile.")
@click.option("--html", type=_options.PATH, metavar="FILE", help="Draw the graph, regions by colour: one HTML file.")
@click.option("--json", "json_file", type=_options.PATH, metavar="FILE", help="Write all of it: JSON.")
@click.option("--verbose", "-v", is_flag=True, help="List every call.")
def command(
    model: Path,
    shapes: dict[str, tuple[int, ...]] | None,
    config: Path | None,
    defines: dict[str, str],
    target: str | None,
    html: Path | None,
    json_file: Path | None,
    verbose: bool,
) -> None:
    """Print what of MODEL, an ONNX or Relay file, goes to which backend, and why the host has the rest."""
    for path in (html, json_file):
        if path is not None:
            check_writable(path)
    report = stages.partition_report(model, shapes=shapes, config=config, flags=defines, target=target)
    if html is not None:
        from relaybuild.cli._partition_drawing import drawing

        write_if_changed(html, drawing(report, model.name))
    if json_file is not None:
        write_if_changed(json_file, json.dumps(_facts(report), indent=2) + "\n")
    click.echo("\n".join(_lines(report, model, verbose)))


def _lines(report: Report, model: Path, verbose: bool) -> Iterator[str]:
    facts = report.region_facts()
    if not report.tags:
        yield "no backend is on, and the host has all calls: switch one on with -D USE_NAME=ON, or in config.cmake"
    if facts:
        yield "regions:"
        yield from table(("function", "backend", "calls", "operators"), _region_rows(facts, verbose), "  ")
    yield f"{model}:"
    yield from table(("backend", "regions", "calls", "share"), _shares(report, facts), "  ")
    if report.constants:
        yield f"  and {len(report.constants)} calls over constants alone, computed once"
    groups = report.unplaced()
    if groups and report.tags:
        yield "with the host:"
        rows = [(group.title, str(len(group.calls)), group.reason, _nodes(group.calls)) for group in groups]
        yield from table(("operator", "calls", "reason", "for nodes"), rows, "  ")
    if verbose:
        yield "calls:"
        listed = [(each.title, each.region or "host", each.node) for each in report.calls]
        yield from table(("operator", "in", "for node"), listed, "  ")


def _region_rows(facts: Sequence[RegionFacts], each_alone: bool) -> list[tuple[str, str, str, str]]:
    """A row for each region, or for all regions of one backend and the same operators."""
    groups: dict[tuple[str, ...], list[RegionFacts]] = {}
    for each in facts:
        alone = (each.name,) if each_alone else ()
        groups.setdefault((*alone, each.backend, _operators(each.operators)), []).append(each)
    return [
        (_first(group), group[0].backend, str(group[0].calls), _operators(group[0].operators))
        for group in groups.values()
    ]


def _first(regions: Sequence[RegionFacts]) -> str:
    return regions[0].name + (f" and {len(regions) - 1} like it" if len(regions) > 1 else "")


def _shares(report: Report, facts: Sequence[RegionFacts]) -> list[tuple[str, str, str, str]]:
    """A row for each backend that was asked or has regions, and one for the host."""
    host = sum(call.region is None for call in report.calls)
    total = max(1, host + sum(each.calls for each in facts))
    rows: list[tuple[str, str, str, str]] = []
    for tag in dict.fromkeys([*report.tags, *(each.backend for each in facts)]):
        own = [each for each in facts if each.backend == tag]
        calls = sum(each.calls for each in own)
        rows.append((tag, str(len(own)), str(calls), f"{100 * calls / total:.1f} %"))
    return [*rows, ("host", "", str(host), f"{100 * host / total:.1f} %")]


def _operators(counts: Mapping[str, int]) -> str:
    texts = [f"{count} {name}" if count > 1 else name for name, count in counts.items()]
    more = [f"{len(texts) - _MOST_OPERATORS} more"] if len(texts) > _MOST_OPERATORS else []
    return ", ".join([*texts[:_MOST_OPERATORS], *more])


def _nodes(calls: Sequence[PlacedCall]) -> str:
    names = list(dict.fromkeys(call.node for call in calls if call.node))
    more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
    return ", ".join(names[:_MOST_NODES]) + more


def _facts(report: Report) -> dict[str, Any]:
    """Everything known, as JSON has it."""
    return {
        "backends": list(report.tags),
        "regions": [
            {"name": each.name, "backend": each.backend, "calls": each.calls, "operators": dict(each.operators)}
            for each in report.region_facts()
        ],
        "calls": [
            {
                "function": each.placement.function,
                "operator": each.title,
                "node": each.node,
                "backend": each.placement.backend,
                "region": each.region,
                "reason": each.placement.reason,
            }
            for each in report.calls
        ],
        "constants": len(report.constants),
    }
