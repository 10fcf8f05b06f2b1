"""Reverse-mode rules of operators: what reaches the arguments of a call, given what reaches its result.

A file here has `RULES`, from an operator's name to `rule(call, grad) -> one expression, or None for nothing, per
argument`, and may have `CONSTANT`, the names of operators whose results do not change with small changes of the
arguments. Arguments and results are typed. For a tuple, `grad` and what a rule returns are expressions of tuples.
Knows nothing of how the rules are chained.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from relaybuild.ir.expr import Call, Expr

GradientRule: TypeAlias = Callable[[Call, Expr], Sequence["Expr | None"]]


def gradient_rule(op_name: str) -> GradientRule | None:
    """The rule of an operator, or None where it has none."""
    return _all_rules().get(op_name)


def nothing(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """The rule of operators that are constant almost everywhere."""
    return [None] * len(call.args)


@cache
def _all_rules() -> Mapping[str, GradientRule]:
    found: dict[str, GradientRule] = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{entry.name}")
        rules = {**module.RULES, **dict.fromkeys(getattr(module, "CONSTANT", ()), nothing)}
        twice = found.keys() & rules.keys()
        if twice:
            raise ValueError(f"operators with two gradient rules: {', '.join(sorted(twice))}")
        found.update(rules)
    return found
