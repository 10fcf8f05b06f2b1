"""The page on C and C++ is right: its files are written, its commands run in their order, and print what it shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from environments import ROOT, make_environment

PAGE = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([\w.-]+)`:\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A file to write, or commands to run and the end of what they print, if the page shows that."""

    file: str
    language: str
    text: str
    printed: str | None


def steps() -> Iterator[Step]:
    blocks = BLOCK.findall(PAGE)
    for number, (file, language, text) in enumerate(blocks):
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "", "")
        if language not in ("", "text"):
            yield Step(file, language, text, following[2] if following[1] == "text" else None)


@pytest.mark.slow
def test_the_files_and_commands(tmp_path: Path) -> None:
    for program in ("c++", "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    environment = make_environment(tmp_path / "venv")
    work = tmp_path / "work"
    shutil.copytree(ROOT / "examples" / "digits" / "samples", work / "samples")
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", work)
    ran = 0
    for step in steps():
        if step.file:
            (work / step.file).write_text(step.text, encoding="utf-8")
            continue
        assert step.language == "sh", step.text
        printed = environment.run("sh", "-ec", step.text, folder=work)
        assert printed.endswith(f"\n{step.printed}" if step.printed is not None else ""), step.text
        ran += 1
    assert ran >= 5


def test_every_block_is_written_run_or_shown() -> None:
    assert {step.language for step in steps() if step.file} == {"cmake", "cpp"}
    assert {step.language for step in steps() if not step.file} == {"sh"}
    assert sum(step.printed is not None for step in steps()) >= 4


def test_every_argument_of_the_function_is_explained() -> None:
    script = (ROOT / "cmake" / "RelaybuildModel.cmake").read_text(encoding="utf-8")
    (found,) = re.findall(r'PARSE_ARGV 1 arg "([A-Z;]+)" "([A-Z_;]+)" "([A-Z;]+)"', script)
    arguments = set(";".join(found).split(";"))
    assert arguments == {"SHARED", "STATIC", "OBJECT", "MODEL", "NAME", "TARGET_ISA", "CONFIG", "SHAPES", "OPTIONS"}
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`([A-Z_]+)`", row)} == arguments
