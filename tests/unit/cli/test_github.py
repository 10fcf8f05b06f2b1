"""What is added to the summary page of a job means nothing to Markdown but a table and a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.cli._github import SUMMARY, add_to_summary
from relaybuild.errors import UserError


def test_texts_stay_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUMMARY, str(tmp_path / "page"))
    add_to_summary("Title", ("name", "count"), [("a|b\n<img>", "1")], ["[x](y)"])
    assert (tmp_path / "page").read_text(encoding="utf-8").splitlines() == [
        "### Title",
        "",
        "| name | count |",
        "|---|---:|",
        "| a&#124;b &#60;img&#62; | 1 |",
        "",
        "- &#91;x&#93;(y)",
        "",
    ]


def test_a_page_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUMMARY, str(tmp_path))
    with pytest.raises(UserError, match=str(tmp_path)):
        add_to_summary("Title", (), [], [])
