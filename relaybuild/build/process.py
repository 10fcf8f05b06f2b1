"""Runs the tools of a build in an environment that cannot change what they make; does not know what they are."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from relaybuild.build.variables import Reader, shown_to
from relaybuild.dataclass import dataclass
from relaybuild.errors import ToolError

if TYPE_CHECKING:
    import subprocess


@dataclass(frozen=True)
class Completed:
    """A finished command: its exit code (negative: the signal that ended it) and what it wrote, both streams merged."""

    command: tuple[str, ...]
    returncode: int
    output: str

    def check(self, message: str) -> Completed:
        """This value if the command succeeded; raises ToolError with `message` otherwise."""
        if self.returncode != 0:
            raise ToolError(message, command=self.command, returncode=self.returncode, output=self.output)
        return self


def tool_environment(
    environ: Mapping[str, str] | None = None, reader: Reader = Reader.TOOL, named: Collection[str] = ()
) -> dict[str, str]:
    """The environment for a tool: of `environ` (default: ours) what is registered for it, and what is in `named`, in
    the C locale."""
    return shown_to(reader, os.environ if environ is None else environ, named) | {"LC_ALL": "C"}


def run_together(
    commands: Sequence[Sequence[str]],
    *,
    environ: Mapping[str, str] | None = None,
    reader: Reader = Reader.TOOL,
    named: Collection[str] = (),
    timeout: float = 60.0,
    meanwhile: Callable[[], object] | None = None,
) -> list[Completed]:
    """Run independent short commands at the same time and return them in order, successful or not.

    They see what `tool_environment` lets them see. `meanwhile` is called while they run: they may write some kilobytes
    until it returns, then they wait for it. Raises ToolError if one cannot be started or takes longer than
    `timeout` seconds.
    """
    environment = tool_environment(environ, reader, named)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(_start(command, environment))
        if meanwhile is not None:
            meanwhile()
        return [_finish(process, command, timeout) for process, command in zip(running, commands)]
    finally:
        for process in running:
            _end(process)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    import subprocess

    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            # so that what it has started ends with it
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(
            f"'{command[0]}' could not be started: {error.strerror}", command=command, returncode=127
        ) from error


def _finish(process: subprocess.Popen[bytes], command: Sequence[str], timeout: float) -> Completed:
    import subprocess

    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"'{command[0]}' did not end within {timeout:g} seconds", command=command, returncode=124
        ) from error
    return Completed(tuple(command), process.returncode, output.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
