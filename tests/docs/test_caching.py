"""docs/caching.md names every reason, every command and every variable."""

from __future__ import annotations

import re
from pathlib import Path

from relaybuild.build.cache.journal import MissReason
from relaybuild.build.variables import REGISTRY
from relaybuild.cli.cache import command

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "caching.md").read_text(encoding="utf-8")


def test_every_reason_is_explained() -> None:
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert {reason.value for reason in MissReason} <= named


def test_every_command_is_listed() -> None:
    assert set(re.findall(r"^relaybuild cache ([a-z-]+)", PAGE, re.MULTILINE)) == set(command.commands)


def test_every_variable_is_listed() -> None:
    rows = [
        f"| {', '.join(f'`{name}`' for name in kind.names)} | {kind.keyed.value} "
        f"| {', '.join(reader.value for reader in kind.readers) or 'nobody'} | {kind.meaning} |"
        for kind in REGISTRY
    ]
    assert "\n".join(["| variables | part of | read by | what they say |", "|---|---|---|---|", *rows, ""]) in PAGE
