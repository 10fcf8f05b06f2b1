"""What a log gets and what a terminal gets for the same events."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest

from cli.conftest import ROOT
from relaybuild.cli._progress import progress
from relaybuild.driver import Event

EVENTS = [
    Event("import"),
    Event("import", seconds=0.25),
    Event("object", 0, 3),
    Event("object", 2, 3),
    Event("object", 3, 3),
    Event("object", seconds=1.5),
    Event("link"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_for_each_finished_stage() -> None:
    stream = io.StringIO()
    with progress(stream) as report:
        for event in EVENTS:
            report(event)
    assert stream.getvalue() == "import: 0.25 s\nobject: 3 in 1.50 s\n"


def test_a_terminal_gets_a_bar_where_a_stage_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with progress(stream) as report:
        for event in EVENTS:
            report(event)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    lines = [line.rstrip() for line in plain.splitlines()]
    stages = {line.split()[0]: line for line in lines if line}
    assert list(stages) == ["import", "object", "link"]
    assert stages["import"].split() == ["import", "0.25", "s"]
    assert re.fullmatch(r"object\s+3/3\s+1\.50 s\s+━+", stages["object"])
    assert "━" not in stages["link"]


def test_a_log_does_not_need_rich() -> None:
    code = (
        "import io, sys\nfrom relaybuild.cli._progress import progress\n"
        "with progress(io.StringIO()): pass\nsys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_a_failure_passes_through() -> None:
    def fail_while_shown() -> None:
        with progress(Terminal()) as report:
            report(Event("import"))
            raise KeyError

    with pytest.raises(KeyError):
        fail_while_shown()
