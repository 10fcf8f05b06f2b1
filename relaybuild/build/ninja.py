"""Writes `build.ninja` and runs ninja over it; the only place that knows ninja's syntax and its output.

It does not know what the rules build.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from relaybuild.build.process import tool_environment
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, ToolError, UserError

_WIDTH = 110
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_READ_BYTES = 1 << 16
_STATUS = "[relaybuild %f %t] "
_STATUS_LINE = re.compile(r"\[relaybuild (\d+) (\d+)\] (.*)")
_FAILED_LINE = re.compile(r"FAILED: (?:\[code=(\d+)\] )?")


@dataclass(frozen=True)
class Ref:
    """A ninja variable inside a command (`Ref("in")` is `$in`), with literal text directly before or after it."""

    name: str
    prefix: str = ""
    suffix: str = ""


Word: TypeAlias = str | Ref
Value: TypeAlias = str | int | Sequence[Word]
"""Text taken as it is; a number; or the words of a command line, each quoted for the shell where it must be."""


@dataclass(frozen=True)
class FinishedEdge:
    """One build step that ninja ran: its description, and the seconds from ninja's start to its end."""

    description: str
    seconds: float


class NinjaWriter:
    """Builds the text of a ninja file; escaping, quoting and line wrapping are its own business.

    Paths and words are given as they are. A path or a value with a line break, which ninja cannot express, is an
    InternalError.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def comment(self, text: str) -> None:
        """A comment of one or more lines."""
        self._lines.extend(f"# {line}".rstrip() for line in text.splitlines())

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def variable(self, name: str, value: Value) -> None:
        """A top-level variable; commands refer to it by `Ref(name)`."""
        self._assign(name, value, indent="")

    def pool(self, name: str, depth: int) -> None:
        """A pool that at most `depth` steps run in at a time."""
        self._lines.append(f"pool {_checked_name(name)}")
        self._assign("depth", depth)

    def rule(
        self,
        name: str,
        command: Sequence[Word],
        *,
        description: Sequence[Word] = (),
        depfile: Sequence[Word] = (),
        deps: str | None = None,
        restat: bool = False,
        pool: str | None = None,
        rspfile: Sequence[Word] = (),
        rspfile_content: Sequence[Word] = (),
    ) -> None:
        """A rule; in `command` each word becomes one argument, but a `Ref` to a list of words becomes that list."""
        self._lines.append(f"rule {_checked_name(name)}")
        self._assign("command", command)
        options: tuple[tuple[str, Sequence[Word]], ...] = (
            ("description", description),
            ("depfile", depfile),
            ("rspfile", rspfile),
            ("rspfile_content", rspfile_content),
        )
        for key, words in options:
            if words:
                self._lines.extend(_wrapped(f"  {key} =", [_unquoted(word) for word in words]))
        for key, text in (("deps", deps), ("restat", "1" if restat else None), ("pool", pool)):
            if text:
                self._assign(key, text)

    def build(
        self,
        outputs: Iterable[str],
        rule: str,
        inputs: Iterable[str] = (),
        *,
        implicit: Iterable[str] = (),
        order_only: Iterable[str] = (),
        variables: Mapping[str, Value] | None = None,
    ) -> None:
        """A build step; `implicit` inputs make it dirty but are not in `$in`, `order_only` ones must only exist."""
        tokens = [*map(_path, inputs)]
        for mark, paths in (("|", [*implicit]), ("||", [*order_only])):
            tokens.extend((mark, *map(_path, paths)) if paths else ())
        targets = " ".join(map(_path, outputs))
        self._lines.extend(_wrapped(f"build {targets}: {_checked_name(rule)}", tokens))
        for name, value in (variables or {}).items():
            self._assign(name, value)

    def default(self, targets: Iterable[str]) -> None:
        """What is built when nothing is asked for."""
        self._lines.extend(_wrapped("default", [*map(_path, targets)]))

    def text(self) -> str:
        """The whole file."""
        return "\n".join(self._lines) + "\n"

    def _assign(self, name: str, value: Value, *, indent: str = "  ") -> None:
        tokens = [_text(str(value))] if isinstance(value, str | int) else [_quoted(word) for word in value]
        self._lines.extend(_wrapped(f"{indent}{_checked_name(name)} =", tokens))


def find_ninja() -> str:
    """The path of ninja: beside this Python, of the PyPI package, or on the PATH; raises UserError if there is none."""
    beside = Path(sys.executable).parent / "ninja"
    if os.access(beside, os.X_OK):
        return str(beside)
    found = _packaged_ninja() or which("ninja")
    if found is None:
        raise UserError("ninja was not found, neither as a Python package nor on the PATH; run 'pip install ninja'")
    return found


OnStep: TypeAlias = Callable[[FinishedEdge], None]
"""Told of each step that has ended well, when it is known that it has."""


class RunningNinja:
    """A run of ninja that goes on while its caller does something else; `finish` or `stop` must be called."""

    def __init__(self, directory: Path, jobs: int | None, targets: Sequence[str] = ()) -> None:
        """Start bringing `targets` of `directory/build.ninja` up to date, as for `run_ninja`.

        What ninja writes is read in `advance` and `finish`; of more than some kilobytes, it waits until then.
        """
        self._command = [find_ninja(), *(["-j", str(jobs)] if jobs is not None else []), *targets]
        environment = tool_environment() | {"NINJA_STATUS": _STATUS}
        self._reader = _OutputReader(time.perf_counter())
        self._process = _started(self._command, directory, environment)
        self._rest = b""

    def advance(self, on_step: OnStep) -> None:
        """Tell of the steps that have ended by now, without waiting for others."""
        assert self._process.stdout is not None
        # unlike `select`, it takes descriptors of any number
        ready = select.poll()
        ready.register(self._process.stdout, select.POLLIN)
        while ready.poll(0) and self._read_some():
            pass
        self._reader.tell(on_step)

    def finish(
        self, on_progress: Callable[[int, int], None] | None = None, on_step: OnStep | None = None
    ) -> tuple[FinishedEdge, ...]:
        """Wait for the end; returns and raises as `run_ninja`, and stops ninja where that is interrupted."""
        with self._process as process:
            try:
                while self._read_some(on_progress):
                    if on_step is not None:
                        self._reader.tell(on_step)
            except BaseException:
                process.terminate()
                raise
        if on_step is not None:
            self._reader.tell(on_step, is_over=process.returncode == 0)
        self._reader.check(self._command, process.returncode)
        return tuple(self._reader.finished)

    def stop(self) -> None:
        """End ninja and what it started, if that has not ended yet."""
        with self._process as process:
            if process.poll() is None:
                process.terminate()

    def _read_some(self, on_progress: Callable[[int, int], None] | None = None) -> bool:
        """Read what there is, and wait for it where there is nothing yet; False at the end."""
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._reader.feed(line.decode(errors="replace"), on_progress)
        return bool(data)


def run_ninja(
    directory: Path,
    jobs: int | None,
    on_progress: Callable[[int, int], None] | None,
    targets: Sequence[str] = (),
) -> tuple[FinishedEdge, ...]:
    """Bring `targets` (default: what the file says) of `directory/build.ninja` up to date, at most `jobs` steps at a
    time (None: ninja's choice).

    Calls `on_progress(finished, total)` after each step, where `total` counts what had to be done this time. Returns
    the steps that ran. The first step that fails becomes a ToolError with that step's command and output alone.
    """
    return RunningNinja(directory, jobs, targets).finish(on_progress)


class Durations:
    """How long the steps took that a directory's log of ninja names, by output; it may be asked while ninja runs."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".ninja_log"
        self._read = 0
        self._seconds: dict[str, float] = {}

    def of(self, output: str) -> float:
        """How many seconds the step took that makes an output when it last ran; 0 where the log does not say."""
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + 1 if whole else 0
            for line in whole.decode(errors="replace").splitlines():
                fields = line.split("\t")
                if len(fields) == 5 and fields[0].isdigit() and fields[1].isdigit():
                    self._seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
        return self._seconds.get(output, 0.0)


def _started(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
    except OSError as error:
        raise ToolError(f"ninja could not be started: {error.strerror}", command=command, returncode=127) from error


class _OutputReader:
    """Follows ninja's output line by line: steps that finished, and what the first failed one printed."""

    def __init__(self, start: float) -> None:
        self.finished: list[FinishedEdge] = []
        self._start = start
        self._told = 0
        self._failed: set[int] = set()
        self._other: list[str] = []
        self._failure: list[str] | None = None
        self._failed_step = "a step"
        self._failure_code = 1
        self._in_failure = False

    def tell(self, on_step: OnStep, *, is_over: bool = False) -> None:
        """Tell of the steps that were not told of yet. Of the last one the next line may say that it has failed."""
        while self._told < len(self.finished) - (0 if is_over else 1):
            self._told += 1
            if self._told not in self._failed:
                on_step(self.finished[self._told - 1])

    def feed(self, line: str, on_progress: Callable[[int, int], None] | None) -> None:
        if match := _STATUS_LINE.fullmatch(line):
            self._in_failure = False
            self.finished.append(FinishedEdge(match[3], time.perf_counter() - self._start))
            if on_progress is not None:
                on_progress(int(match[1]), int(match[2]))
        elif match := _FAILED_LINE.match(line):
            self._failed.add(len(self.finished))
            if self._failure is not None:
                return
            self._failure, self._in_failure = [], True
            self._failed_step = self.finished[-1].description if self.finished else self._failed_step
            self._failure_code = int(match[1] or 1)
        elif self._in_failure and self._failure is not None and not line.startswith("ninja: "):
            self._failure.append(line)
        else:
            self._other.append(line)

    def check(self, ninja_command: Sequence[str], returncode: int) -> None:
        """Raise ToolError if a step or ninja itself failed."""
        if returncode == 0:
            return
        if self._failure is None:
            raise ToolError("ninja failed", command=ninja_command, returncode=returncode, output="\n".join(self._other))
        failed_command, *output = self._failure or [""]
        raise ToolError(
            f"the build step '{self._failed_step}' failed",
            command=_split(failed_command),
            returncode=self._failure_code,
            output="\n".join(output),
        )


def _packaged_ninja() -> str | None:
    try:
        import ninja
    except ImportError:
        return None
    path = Path(ninja.BIN_DIR) / "ninja"
    return str(path) if os.access(path, os.X_OK) else None


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InternalError(f"'{name}' cannot be the name of a ninja rule, pool or variable")
    return name


def _escaped(text: str) -> str:
    """`text` as part of a value."""
    if "\n" in text or "\r" in text:
        raise InternalError(f"ninja cannot express a line break: {text!r}")
    return text.replace("$", "$$")


def _text(text: str) -> str:
    """`text` as a whole value; ninja skips spaces after the equals sign unless they are escaped."""
    return f"${_escaped(text)}" if text.startswith(" ") else _escaped(text)


def _path(path: str) -> str:
    """`path` in a build line, where ninja has no escape for `|`."""
    if not path or "|" in path:
        raise InternalError(f"ninja cannot express the path {path!r}")
    return _escaped(path).replace(" ", "$ ").replace(":", "$:")


def _quoted(word: Word) -> str:
    """`word` as an argument in a command."""
    if isinstance(word, str):
        return _escaped(shlex.quote(word))
    before, after = (_escaped(shlex.quote(part)) if part else "" for part in (word.prefix, word.suffix))
    return f"{before}${{{_checked_name(word.name)}}}{after}"


def _unquoted(word: Word) -> str:
    """`word` in a value that no shell reads."""
    if isinstance(word, str):
        return _escaped(word)
    return f"{_escaped(word.prefix)}${{{_checked_name(word.name)}}}{_escaped(word.suffix)}"


def _wrapped(head: str, tokens: Sequence[str]) -> list[str]:
    """`head` and `tokens` over as many lines as needed, broken between tokens only."""
    indent = " " * (len(head) - len(head.lstrip()) + 4)
    lines = [head]
    for token in tokens:
        if len(lines[-1]) + 1 + len(token) > _WIDTH and lines[-1].strip() != "":
            lines[-1] += " $"
            lines.append(indent + token)
        else:
            lines[-1] += f" {token}"
    return lines
