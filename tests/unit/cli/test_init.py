"""The command `init`: a config.cmake that is complete, and never in place of another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.conftest import Invoke
from relaybuild.build.share import share_dir
from relaybuild.cli import main


def test_a_script_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("init")
    assert result.output == (
        "wrote config.cmake: edit it to switch backends on\nnext: relaybuild compile MODEL -o model.so\n"
    )
    assert os.listdir(tmp_path) == ["config.cmake"]
    assert (tmp_path / "config.cmake").read_bytes() == (share_dir() / "config.cmake").read_bytes()


def test_the_script_explains_every_flag() -> None:
    lines = (share_dir() / "config.cmake").read_text(encoding="utf-8").splitlines()
    for flag in ("USE_CODEGENC", "USE_EXAMPLE_JSON", "USE_CBLAS", "USE_DNNL"):
        place = lines.index(f"set({flag} OFF)")
        paragraph = lines[max(i for i in range(place) if not lines[i]) + 1 : place]
        assert {"ON", "OFF"} <= {line.split()[1] for line in paragraph}, flag


def test_a_folder_is_made(tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / "my models" / "one"
    result = invoke("init", folder)
    assert f"next: relaybuild compile MODEL --config '{folder}/config.cmake' -o model.so" in result.output
    assert (folder / "config.cmake").is_file()


def test_a_script_that_is_there_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.cmake"
    path.write_text("mine")
    with pytest.raises(SystemExit) as caught:
        main(["init", str(tmp_path)])
    assert caught.value.code == 1
    assert capfd.readouterr().err == (
        f"error: '{path}' is there already, and may have been edited; use --force to replace it\n"
    )
    assert path.read_text() == "mine"


def test_force_replaces_it(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "config.cmake"
    path.write_text("mine")
    assert invoke("init", "--force", tmp_path).exit_code == 0
    assert path.read_bytes() == (share_dir() / "config.cmake").read_bytes()


def test_a_folder_that_cannot_be_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as caught:
        main(["init", str(tmp_path / "file" / "below")])
    assert caught.value.code == 1
    assert "cannot write" in capfd.readouterr().err
