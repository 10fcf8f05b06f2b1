"""Reads CMake's trace (`--trace-expand`) for what scripts ask of the machine other than by searches; knows no project.

What a script learns in a way that cannot be looked at again (the output of a program, the time) makes a run opaque: its
outcome holds for this run only.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from relaybuild.build.cmake_files import Inputs
from relaybuild.build.cmake_output import Position
from relaybuild.build.evidence import Subjects
from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Trace:
    """What a script learned by other commands than searches, and where variables were last set.

    `opaque` says what cannot be looked at again, if anything.
    """

    subjects: Subjects
    opaque: str
    assignments: Mapping[str, Position]


def trace_of(path: Path, inputs: Inputs, build: Path) -> Trace:
    """What the trace in the file at `path` tells."""
    reader = _TraceReader(inputs, build)
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            event = json.loads(line)
            if "cmd" in event:
                reader.feed(event["cmd"].lower(), event["args"], Position(event["file"], event["line"]))
    return reader.trace()


_OPAQUE_COMMANDS = frozenset(
    (
        "build_command",
        "cmake_host_system_information",
        "exec_program",
        "execute_process",
        "load_cache",
        "load_command",
        "site_name",
        "try_compile",
        "try_run",
    )
)
_CONTENT_COMMAND = re.compile(r"READ|STRINGS|SIZE|MD5|SHA\d.*")
_PURE_FILE_COMMANDS = frozenset(("RELATIVE_PATH", "TO_CMAKE_PATH", "TO_NATIVE_PATH"))
_PATH_TESTS = frozenset(("EXISTS", "IS_DIRECTORY", "IS_SYMLINK"))
_OPAQUE_TESTS = frozenset(("IS_NEWER_THAN", "IS_READABLE", "IS_WRITABLE", "IS_EXECUTABLE"))
# CMake's own scripts that find out what machine and compiler there are. What they say is decided by programs, which are
# looked at again as files, and by the machine, which is part of every key.
_MACHINE_SCRIPT = re.compile(r".*/Modules/(CMake[^/]*|(Internal|Compiler|Platform)/.*)\.cmake")


class _TraceReader:
    """Follows a trace command by command."""

    def __init__(self, inputs: Inputs, build: Path) -> None:
        self._own = inputs.own
        self._inside = f"{build}{os.sep}"
        self._files: set[str] = set()
        self._paths: set[str] = set()
        self._entries: set[tuple[str, str]] = set()
        self._assignments: dict[str, Position] = {}
        self._opaque = ""
        self._readers: Mapping[str, Callable[[Sequence[str], Position], None]] = {
            **dict.fromkeys(("if", "elseif", "while"), self._test),
            **dict.fromkeys(("set", "option"), self._assign),
            **dict.fromkeys(("include", "_include"), self._include),
            **dict.fromkeys(_OPAQUE_COMMANDS, self._run),
            "file": self._file,
            "string": self._string,
            "get_filename_component": self._component,
        }

    def feed(self, command: str, arguments: Sequence[str], position: Position) -> None:
        if (read := self._readers.get(command)) is not None and arguments:
            read(arguments, position)

    def trace(self) -> Trace:
        subjects = Subjects(self._outside(self._files), self._outside(self._paths), frozenset(self._entries))
        return Trace(subjects, self._opaque, self._assignments)

    def _outside(self, paths: Iterable[str]) -> frozenset[str]:
        """The paths that are not of the run itself."""
        return frozenset(path for path in paths if os.path.isabs(path) and not path.startswith(self._inside))

    def _forget(self, what: str, position: Position) -> None:
        """Note a command whose answer cannot be looked at again."""
        self._opaque = self._opaque or f"{what} at {position.file}:{position.line}"

    def _test(self, arguments: Sequence[str], position: Position) -> None:
        for test, path in itertools.pairwise(arguments):
            if test in _PATH_TESTS:
                self._paths.add(path)
        if _OPAQUE_TESTS.intersection(arguments):
            self._forget("a test of a file's time or rights", position)

    def _assign(self, arguments: Sequence[str], position: Position) -> None:
        self._assignments[arguments[0]] = position

    def _include(self, arguments: Sequence[str], position: Position) -> None:
        path = os.path.join(os.path.dirname(position.file), arguments[0])
        self._paths.update((path, f"{path}.cmake"))

    def _run(self, arguments: Sequence[str], position: Position) -> None:
        if position.file not in self._own or not _MACHINE_SCRIPT.fullmatch(position.file):
            self._forget("a command that runs programs or asks the machine", position)
        else:
            self._files.update(word for word in arguments if os.path.isabs(word) and os.access(word, os.X_OK))

    def _file(self, arguments: Sequence[str], position: Position) -> None:
        action, *operands = arguments
        if not operands or operands[0].startswith(self._inside):
            return
        if _CONTENT_COMMAND.fullmatch(action):
            self._files.add(operands[0])
        elif action in ("REAL_PATH", "READ_SYMLINK"):
            self._paths.add(operands[0])
        elif action == "GLOB":
            self._glob(operands[1:], position)
        elif action not in _PURE_FILE_COMMANDS and position.file not in self._own:
            self._forget(f"file({action})", position)

    def _glob(self, words: Sequence[str], position: Position) -> None:
        folders = [os.path.dirname(word) for word in words if os.path.isabs(word)]
        self._entries.update((folder, "") for folder in folders)
        if any(re.search(r"[*?\[]", folder) for folder in folders):
            self._forget("file(GLOB) over several folders", position)

    def _string(self, arguments: Sequence[str], position: Position) -> None:
        if arguments[0] in ("TIMESTAMP", "RANDOM", "UUID") and position.file not in self._own:
            self._forget(f"string({arguments[0]})", position)

    def _component(self, arguments: Sequence[str], position: Position) -> None:
        if "REALPATH" in arguments[2:]:
            self._paths.add(arguments[1])
        if "PROGRAM" in arguments[2:]:
            self._forget("get_filename_component(PROGRAM)", position)
