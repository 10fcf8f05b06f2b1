"""Prints loop IR as C; owns indentation and declarations, and knows nothing of what is computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from relaybuild.lower.index import Index
from relaybuild.lower.loop_ir import Assign, Branch, Declare, Evaluate, Kernel, Let, Loop, Statement

INDENT = "    "


def print_kernel(kernel: Kernel, symbol: str) -> str:
    """The translation unit of one kernel, as C11 with vector extensions (without them where `lanes` is 1).

    The function takes its buffers, a thread's scratch memory and the thread's number among all: every thread calls it
    and does its own share.
    """
    parameters = [f"{'const ' if p.const else ''}{p.ctype} *restrict {p.name}" for p in kernel.parameters]
    parameters += ["void *restrict scratch", "int32_t thread", "int32_t threads"]
    names = [*(p.name for p in kernel.parameters), "scratch", "thread", "threads"]
    used = _used_names(kernel.body)
    lines = [
        f"/* {kernel.title} */",
        f"#define RB_LANES {kernel.lanes}",
        '#include "relaybuild/vector.h"',
        *(f'#include "{name}"' for name in kernel.includes),
        "",
        f"void {symbol}({', '.join(parameters)});",
        "",
        f"void {symbol}({', '.join(parameters)}) {{",
        *(f"{INDENT}(void){name};" for name in names if name not in used),
        *print_statements(_without_unused(kernel.body, used), 1),
        "}",
        "",
    ]
    return "\n".join(lines)


def _used_names(body: Sequence[Statement]) -> set[str]:
    """The words in what statements read, a named value's own only where something that is used reads it."""
    used: set[str] = set()
    named: dict[str, str] = {}
    pending = list(body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, Let):
            named[statement.name] = statement.value
            continue
        if isinstance(statement, Loop) and _trip_count(statement) == 0:
            continue
        if isinstance(statement, Loop):
            pending.extend(statement.body)
        elif isinstance(statement, Branch):
            pending.extend((*statement.body, *statement.otherwise))
        used.update(_WORD.findall(_text_read(statement)))
    reached = [name for name in used if name in named]
    while reached:
        fresh = set(_WORD.findall(named[reached.pop()])) - used
        used |= fresh
        reached.extend(name for name in fresh if name in named)
    return used


_WORD = re.compile(r"[A-Za-z_]\w*")


def _text_read(statement: Statement) -> str:
    if isinstance(statement, Loop):
        return f"{statement.begin} {statement.end}"
    if isinstance(statement, Branch):
        return statement.condition
    if isinstance(statement, Assign):
        return f"{statement.target} {statement.value}"
    return statement.text if isinstance(statement, Evaluate) else ""


def _without_unused(body: Sequence[Statement], used: set[str]) -> list[Statement]:
    """The statements without the named values that nothing reads."""
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, Let) and statement.name not in used:
            continue
        if isinstance(statement, Loop):
            statement = replace(statement, body=_without_unused(statement.body, used))
        elif isinstance(statement, Branch):
            inner = _without_unused(statement.body, used)
            statement = Branch(statement.condition, inner, _without_unused(statement.otherwise, used))
        kept.append(statement)
    return kept


def print_statements(statements: Sequence[Statement], depth: int) -> list[str]:
    """Lines of C."""
    lines: list[str] = []
    for statement in statements:
        lines.extend(_print_statement(statement, depth))
    return lines


def _print_statement(statement: Statement, depth: int) -> list[str]:
    pad = INDENT * depth
    if isinstance(statement, Loop):
        return _print_loop(statement, depth)
    if isinstance(statement, Branch):
        lines = [f"{pad}if ({statement.condition}) {{", *print_statements(statement.body, depth + 1)]
        if statement.otherwise:
            lines += [f"{pad}}} else {{", *print_statements(statement.otherwise, depth + 1)]
        return [*lines, f"{pad}}}"]
    if isinstance(statement, Let):
        return [f"{pad}const {statement.ctype} {statement.name} = {statement.value};"]
    if isinstance(statement, Declare):
        return [f"{pad}{statement.ctype} {statement.name}{''.join(f'[{dim}]' for dim in statement.dims)};"]
    if isinstance(statement, Assign):
        return [f"{pad}{statement.target} {statement.op} {statement.value};"]
    assert isinstance(statement, Evaluate)
    return [f"{pad}{statement.text};"]


def _print_loop(loop: Loop, depth: int) -> list[str]:
    pad = INDENT * depth
    axis = loop.axis.name
    body = print_statements(loop.body, depth + 1)
    trips = _trip_count(loop)
    if trips == 0:
        return []
    advance = f"++{axis}" if loop.step == 1 else f"{axis} += {loop.step}"
    head = f"{pad}for (ptrdiff_t {axis} = {loop.begin}; {axis} < {loop.end}; {advance}) {{"
    pragma = [f"{pad}#pragma GCC unroll {trips}"] if loop.unroll and trips else []
    return [*pragma, head, *body, f"{pad}}}"]


def _trip_count(loop: Loop) -> int | None:
    length: Index = loop.end - loop.begin
    if length.constant is None:
        return None
    return max(0, -(-length.constant // loop.step))
