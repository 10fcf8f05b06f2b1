"""Finds what a graph computes and which of its operators have no converter; knows no operator by name."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from onnx import AttributeProto, GraphProto, NodeProto, defs

from relaybuild.errors import UnsupportedError, UserError
from relaybuild.frontend.onnx.definition import has_definition
from relaybuild.frontend.onnx.registry import find_converter

_SHOWN_NAMES = 3


def domain_of(node: NodeProto) -> str:
    """The operator set of a node, "" for the standard one under either of its names."""
    return "" if node.domain == "ai.onnx" else node.domain


def label(node: NodeProto) -> str:
    """The operator's name, with its domain where that is not the standard one."""
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def node_name(node: NodeProto) -> str:
    """The node's name, or that of its first output."""
    return node.name or next((name for name in node.output if name), "")


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attr in node.attribute:
        if attr.type == AttributeProto.GRAPH:
            yield attr.g
        elif attr.type == AttributeProto.GRAPHS:
            yield from attr.graphs


def nodes_within(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those of their subgraphs, at any depth, in order."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        inner = [nested for graph in subgraphs(node) for nested in graph.node]
        stack.extend(reversed(inner))


def live_nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes that the outputs depend on, in order."""
    needed = {output.name for output in graph.output}
    live: list[NodeProto] = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(name for name in node.output if name):
            live.append(node)
            needed.update(node.input)
            for nested in nodes_within([node]):
                needed.update(nested.input)
                needed.update(output.name for inner in subgraphs(nested) for output in inner.output)
    live.reverse()
    return live


def used_names(graph: GraphProto, nodes: Sequence[NodeProto]) -> set[str]:
    """Every value that a node of the graph, a subgraph or an output of the graph reads."""
    used = {output.name for output in graph.output}
    for node in nodes_within(nodes):
        used.update(node.input)
        used.update(output.name for inner in subgraphs(node) for output in inner.output)
    return used


def check_supported(nodes: Sequence[NodeProto], opset: int, source: str) -> None:
    """Raise one UnsupportedError that lists every operator without a converter, its count and some of its nodes."""
    missing = unsupported(nodes, opset)
    if not missing:
        return
    lines = "\n".join(f"  {name}: {_nodes(found)}" for name, found in sorted(missing.items()))
    what = "an operator" if len(missing) == 1 else f"{len(missing)} operators"
    raise UnsupportedError(
        f"the model uses {what} that relaybuild does not support in opset {opset}:\n{lines}", where=source
    )


def unsupported(nodes: Sequence[NodeProto], opset: int) -> dict[str, list[str]]:
    """Operators that have neither a converter nor a definition by others, and the names of their nodes."""
    missing: dict[str, list[str]] = {}
    for node in nodes_within(nodes):
        domain = domain_of(node)
        if find_converter(domain, node.op_type, opset) is None and not has_definition(node.op_type, domain, opset):
            missing.setdefault(label(node), []).append(node_name(node))
    return missing


def check_signature(node: NodeProto, opset: int) -> None:
    """Raise UserError where a node has an attribute or an input that its operator lacks in this opset.

    Their meaning is unknown, and what they ask for would be left out silently.
    """
    signature = _signature(node.op_type, opset, domain_of(node))
    if signature is None:
        return
    most, known = signature
    if len(node.input) > most:
        raise UserError(f"it has {len(node.input)} inputs, expected at most {most} in opset {opset}")
    for attr in node.attribute:
        if attr.name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UserError(f"it has no attribute '{attr.name}' in opset {opset}; its attributes are {names}")


@functools.cache
def _signature(op_type: str, opset: int, domain: str) -> tuple[int, frozenset[str]] | None:
    """How many inputs an operator has at most, and the names of its attributes; None if the standard has none such.

    Each time onnx is asked for them it makes all attributes anew.
    """
    if not defs.has(op_type, opset, domain):
        return None
    schema = defs.get_schema(op_type, opset, domain)
    return schema.max_input, frozenset(schema.attributes)


def _nodes(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN_NAMES])
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return f"{len(names)} {'node' if len(names) == 1 else 'nodes'} ({shown}{more})"
