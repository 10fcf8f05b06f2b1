"""Which headers a translation unit read, under names without a place, and what else decided that; compiles nothing.

A header below an include folder of the build is `include/<number of the folder>/<path>`, any other one is
`system/<absolute path>`. What the compiler reads depends on more than these files: a file of the same name in a place
that is searched earlier would be read in a header's stead (a shadow), and a text can ask whether a header exists.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from relaybuild.build.cache.wire import WireError, bytes_field, expect_text, read_fields
from relaybuild.dataclass import dataclass

_NAME = re.compile(r"(?:include/[0-9]+|system)(?:/(?!\.{0,2}(?:/|\Z))[^/\0]+)+")
_ASKED = re.compile(r"__has_include(?:_next)?\s*\(\s*(?:<([^>\n]+)>|\"([^\"\n]+)\")")
_ASKED_BY_MACRO = re.compile(r"__has_include(?:_next)?\s*\(\s*[A-Za-z_]")
_TIME = re.compile(r"\b__(?:DATE|TIME|TIMESTAMP)__\b")
_TIMES = ("__DATE__", "__TIME__", "__TIMESTAMP__")
_ASKING = "__has_include"
_OTHER_WORDS = (".incbin", ".include", "embed")
_OTHER_FILES = re.compile(r"\.incbin\b|\.include\s+\\?\"|#\s*embed\b|\b__has_embed\b")


@dataclass(frozen=True)
class HeaderList:
    """What a unit read when it was last compiled: names of headers, and names whose existence its texts ask for.

    `objection` says why the object must not be kept; empty if nothing is against it.
    """

    names: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    objection: str = ""

    def encode(self) -> bytes:
        """The payload of a note."""
        return (
            b"".join(bytes_field(1, name) for name in self.names)
            + b"".join(bytes_field(2, name) for name in self.asked)
            + bytes_field(3, self.objection)
        )

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def decode(data: bytes) -> HeaderList:
        """The list of a payload, the same object for equal ones; raises WireError for what is none."""
        texts: dict[int, list[str]] = {1: [], 2: [], 3: []}
        for number, value in read_fields(data):
            if number not in texts:
                raise WireError("not a list of headers")
            texts[number].append(expect_text(value))
        if not all(map(_NAME.fullmatch, texts[1])) or any("\0" in name for name in texts[2]):
            raise WireError("a name that no header has")
        return HeaderList(tuple(texts[1]), tuple(texts[2]), "".join(texts[3]))


def objection_to_text(text: str) -> str:
    """Why what is made of a text of ours does not depend on headers alone; empty if it does."""
    # a search for a plain text takes a tenth of the time
    if any(word in text for word in _TIMES) and (match := _TIME.search(text)):
        return f"uses the time of the build ({match[0]})"
    if any(word in text for word in _OTHER_WORDS) and (match := _OTHER_FILES.search(text)):
        return f"reads files that are no headers ({match[0].split()[0]})"
    return "asks for a header by a macro" if _ASKING in text and _ASKED_BY_MACRO.search(text) else ""


def asked_headers(text: str) -> set[str]:
    """Names of headers whose existence a text asks for."""
    return {angled or quoted for angled, quoted in _ASKED.findall(text)} if _ASKING in text else set()


@dataclass
class Existence:
    """Whether files are there, as it was when something in their folder was first asked for.

    Many names are asked for in few folders: reading these takes less time than asking for each.
    """

    _folders: dict[str, frozenset[str]] = field(default_factory=dict)

    def __call__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self.names_in(folder)

    def names_in(self, folder: str) -> frozenset[str]:
        """The names of what is in a folder; none where there is no such folder."""
        names = self._folders.get(folder)
        if names is None:
            names = self._folders[folder] = _names_in(f"{folder}/")
        return names


@dataclass(frozen=True)
class SearchPath:
    """Where headers are looked for: the build's own folders, then others, all absolute, in the order of the search."""

    own: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, own: Iterable[str | os.PathLike[str]], others: Iterable[str]) -> SearchPath:
        """The search path of folders, as commands have them."""
        return cls(tuple(_settled(os.path.abspath(path)) for path in own), tuple(map(_settled, others)))

    def name_of(self, path: str) -> str:
        """The name of a header by its absolute path."""
        settled = _settled(path)
        for number, folder in enumerate(self.own):
            if settled.startswith(f"{folder}/"):
                return f"include/{number}/{settled[len(folder) + 1 :]}"
        return f"system{settled}"

    def path_of(self, name: str) -> str | None:
        """The path of a header by its name; None for a name that none has here."""
        kind, _, rest = name.partition("/")
        if kind == "system":
            return f"/{rest}"
        number, _, rest = rest.partition("/")
        return f"{self.own[int(number)]}/{rest}" if number.isdigit() and int(number) < len(self.own) else None

    def shadows(self, paths: Sequence[str], exists: Existence) -> list[str]:
        """Files that are there and would be found before the headers at `paths`, if these were asked for by name."""
        folders = (*self.own, *self.others)
        headers: dict[str, set[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            headers.setdefault(folder, set()).add(name)
        return [
            f"{place}/{name}"
            for folder, names in headers.items()
            for place in dict.fromkeys(_earlier(folder, folders, headers))
            for name in names & exists.names_in(place)
        ]

    def answers(self, asked: Iterable[str], paths: Sequence[str], exists: Existence) -> dict[str, tuple[str, ...]]:
        """Where headers are whose existence is asked for, by name."""
        folders = dict.fromkeys((*self.own, *self.others, *map(os.path.dirname, paths)))
        return {
            name: tuple(self.name_of(path) for folder in folders if exists(path := os.path.join(folder, name)))
            for name in asked
        }


def _earlier(folder: str, folders: Sequence[str], including: Iterable[str]) -> Iterator[str]:
    """Where headers in `folder` would be looked for before, by every name by which they may have been included."""
    for number, root in enumerate(folders):
        if f"{folder}/".startswith(f"{root}/"):
            below = folder[len(root) :]
            for place in (*including, *folders[:number]):
                if place + below != folder:
                    yield place + below


def folders_in(flags: Sequence[str], directory: str) -> list[str]:
    """Include folders among flags, as absolute paths; relative ones begin in `directory`."""
    found = []
    words = iter(flags)
    for word in words:
        for option in ("-isystem", "-iquote", "-idirafter", "-I"):
            if word.startswith(option):
                found.append(os.path.join(directory, word[len(option) :] or next(words, "")))
                break
    return found


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _settled(path: str) -> str:
    """A path without `..`, which string comparisons cannot see through."""
    if "/../" in path or path.endswith("/.."):
        return os.path.realpath(path)
    return os.path.normpath(path)
