"""Rewrites that are registered for an operator and asked for by a pass; knows neither the passes nor any operator.

A rule takes a typed call of its operator. It returns an expression to put in the call's place, the call itself to keep
it as it is, or None where it has no opinion, and the next rule is asked: those of the innermost scope first, then by
falling level, the latest registered first among equals.

    @register_op_rewrite("legalize", "nn.dense")
    def split_wide_rows(call): ...

    with scoped_op_rewrite("legalize", "nn.dense", split_wide_rows): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias, get_args

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import get_op

RewriteKind: TypeAlias = Literal["legalize", "alter_op_layout"]
"""Which pass asks for a rule."""

RewriteRule: TypeAlias = Callable[[Call], "Expr | None"]

DEFAULT_LEVEL = 10


@dataclass(frozen=True)
class OpRewrite:
    """A registered rule; of two for one operator, that of the higher `level` is asked first."""

    kind: RewriteKind
    op_name: str
    rule: RewriteRule
    level: int = DEFAULT_LEVEL


def register_op_rewrite(
    kind: RewriteKind, op_name: str, level: int = DEFAULT_LEVEL
) -> Callable[[RewriteRule], RewriteRule]:
    """Decorator that registers a rule for good; an unknown kind or operator is an error that lists the nearest."""
    _check(kind, op_name)

    def register(rule: RewriteRule) -> RewriteRule:
        _registered.setdefault((kind, op_name), []).append(OpRewrite(kind, op_name, rule, level))
        return rule

    return register


def register_legalize(op_name: str, level: int = DEFAULT_LEVEL) -> Callable[[RewriteRule], RewriteRule]:
    """Decorator that registers a rule of the pass Legalize."""
    return register_op_rewrite("legalize", op_name, level)


def register_alter_op_layout(op_name: str, level: int = DEFAULT_LEVEL) -> Callable[[RewriteRule], RewriteRule]:
    """Decorator that registers a rule of the pass AlterOpLayout."""
    return register_op_rewrite("alter_op_layout", op_name, level)


@contextmanager
def scoped_op_rewrite(kind: RewriteKind, op_name: str, rule: RewriteRule) -> Iterator[None]:
    """A rule that is asked before all others of its operator, inside a `with` statement and in this thread only."""
    _check(kind, op_name)
    token = _scoped.set((OpRewrite(kind, op_name, rule), *_scoped.get()))
    try:
        yield
    finally:
        _scoped.reset(token)


def find_op_rewrites(kind: RewriteKind, op_name: str) -> tuple[OpRewrite, ...]:
    """The rules of an operator in the order in which they are asked."""
    scoped = [each for each in _scoped.get() if (each.kind, each.op_name) == (kind, op_name)]
    latest_first = reversed(_registered.get((kind, op_name), ()))
    return (*scoped, *sorted(latest_first, key=lambda each: -each.level))


def rewrite_call(kind: RewriteKind, call: Call) -> Expr:
    """What the operator's rules put in the place of a call; the call itself where none has an opinion."""
    for each in find_op_rewrites(kind, call.op_name):
        found = each.rule(call)
        if found is None:
            continue
        if not isinstance(found, Expr):
            raise UserError(
                f"the {kind} rule '{_rule_name(each.rule)}' of '{call.op_name}' returned a "
                f"{type(found).__name__}, expected an expression or None",
                where=str(call.span) if call.span else None,
            )
        return found
    return call


def _rule_name(rule: RewriteRule) -> str:
    return getattr(rule, "__name__", type(rule).__name__)


def _check(kind: str, op_name: str) -> None:
    if kind not in get_args(RewriteKind):
        raise UserError(f"unknown kind of rewrite '{kind}'; the kinds are {', '.join(get_args(RewriteKind))}")
    get_op(op_name)


_registered: dict[tuple[RewriteKind, str], list[OpRewrite]] = {}
_scoped: ContextVar[tuple[OpRewrite, ...]] = ContextVar("scoped_op_rewrites", default=())
