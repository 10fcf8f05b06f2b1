"""Digests of parts of relaybuild's own code: a module with all that it imports; knows no pass and no backend.

What a step makes depends on the code that it runs. A step is known by the modules that define it; each stands for all
that it imports within relaybuild, directly or not. A module that imports whatever lies in a folder stands for the
folder. Names that are imported by a computed name are not followed: what they lead to (a backend, a pass that another
one requires) is part of a key on its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import relaybuild
from relaybuild.artifact import facts
from relaybuild.artifact.own_code import own_code, take_source
from relaybuild.build.cache.store import Cache
from relaybuild.build.trees import TreeInputs
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher, encode_field

_ROOT = Path(relaybuild.__file__).resolve().parent
_HEAD = "relaybuild"

_TYPES_HEAD = "\nif TYPE_CHECKING:"
_FOR_TYPES = re.compile(rf"{_TYPES_HEAD}(?:\n(?:[ \t]+[^\n]*)?)+")
_FROM = re.compile(rf"from ({_HEAD}[\w.]*) import (\([^)]*\)|[^\n]*)")
_WHOLE = re.compile(rf"import ({_HEAD}[\w.]*)")
_FOLDER = re.compile(r"import_module\(\"(relaybuild[\w.]+)\"\)")
_SEARCH, _OWN_FOLDER = "iter_modules", "iter_modules(__path__"

# Backends are found by name: each is part of the keys of what it makes.
_BY_NAME = frozenset({"relaybuild.contrib"})
# What makes keys and looks steps up has no say in what they make.
_KEYS = ("relaybuild.artifact", "relaybuild.build", "relaybuild.compilation.known", "relaybuild.compilation.plugins")


@dataclass(frozen=True)
class ModuleCode:
    """A module's file, and the modules that it imports."""

    digest: Digest
    imports: tuple[str, ...]


class CodeDigests:
    """Digests of modules of relaybuild with all that they import, remembered by the digest of the whole code."""

    def __init__(self, cache: Cache | None, inputs: TreeInputs) -> None:
        """Without a cache they are not remembered."""
        self._cache = cache
        self._inputs = inputs
        self._closures: dict[str, frozenset[str]] = {}
        self._digests: dict[tuple[str, ...], Digest] = {}
        self._steps: dict[str, Digest] = {}

    def of(self, *modules: str) -> Digest:
        """The digest of modules, or of packages with all that lies in them, and of all that they import.

        Raises KeyError for a name that is no module of relaybuild, and StaleCode.
        """
        if modules not in self._digests:
            self._digests[modules] = self._digest(frozenset().union(*map(self._closure, modules)))
        return self._digests[modules]

    def of_step(self, module: str) -> Digest:
        """The digest of the module that packs what a step makes, without what looks it up; raises as `of`."""
        if module not in self._steps:
            self._steps[module] = self._digest(_reached([module], self._modules, _KEYS))
        return self._steps[module]

    def check(self) -> None:
        """Raise StaleCode where the code on disk is not the code that runs, OSError where it cannot be read."""
        _ = self._whole

    def package(self, name: str) -> Digest:
        """The digest of another package that results rest upon, numpy or onnx."""
        return self._whole[name]

    @cached_property
    def _whole(self) -> Mapping[str, Digest]:
        return own_code(self._inputs)

    @cached_property
    def _modules(self) -> Mapping[str, ModuleCode]:
        of = Hasher("own-modules.1").field("code", self._whole[_HEAD]).digest()
        known = facts.recall(self._cache, of) if self._cache is not None else None
        if known is not None:
            return {name: _from_json(each) for name, each in known.items()}
        modules = scan(_ROOT)
        if self._cache is not None:
            facts.remember(self._cache, of, {name: _to_json(each) for name, each in modules.items()})
        return modules

    def _digest(self, modules: Iterable[str]) -> Digest:
        return Hasher("code.1").append(b"".join([self._fields[name] for name in sorted(modules)])).digest()

    @cached_property
    def _fields(self) -> Mapping[str, bytes]:
        return {name: encode_field(name, each.digest) for name, each in self._modules.items()}

    def _closure(self, module: str) -> frozenset[str]:
        if module not in self._closures:
            within = [name for name in self._modules if name.startswith(f"{module}.")]
            self._closures[module] = _reached((module, *within), self._modules)
        return self._closures[module]


def scan(root: Path) -> dict[str, ModuleCode]:
    """Every module below a package's folder, by dotted name; raises OSError."""
    files = dict(sorted(_files(str(root), root.name)))
    return {name: _module_code(name, path, files.keys()) for name, path in files.items()}


def _files(folder: str, package: str) -> Iterator[tuple[str, str]]:
    """The modules below the folder of a package, by name, and their files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name, _, ending = entry.name.rpartition(".")
            if ending == "py":
                yield package if name == "__init__" else f"{package}.{name}", entry.path
            elif not name and entry.is_dir():
                yield from _files(entry.path, f"{package}.{entry.name}")


def _module_code(name: str, path: str, known: Collection[str]) -> ModuleCode:
    data, digest = take_source(path)
    text = data.decode("utf-8")
    running = _FOR_TYPES.sub("\n", text) if _TYPES_HEAD in text else text
    imports = {*_imported(running, known), *(_in_folders(name, text, known) if _SEARCH in text else ())}
    return ModuleCode(digest, tuple(sorted(imports)))


def _imported(text: str, known: Collection[str]) -> Iterator[str]:
    """The modules that statements import, wherever these stand."""
    for place in _lines_with(f"from {_HEAD}", text):
        if match := _FROM.match(text, place):
            package = match[1]
            for name in _imported_names(match[2]):
                module = f"{package}.{name}"
                # a name that is no module is defined in the package itself
                yield module if module in known else package
    for place in _lines_with(f"import {_HEAD}", text):
        if match := _WHOLE.match(text, place):
            yield match[1]


def _lines_with(head: str, text: str) -> Iterator[int]:
    """Where lines begin so, but for spaces. A plain search takes a tenth of a regular expression's time."""
    place = text.find(head)
    while place >= 0:
        before = text[text.rfind("\n", 0, place) + 1 : place]
        if not before or before.isspace():
            yield place
        place = text.find(head, place + 1)


def _imported_names(text: str) -> Iterator[str]:
    """The names in a statement, which may be in parentheses, renamed, and have comments behind them."""
    for line in text.strip("()").split("\n"):
        for name in line.partition("#")[0].split(","):
            if words := name.split():
                yield words[0]


def _in_folders(name: str, text: str, known: Collection[str]) -> Iterator[str]:
    """The modules in folders all of which a module imports."""
    folders = [match[1] for match in _FOLDER.finditer(text) if match[1] not in _BY_NAME]
    if _OWN_FOLDER in text:
        folders.append(name)
    for folder in folders:
        yield from (each for each in known if each.startswith(f"{folder}."))


def _reached(start: Iterable[str], modules: Mapping[str, ModuleCode], without: tuple[str, ...] = ()) -> frozenset[str]:
    """Modules and all that they import, with the packages that they lie in; what lies in others is left out."""
    found: set[str] = set()
    pending = list(start)
    while pending:
        name = pending.pop()
        if name in found or name.startswith(without):
            continue
        found.add(name)
        pending += modules[name].imports
        parent = name.rpartition(".")[0]
        if parent:
            pending.append(parent)
    return frozenset(found)


def _to_json(code: ModuleCode) -> list[Any]:
    return [code.digest.hex, code.digest.size, list(code.imports)]


def _from_json(value: Any) -> ModuleCode:
    hexadecimal, size, imports = value
    return ModuleCode(Digest(str(hexadecimal), int(size)), tuple(map(str, imports)))
