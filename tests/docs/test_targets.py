"""What the page on targets shows works as written, names every target, and says what a lesser processor says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT, put_relaybuild_first

from relaybuild import driver
from relaybuild.errors import UserError
from relaybuild.target import Target

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
TEXT = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LOAD = "import sys, relaybuild; relaybuild.load_module(sys.argv[1])"

needs_x86_64 = pytest.mark.skipif(Target.host().arch != "x86-64", reason="compiles for x86-64")


def test_the_table_has_every_target_and_what_it_is() -> None:
    rows = dict(re.findall(r"^\| `(\w[\w-]*)` \| (.*) \|$", TEXT, re.MULTILINE))
    with pytest.raises(UserError) as caught:
        Target.parse("none")
    (known,) = re.findall(r"\(known: (.*)\)", str(caught.value))
    assert set(rows) == set(known.split(", "))
    for name in set(rows) - {"native", "x86-64-multi"}:
        target, (_, lanes, registers, product) = Target.parse(name), rows[name].split("|")
        assert int(lanes) == target.vector_lanes
        if name != "c":
            assert (int(registers), product.strip() == "one") == (target.num_vector_registers, target.has_fma)


@needs_x86_64
def test_the_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    put_relaybuild_first(tmp_path / "tools", monkeypatch)
    ((_, commands),) = [entry for entry in BLOCKS if entry[0] == "sh"]
    done = subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"target: x86-64-multi, of which {Target.host().name} was picked" in done.stdout


@needs_x86_64
def test_a_lesser_processor_says_what_is_shown(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("needs 'qemu-x86_64' (Debian's package qemu-user)")
    library = tmp_path / "digits.so"
    driver.compile(DIGITS, target="x86-64-v3").export_library(library)
    command = [emulator, "-cpu", "Nehalem", sys.executable, "-c", LOAD, str(library)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    ((_, shown),) = [entry for entry in BLOCKS if entry[0] == "text"]
    assert done.stderr.splitlines()[-1] == f"relaybuild.errors.UserError: {shown.strip()}"
