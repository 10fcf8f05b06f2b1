"""Runs the tools of a build in an environment that cannot change what they make; does not know what they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaybuild.errors import ToolError

# Variables by which a user's shell silently changes what gcc, clang or ld write, or where they write it.
_DROPPED = frozenset(
    (
        "CCC_OVERRIDE_OPTIONS",
        "DEPENDENCIES_OUTPUT",
        "GCC_COMPARE_DEBUG",
        "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
        "LANGUAGE",
        "LD_RUN_PATH",
        "LDEMULATION",
        "SUNPRO_DEPENDENCIES",
    )
)


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


def tool_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a tool: `environ` (default: ours) in the C locale, without variables that change outputs."""
    source = os.environ if environ is None else environ
    return {name: value for name, value in source.items() if name not in _DROPPED} | {"LC_ALL": "C"}


def run_together(
    commands: Sequence[Sequence[str]], *, environ: Mapping[str, str] | None = None, timeout: float = 60.0
) -> list[Completed]:
    """Run independent short commands at the same time and return them in order, successful or not.

    Raises ToolError if one cannot be started or takes longer than `timeout` seconds.
    """
    environment = tool_environment(environ)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(_start(command, environment))
        return [_finish(process, command, timeout) for process, command in zip(running, commands)]
    finally:
        for process in running:
            _end(process)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    except OSError as error:
        raise ToolError(
            f"'{command[0]}' could not be started: {error.strerror}", command=command, returncode=127
        ) from error


def _finish(process: subprocess.Popen[bytes], command: Sequence[str], timeout: float) -> Completed:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"'{command[0]}' did not end within {timeout:g} seconds", command=command, returncode=124
        ) from error
    return Completed(tuple(command), process.returncode, output.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
