"""The table of exit codes holds what the classes and the command line say."""

from __future__ import annotations

import re
from pathlib import Path

from relaybuild import cli, errors

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
ROWS = {int(code): row for code, row in re.findall(r"^\| (\d+) \|(.*)\|$", TEXT, re.MULTILINE)}


def classes() -> list[type[errors.RelayBuildError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [value for value in found if issubclass(value, errors.RelayBuildError) and value.__subclasses__() == []]


def test_every_class_stands_in_the_row_of_its_code() -> None:
    assert len(classes()) >= 4
    for found in classes():
        assert f"`{found.__name__}`" in ROWS[found.exit_code], found


def test_the_codes_are_those_of_the_command_line() -> None:
    given = {0, cli.EXIT_USER, errors.ToolError.exit_code, cli.EXIT_INTERNAL, cli.EXIT_INTERRUPTED}
    assert set(ROWS) == given
