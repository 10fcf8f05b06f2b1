"""What the README shows works as written; knows the order of its blocks, not their content."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT, put_relaybuild_first

README = (ROOT / "README.md").read_text(encoding="utf-8")
SETUP = "python3 -m venv"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shell_blocks() -> list[str]:
    """The shell blocks that use relaybuild, without those that set it up."""
    return [block for block in blocks("sh") if not block.startswith(SETUP)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout, with `relaybuild` on the path, as the current one."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    put_relaybuild_first(tmp_path / "tools", monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(text: str) -> str:
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_setup_is_one_line() -> None:
    setups = [block for block in blocks("sh") if block.startswith(SETUP)]
    assert [block.count("\n") for block in setups] == [1, 1]
    assert setups[0].endswith("examples/digits/run.py\n")
    assert setups[1].endswith("-m pytest -n auto\n")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler called cc")
def test_commands_and_c_program(folder: Path) -> None:
    commands, _, link = shell_blocks()
    (program,) = blocks("c")
    output = shell(commands)
    assert "results/scores.npy" in output
    assert "relaybuild" in output.splitlines()[-1], "bench is the last command"
    (folder / "main.c").write_text(program, encoding="utf-8")
    shell(link.replace("cc ", "cc -std=c11 -Wall -Wextra -Werror -pedantic ", 1))
    assert shell("./main").startswith("the first score is ")


def test_backends(folder: Path) -> None:
    _, commands, _ = shell_blocks()
    output = shell(commands)
    assert "relaybuild_digits_ccompiler_main_" in output
    assert (folder / "config.cmake").is_file()
    assert (folder / "mixed.so").is_file()
    assert (folder / "relaybuild-npu" / "pyproject.toml").is_file()


def test_python(folder: Path) -> None:
    model, language = (python(program) for program in blocks("python"))
    assert "TensorSpec(name='image', shape=(1, 1, 8, 8), dtype='float32')" in model
    assert language == "[40. 40. 40. 40.]\n" * 2


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_folder_of_the_table_exists() -> None:
    paths = [path for row in re.findall(r"^\| (`.*?`) \|", README, re.MULTILINE) for path in re.findall("`(.*?)`", row)]
    folders = [path for path in paths if "/" in path]
    assert folders
    assert [path for path in folders if not (ROOT / path).exists()] == []
