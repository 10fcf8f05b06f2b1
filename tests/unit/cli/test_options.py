"""Texts of shapes and of files, right and wrong."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relaybuild.cli._options import config_options, parse_defines, parse_files, parse_shapes
from relaybuild.errors import UserError


def test_shapes() -> None:
    assert parse_shapes(["a=1,3, 224,224", "b:0/x=7", "a=b=2", "scalar="]) == {
        "a": (1, 3, 224, 224),
        "b:0/x": (7,),
        "a=b": (2,),
        "scalar": (),
    }


@pytest.mark.parametrize("text", ["", "x", "=1,2", "x=1,,2", "x=-1", "x=1.5", "x=1,N", "x=²"])
def test_shapes_of_another_form(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_shapes([text])
    assert str(caught.value) == f"option '--shape {text}': expected NAME=D,D,..., as in '--shape image=1,3,224,224'"


def test_a_shape_that_no_machine_has_room_for() -> None:
    with pytest.raises(UserError, match="option '--shape x=99999999999999999999,64': an extent is larger than any"):
        parse_shapes(["x=99999999999999999999,64"])


def test_a_shape_given_twice() -> None:
    with pytest.raises(UserError, match="option '--shape x=2': a shape for 'x' is given already, expected one"):
        parse_shapes(["x=1", "x=2"])


def test_files() -> None:
    assert parse_files(["x=a.npy", "y=b=c.npy"]) == {"x": Path("a.npy"), "y": Path("b=c.npy")}


@pytest.mark.parametrize("text", ["x", "x=", "=x"])
def test_files_of_another_form(text: str) -> None:
    with pytest.raises(UserError, match=f"option '--input {text}': expected NAME=FILE.npy"):
        parse_files([text])


def test_a_file_given_twice() -> None:
    with pytest.raises(UserError, match="a file for 'x' is given already, expected one"):
        parse_files(["x=1", "x=2"])


def test_defines() -> None:
    assert parse_defines(["USE_A=ON", "USE_B:PATH=/opt/x=y", "USE_C=", "USE_A=OFF"]) == {
        "USE_A": "OFF",
        "USE_B": "/opt/x=y",
        "USE_C": "",
    }


@pytest.mark.parametrize("text", ["", "USE_A", "=ON", ":BOOL=ON"])
def test_defines_of_another_form(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_defines([text])
    assert str(caught.value) == f"option '-D {text}': expected NAME=VALUE, as in '-D USE_DNNL=ON'"


@click.command
@config_options
def show(config: Path | None, defines: dict[str, str]) -> None:
    click.echo(f"{config} {defines}")


def shown(*arguments: str) -> str:
    return CliRunner().invoke(show, list(arguments), catch_exceptions=False).output


def test_the_options_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown() == "None {}\n"
    assert shown("-D", "USE_A=ON", "-DUSE_B=/x") == "None {'USE_A': 'ON', 'USE_B': '/x'}\n"
    assert shown("--config", "other.cmake") == "other.cmake {}\n"


def test_the_configuration_of_the_current_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.cmake").touch()
    assert shown() == "config.cmake {}\n"
    assert shown("--config", "other.cmake") == "other.cmake {}\n"
