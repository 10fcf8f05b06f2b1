"""Einsum as transpositions, sums and matrix products, operand by operand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import reduce

from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


@dataclass(frozen=True)
class _Term:
    """A tensor and the label of each of its axes; labels of an ellipsis are digits."""

    expr: Expr
    labels: str

    def extent(self, label: str) -> int:
        return self.expr.tensor_type.static_shape[self.labels.index(label)]

    def size(self, labels: str) -> int:
        return math.prod(self.extent(label) for label in labels)


@converter("Einsum")
def einsum(node: Node) -> Expr:
    inputs = node.all_inputs()
    labels, output = _parsed(node, [item.tensor_type.rank for item in inputs])
    terms = [_Term(item, label) for item, label in zip(inputs, labels)]
    for position in range(1, len(terms)):
        needed = set(output).union(*labels[position + 1 :])
        terms[position] = _product(node, terms[position - 1], terms[position], needed)
    result = _summed(node, terms[-1], set(output))
    return node.transpose(result.expr, [result.labels.index(label) for label in output])


def _parsed(node: Node, ranks: Sequence[int]) -> tuple[list[str], str]:
    equation = node.str_attr("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise node.fail(f"equation '{equation}' has {len(terms)} operands, found {len(ranks)}")
    extra = max((rank - len(term.replace("...", "")) for rank, term in zip(ranks, terms) if "..." in term), default=0)
    labels = [_expanded(node, term, rank) for term, rank in zip(terms, ranks)]
    if not arrow:
        counts = Counter("".join(labels))
        named = "".join(sorted(label for label, count in counts.items() if count == 1 and label.isalpha()))
        return labels, _ellipsis(extra) + named
    output = output.replace("...", _ellipsis(extra))
    if len(set(output)) != len(output) or not set(output) <= set("".join(labels)):
        raise node.fail(f"the result of equation '{equation}' has a label twice, or one that no operand has")
    return labels, output


def _ellipsis(count: int) -> str:
    """Labels of the last `count` axes under an ellipsis: the last one is 0, so that they align to the right."""
    return "".join(str(position) for position in reversed(range(count)))


def _expanded(node: Node, term: str, rank: int) -> str:
    labels = term.replace("...", _ellipsis(rank - len(term) + 3)) if "..." in term else term
    if len(labels) != rank:
        raise node.fail(f"operand '{term}' of the equation does not fit a tensor of rank {rank}")
    if len(set(labels)) != rank:
        raise node.unsupported(f"the diagonal that operand '{term}' of the equation takes")
    return labels


def _summed(node: Node, term: _Term, needed: Collection[str]) -> _Term:
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    kept = "".join(label for label in term.labels if label in needed)
    return _Term(node.call("sum", term.expr, axis=axes, keepdims=False), kept)


def _product(node: Node, left: _Term, right: _Term, needed: Collection[str]) -> _Term:
    """One matrix product per combination of the labels that both terms have and that are needed later."""
    left = _summed(node, left, {*needed, *right.labels})
    right = _summed(node, right, {*needed, *left.labels})
    common = [label for label in left.labels if label in right.labels]
    for label in common:
        left, right = _same_extent(node, left, right, label)
    batch = "".join(label for label in common if label in needed)
    inner = "".join(label for label in common if label not in needed)
    rows = "".join(label for label in left.labels if label not in common)
    columns = "".join(label for label in right.labels if label not in common)
    shape = (*(left.extent(label) for label in batch + rows), *(right.extent(label) for label in columns))
    product = node.call(
        "nn.matmul",
        _folded(node, left, [batch, rows, inner]),
        _folded(node, right, [batch, inner, columns]),
    )
    return _Term(node.reshape(product, shape), batch + rows + columns)


def _same_extent(node: Node, left: _Term, right: _Term, label: str) -> tuple[_Term, _Term]:
    """Axes under an ellipsis broadcast; others must agree."""
    extents = left.extent(label), right.extent(label)
    if extents[0] == extents[1]:
        return left, right
    if 1 not in extents or label.isalpha():
        raise node.fail(f"label '{label}' of the equation has extents {extents[0]} and {extents[1]}")
    return tuple(_broadcast(node, term, label, max(extents)) for term in (left, right))  # type: ignore[return-value]


def _broadcast(node: Node, term: _Term, label: str, extent: int) -> _Term:
    shape = tuple(extent if found == label else term.extent(found) for found in term.labels)
    if shape == term.expr.tensor_type.shape:
        return term
    return _Term(node.call("broadcast_to", term.expr, shape=shape), term.labels)


def _folded(node: Node, term: _Term, groups: Sequence[str]) -> Expr:
    order = reduce(lambda joined, group: joined + group, groups)
    moved = node.transpose(term.expr, [term.labels.index(label) for label in order])
    return node.reshape(moved, tuple(term.size(group) for group in groups))
