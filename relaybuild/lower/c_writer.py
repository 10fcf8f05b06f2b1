"""Prints loop IR as C; owns indentation and declarations, and knows nothing of what is computed."""

from __future__ import annotations

from collections.abc import Sequence

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
    lines = [
        f"/* {kernel.title} */",
        f"#define RB_LANES {kernel.lanes}",
        '#include "relaybuild/vector.h"',
        *(f'#include "{name}"' for name in kernel.includes),
        "",
        f"void {symbol}({', '.join(parameters)});",
        "",
        f"void {symbol}({', '.join(parameters)}) {{",
        f"{INDENT}(void)scratch;",
        f"{INDENT}(void)thread;",
        f"{INDENT}(void)threads;",
        *print_statements(kernel.body, 1),
        "}",
        "",
    ]
    return "\n".join(lines)


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
