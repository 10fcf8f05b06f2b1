"""The page for vendors is right: its commands and programs run in their order, what it quotes stands in the files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from environments import ROOT, make_environment

from relaybuild.cli import main

PAGE = (ROOT / "docs" / "new-backend.md").read_text(encoding="utf-8")
QUOTED = re.compile(r"From\s`([^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {"relay": "net.relay", "examplejson": "mysubgraph.examplejson"}


@dataclass(frozen=True)
class Step:
    """A block that does something, and what the page says that it prints, if it does."""

    language: str
    text: str
    printed: str | None


def steps() -> Iterator[Step]:
    """The blocks to run or to write, in order."""
    quoted = {text for _, text in QUOTED.findall(PAGE)}
    blocks = [(language, text) for language, text in BLOCK.findall(PAGE) if text not in quoted]
    for number, (language, text) in enumerate(blocks):
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if language != "text":
            yield Step(language, text, following[1] if following[0] == "text" else None)


@pytest.mark.slow
def test_commands_and_programs(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv")
    work = tmp_path / "work"
    work.mkdir()
    runs = {"sh": ("sh", "-ec"), "python": ("python", "-c")}
    ran = []
    for step in steps():
        if step.language in runs:
            printed = environment.run(*runs[step.language], step.text, folder=work)
            assert printed == (printed if step.printed is None else step.printed), step.text
            ran.append(step.language)
        else:
            (work / FILES[step.language]).write_text(step.text, encoding="utf-8")
    assert ran.count("sh") >= 6
    assert ran.count("python") >= 5


def test_quoted_text_stands_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["new-backend", "npu"])
    assert ended.value.code == 0
    quotations = QUOTED.findall(PAGE)
    assert len(quotations) >= 10
    for path, text in quotations:
        folder = tmp_path if path.startswith("relaybuild-npu") else ROOT
        assert text in (folder / path).read_text(encoding="utf-8"), path


def test_every_block_is_run_written_or_quoted() -> None:
    assert {step.language for step in steps()} == {"sh", "python", *FILES}


def test_the_files_and_places_named_exist() -> None:
    named = set(re.findall(r"`((?:relaybuild|cmake)/[\w/.]+)`", PAGE))
    folders = (ROOT, ROOT / "relaybuild" / "runtime" / "include")
    assert len(named) >= 5
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []
