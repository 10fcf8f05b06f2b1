"""Prints tables and writes JSON; knows nothing of what was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from relaybuild.errors import RelayBuildError


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up, the first to the left and the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in (header, rule, *rows))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
    return f"| {' | '.join(cells)} |"


def save(path: Path | None, data: Mapping[str, object]) -> None:
    """Write `data` as JSON where a path is given."""
    if path is not None:
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def progress(text: str) -> None:
    """Say on stderr what goes on: stdout holds the result alone."""
    print(text, file=sys.stderr, flush=True)


def run_benchmark(run: Callable[[], None]) -> int:
    """Measure and report; the exit code, after what went wrong has been said."""
    try:
        run()
    except RelayBuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
