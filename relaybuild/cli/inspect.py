"""`relaybuild inspect`: what a library says of itself, on whichever processor; runs no model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relaybuild.cli import _options
from relaybuild.cli._text import shape_text, size_text, table
from relaybuild.errors import UserError
from relaybuild.runtime import Model, describe_model, elf
from relaybuild.runtime.spec import TensorSpec

_MAX_NODES = 3


@click.command(name="inspect")
@click.argument("library", type=_options.PATH)
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
def command(library: Path, as_json: bool) -> None:
    """Print the inputs, outputs, memory, kernels, regions, target, needs and provenance of LIBRARY."""
    facts = _facts(library)
    click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(_lines(facts)))


def _facts(path: Path) -> dict[str, Any]:
    """Everything known of a library, as JSON has it."""
    module = describe_model(path)
    metadata = module.metadata
    description = module.describe()
    return {
        "library": str(path),
        "name": module.name,
        "size": path.stat().st_size,
        "target": metadata.pop("target", module.target),
        "levels": metadata.pop("levels", []),
        "picked": module.target,
        "refusal": _refusal(module),
        "cpu_features": description["cpu_features"].split(),
        "inputs": [_tensor(spec) for spec in module.signature.inputs],
        "outputs": [_tensor(spec) for spec in module.signature.outputs],
        "arena_bytes": description["arena_bytes"],
        "scratch_bytes": description["scratch_bytes"],
        "weight_bytes": description["weight_bytes"],
        "kernels": metadata.pop("kernels", []),
        "regions": _regions(module),
        "needs": list(elf.dynamic(path).needed),
        "provenance": metadata,
    }


def _refusal(module: Model) -> str:
    """Why this processor cannot run a model; empty where it can."""
    try:
        module.check()
    except UserError as error:
        return str(error)
    return ""


def _regions(module: Model) -> list[dict[str, str]]:
    """The functions that other backends compute: name, the backend's tag, type key of the module that brings it."""
    keys = [key for key, _ in module.modules()]
    return [{"function": name, "compiler": tag, "module": keys[number]} for name, tag, number in module.regions()]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    kernels = facts["kernels"]
    yield f"{facts['library']}: model '{facts['name']}', {size_text(facts['size'])}"
    is_picked = facts["levels"] and not facts["refusal"]
    picked = f", of which {facts['picked']} was picked" if is_picked else ""
    yield f"target: {facts['target']}{picked} (requires {' '.join(facts['cpu_features']) or 'nothing'})"
    if facts["refusal"]:
        yield f"cannot run here: {facts['refusal']}"
    if facts["levels"]:
        yield "levels:"
        yield from table(("target", "kernels", "arena", "scratch"), list(map(_level_row, facts["levels"])), "  ")
    yield from _tensors("inputs", facts["inputs"])
    yield from _tensors("outputs", facts["outputs"])
    yield "memory:"
    yield f"  weights {size_text(facts['weight_bytes'])}, read-only, shared by all users of the library"
    yield f"  arena {size_text(facts['arena_bytes'])}, for each inference that runs at the same time"
    yield f"  scratch {size_text(facts['scratch_bytes'])}, for each thread"
    yield f"kernels: {len(kernels)}, of which {sum(bool(kernel.get('copies')) for kernel in kernels)} only copy"
    if kernels:
        yield from table(("symbol", "computes", "for nodes"), [_kernel_row(kernel) for kernel in kernels], "  ")
    regions = facts["regions"]
    yield f"regions of other backends: {len(regions) or 'none'}"
    if regions:
        columns = ("function", "compiler", "module")
        yield from table(columns, [tuple(region[column] for column in columns) for region in regions], "  ")
    yield f"needs: {', '.join(facts['needs']) or 'no library'}"
    yield "provenance:"
    for key, value in sorted(_flat(facts["provenance"])):
        yield f"  {key}: {value}"


def _tensors(title: str, tensors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{title}:"
    for tensor in tensors:
        yield f"  {tensor['name']}: {tensor['dtype']} {shape_text(tensor['shape'])}"


def _level_row(level: Mapping[str, Any]) -> tuple[str, str, str, str]:
    memory = size_text(level["arena_bytes"]), size_text(level["scratch_bytes"])
    return str(level["target"]), str(level["kernels"]), *memory


def _kernel_row(kernel: Mapping[str, Any]) -> tuple[str, str, str]:
    nodes = kernel.get("nodes", [])
    more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
    copies = " (only copies)" if kernel.get("copies") else ""
    return str(kernel.get("symbol", "")), f"{kernel.get('title', '')}{copies}", ", ".join(nodes[:_MAX_NODES]) + more


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested objects with dotted names; metadata nests a few levels at most."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
