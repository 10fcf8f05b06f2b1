"""Adds a table to the summary page of a GitHub job; does not know what the numbers are of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from relaybuild.build.files import writing
from relaybuild.errors import UserError

SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable by which GitHub names the file of the page."""


def add_to_summary(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], lines: Iterable[str]) -> None:
    """Append a section with a table, and lines below it; raises UserError outside of a job of GitHub."""
    name = os.environ.get(SUMMARY, "")
    if not name:
        raise UserError(f"the variable {SUMMARY} names no file: outside of a job of GitHub, leave '--github' out")
    text = "\n".join([f"### {title}", "", *_table(header, rows), *(f"- {_plain(line)}" for line in lines), "", ""])
    path = Path(name)
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(map(_plain, row))} |" for row in rows]
    if not body:
        return []
    return [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}", *body, ""]


def _plain(text: str) -> str:
    """A text in which no character means anything to Markdown or HTML."""
    marks = "\\`*_{}[]<>|#&"
    return "".join(f"&#{ord(char)};" if char in marks else char for char in " ".join(text.split()))
