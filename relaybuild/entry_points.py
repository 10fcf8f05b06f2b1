"""What installed packages declare of themselves, read from the folders of their metadata; knows no group of it.

`importlib.metadata` parses all that packages say of themselves, and with its parsers takes longer to be imported than
numpy.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

_METADATA = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class EntryPoint:
    """A name that a package declares, and where the object is that it stands for: `module` or `module:attribute`."""

    name: str
    value: str

    @property
    def module(self) -> str:
        """The dotted name of the object's module."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    def load(self) -> Any:
        """The object, whose module is imported now; raises what that does, and AttributeError where it has no such."""
        attributes = self.value.partition("[")[0].partition(":")[2].strip()
        names = attributes.split(".") if attributes else ()
        return functools.reduce(getattr, names, importlib.import_module(self.module))


def entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group, in the order of Python's path; raises UserError for a declaration without form.

    Of several packages of one name the first is installed, as for whoever imports it.
    """
    first: dict[str, str] = {}
    for folder in _metadata_folders():
        first.setdefault(_package(folder), folder)
    return [point for folder in first.values() for point in _declared(folder, group)]


def metadata_folders() -> list[str]:
    """The folders, on Python's path, in which packages say what they are."""
    return list(_metadata_folders())


def _metadata_folders() -> Iterator[str]:
    for place in dict.fromkeys(sys.path):
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        yield from (os.path.join(place, name) for name in names if name.endswith(_METADATA))


def _package(folder: str) -> str:
    """The package's name, in the one form of its many spellings."""
    stem = os.path.basename(folder).rpartition(".")[0]
    return stem.partition("-")[0].lower().replace(".", "_")


def _declared(folder: str, group: str) -> list[EntryPoint]:
    try:
        with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return []
    if group not in text:
        return []
    import configparser

    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UserError(f"'{folder}' has entry points that cannot be read: {error}") from None
    points = parser.items(group) if parser.has_section(group) else []
    return [EntryPoint(name, value) for name, value in points]
