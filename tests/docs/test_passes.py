"""What the page on passes shows runs as written, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from environments import ROOT, put_relaybuild_first

from relaybuild.cli.compile import command
from relaybuild.passes import _base, _config, instruments
from relaybuild.passes.infra import PassContext, PassInstrument

TEXT = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_python_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    # those of relaybuild's own passes stay known
    _base.builtin_passes()
    monkeypatch.setattr(_base, "_user_passes", {})
    monkeypatch.setattr(_config, "_keys", dict(_config._keys))
    names: dict[str, Any] = {"__name__": "__main__"}
    programs = 0
    for number, (language, block) in enumerate(BLOCKS):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"docs/passes.md, block {number}", "exec", dont_inherit=True), names)
        following, wanted = BLOCKS[number + 1]
        assert following == "text"
        # a module's text ends in a line's end, as what is printed does
        assert _lines(printed.getvalue()) == _lines(wanted), f"block {number}"
        programs += 1
    assert programs >= 10


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_the_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, program),) = [entry for entry in BLOCKS if entry[0] == "relay"]
    (tmp_path / "net.relay").write_text(program, encoding="utf-8")
    put_relaybuild_first(tmp_path / "tools", monkeypatch)
    ((_, commands),) = [entry for entry in BLOCKS if entry[0] == "sh"]
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"all \d+ rewrites were made, fewer than --stop-after-rewrite allows", lines[0]), lines
    assert "  %0 = multiply(%x, 2f);" in lines
    assert lines[-1] == "stopped after rewrite 1, SimplifyExpr: reshape becomes Var at net.relay:4:8"


def test_the_tables_are_complete() -> None:
    settings = set(re.findall(r"^\| `(\w+)`", TEXT, re.MULTILINE))
    assert set(PassContext.__init__.__annotations__) - {"return"} <= settings
    own = {
        name
        for name, value in vars(instruments).items()
        if isinstance(value, type) and issubclass(value, PassInstrument) and not name.startswith("_")
    }
    assert own - {"PassInstrument"} <= settings
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[\w-]+)", TEXT)) <= options
