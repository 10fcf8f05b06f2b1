"""The page on forms is right: its program is written, its commands run in their order, and print what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from environments import ROOT, make_environment

from relaybuild.build.forms import Form

PAGE = (ROOT / "docs" / "forms.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([\w.-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_program_and_the_commands(tmp_path: Path) -> None:
    for program in ("cc", "cmake", "make", "objcopy"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    environment = make_environment(tmp_path / "venv")
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", work)
    printed = ""
    for file, language, text in BLOCK.findall(PAGE):
        if file:
            (work / file).write_text(text, encoding="utf-8")
        elif language == "sh":
            printed = environment.run("sh", "-ec", text, folder=work)
        else:
            assert printed.endswith(f"\n{text}"), printed
    assert (work / "sources" / "README.md").is_file()


def test_every_form_has_its_row() -> None:
    assert re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE) == [form.value for form in Form]
