"""Reads what CMake prints: errors, and under `--debug-find` where it searched; knows no project."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from relaybuild.build.evidence import Subjects
from relaybuild.dataclass import dataclass

_BLOCK = re.compile(
    r"CMake (?P<kind>Error|Warning|Deprecation Warning|Debug Log)(?: \(dev\))?"
    r"(?: (?:at|in) (?P<file>.+?):(?P<line>\d+)(?: \((?P<command>[^)]*)\))?)?:?\s*(?P<rest>.*)"
)
_CALL_STACK = "Call Stack (most recent call first):"
_FRAME = re.compile(r"\s+(.+?):(\d+) \((.*)\)")


@dataclass(frozen=True)
class Position:
    """A place in a script: its file as CMake names it, and the line, from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class CMakeError:
    """An error that CMake reported: its text, and where it came up, innermost place first."""

    message: str
    stack: tuple[Position, ...]


def errors_of(output: str) -> tuple[CMakeError, ...]:
    """The errors in CMake's output, in order."""
    return tuple(_error(head, body) for head, body in _blocks(output) if head["kind"] == "Error")


def _blocks(output: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Messages of CMake: the first line, and the indented or empty lines after it, with the call stack."""
    head: re.Match[str] | None = None
    body: list[str] = []
    for line in output.splitlines():
        if match := _BLOCK.fullmatch(line):
            if head is not None:
                yield head, body
            head, body = match, []
        elif head is not None and (not line or line[0].isspace() or line == _CALL_STACK):
            body.append(line)
        elif head is not None:
            yield head, body
            head, body = None, []
    if head is not None:
        yield head, body


def _error(head: re.Match[str], body: Sequence[str]) -> CMakeError:
    end = body.index(_CALL_STACK) if _CALL_STACK in body else len(body)
    frames = [match for line in body[end:] if (match := _FRAME.fullmatch(line))]
    stack = [Position(frame[1], int(frame[2])) for frame in frames]
    if head["file"]:
        stack.insert(0, Position(head["file"], int(head["line"])))
    text = _unwrapped([head["rest"], *body[:end]])
    command = head["command"]
    # An error of a command names it in its text, or gets it in front; `message` speaks for itself.
    if command and command != "message" and command not in text:
        text = f"{command}: {text}"
    return CMakeError(text, tuple(stack))


def _unwrapped(lines: Iterable[str]) -> str:
    """Paragraphs, which CMake breaks at 80 columns and indents by two, as a line each."""
    paragraphs: list[str] = []
    is_open = False
    for line in lines:
        text = line.strip()
        if not text:
            is_open = False
        elif is_open:
            paragraphs[-1] += f" {text}"
        else:
            paragraphs.append(text)
            is_open = True
    return " ".join(paragraphs)


_PLACE = re.compile(r"    (/.*|[A-Za-z]:/.*)")
_NAME = re.compile(r'\s+(?:NAMES: )?"(.*)"')
_PACKAGE_FILE = re.compile(r"(?:Find(?P<find>.+)|(?P<config>.+?)(?:Config|-config))\.cmake|(?P<cps>.+)\.cps")
_PACKAGE_PARENTS = ("lib", "lib32", "lib64", "share")
# Below each prefix, the folders in which an entry that begins with a package's name may hold the package's files.
_PACKAGE_FOLDERS = ("", "cmake", "CMake", *_PACKAGE_PARENTS, *(f"{parent}/cmake" for parent in _PACKAGE_PARENTS))


def searches_of(output: str, build: Path, architecture: str) -> Subjects | None:
    """Every place where CMake searched, from its output under `--debug-find`; None if it tells nothing.

    `architecture` is the name of the machine's folders in `lib`, such as `x86_64-linux-gnu`, or an empty text.
    """
    entries: set[tuple[str, str]] = set()
    blocks = 0
    for head, body in _blocks(output):
        if head["kind"] == "Debug Log":
            blocks += 1
            places = [match[1] for line in body if (match := _PLACE.fullmatch(line))]
            places = [place for place in places if not place.startswith(f"{build}{os.sep}")]
            if head["command"] == "find_package":
                entries |= _package_entries(places, architecture)
            else:
                entries |= _file_entries(places, [match[1] for line in body if (match := _NAME.fullmatch(line))])
    return Subjects(entries=frozenset(entries)) if blocks else None


def _file_entries(places: Iterable[str], names: Sequence[str]) -> set[tuple[str, str]]:
    """Where a file of one of the names would have been seen, or was."""
    entries: set[tuple[str, str]] = set()
    for place in places:
        folder, last = os.path.split(place)
        if last:
            entries.add((os.path.normpath(folder), _stem(last)))
            continue
        # A folder in which one of the names was found.
        for name in names:
            directory, base = os.path.split(os.path.join(folder, name))
            entries.add((os.path.normpath(directory), base))
    return entries


def _stem(name: str) -> str:
    """What any library's file that a pattern such as `(lib)foo(\\.so|\\.a)` stands for has in its name."""
    if "(" not in name:
        return name
    bare = re.sub(r"\([^)]*\)", "", name).replace("\\", "")
    return bare.removeprefix("lib") or bare


def _package_entries(places: Sequence[str], architecture: str) -> set[tuple[str, str]]:
    """Where a package would have been seen: its files that were looked for, and folders of it below prefixes."""
    entries: set[tuple[str, str]] = set()
    prefixes: list[str] = []
    packages: set[str] = set()
    for place in places:
        folder, last = os.path.split(place.rstrip("/"))
        if match := _PACKAGE_FILE.fullmatch(last):
            entries.add((os.path.normpath(folder), last))
            packages.add(match["find"] or match["config"] or match["cps"])
        else:
            prefixes.append(place)
    folders = [*_PACKAGE_FOLDERS, *((f"lib/{architecture}", f"lib/{architecture}/cmake") if architecture else ())]
    entries |= {
        (os.path.normpath(os.path.join(prefix, folder)), package)
        for prefix in prefixes
        for folder in folders
        for package in packages
    }
    entries |= {(os.path.expanduser("~/.cmake/packages"), package) for package in packages}
    return entries
