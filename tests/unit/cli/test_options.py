"""Texts of shapes and of files, right and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.cli._options import parse_files, parse_shapes
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
