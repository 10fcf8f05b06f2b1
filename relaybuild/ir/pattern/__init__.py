"""Patterns over dataflow: to match, to rewrite, and to cut out; knows no backend's patterns."""

from __future__ import annotations

from relaybuild.ir.pattern.groups import Check, Group, Refusal, find_groups, group_of, may_match
from relaybuild.ir.pattern.language import (
    DFPattern,
    DFPatternCallback,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_function,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)
from relaybuild.ir.pattern.matcher import Graph, Match, Mismatch, find_match
from relaybuild.ir.pattern.partitioning import cut_out, partitioned_from

__all__ = [
    "Check",
    "DFPattern",
    "DFPatternCallback",
    "Graph",
    "Group",
    "Match",
    "Mismatch",
    "Refusal",
    "cut_out",
    "dominates",
    "find_groups",
    "find_match",
    "group_of",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "is_constant",
    "is_expr",
    "is_function",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "may_match",
    "partitioned_from",
    "rewrite",
    "wildcard",
]
