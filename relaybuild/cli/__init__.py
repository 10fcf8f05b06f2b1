"""The command line: finds commands by file, turns errors into messages and exit codes; knows no command by name.

A command is a file of this folder that defines a click command `command`; the file's name is the command's, with
hyphens for underscores. It is imported when it is asked for, so that `relaybuild --version` needs neither numpy nor
onnx nor rich.
"""

from __future__ import annotations

import errno
import gc
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from relaybuild.cli._deferred_imports import defer_imports
from relaybuild.errors import InternalError, RelayBuildError

F = TypeVar("F", bound=Callable[..., Any])

_GARBAGE_THRESHOLD = 300_000
"""Allocations between two searches for garbage: Python's 700 would search thirty times while a command is imported.
A compilation has next to no cycles: without any search it takes as much memory."""

_IDLE_TICKS = "OPENBLAS_THREAD_TIMEOUT"
"""The variable that says for how many ticks of the clock, as a power of two, numpy's threads wait for work before they
sleep. As OpenBLAS has it, each takes a core away from compilers for a tenth of a second as soon as it has begun."""
_FEWEST_TICKS = "4"

_SELDOM_USED = ("ml_dtypes", "onnx._mapping")
"""What onnx imports for element types that few models have: to register them, numpy may take most of a second."""

EXIT_USER = 1
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

# What the machine, not relaybuild, has to answer for, wherever in the program it comes up.
_ENVIRONMENT_ERRORS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE)
)


class Program(click.Group):
    """The group of all commands. `main` ends the process with the exit code of the error that came up, if any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, sorted."""
        import pkgutil

        names = (entry.name for entry in pkgutil.iter_modules(__path__))
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
        module = f"{__name__}.{cmd_name.replace('-', '_')}"
        if cmd_name.startswith(("_", "-")) or "_" in cmd_name or not _is_module(module):
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` (default: those of the process) name, and exit."""
        # what imports allocate is no garbage
        gc.set_threshold(_GARBAGE_THRESHOLD, *gc.get_threshold()[1:])
        if _IDLE_TICKS not in os.environ:
            os.environ[_IDLE_TICKS] = _FEWEST_TICKS
        if standalone_mode:
            defer_imports(*_SELDOM_USED)
        arguments = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            _unwind_on_signals()
            result = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            code = result if isinstance(result, int) else 0
        except BrokenPipeError:
            code = _leave_pipe()
        except _Ended as ended:
            os.kill(os.getpid(), ended.number)
            raise
        except Exception as error:
            code = _report(error, arguments)
        # memory goes with the process: the interpreter need not search what is left for cycles, three times
        gc.freeze()
        sys.exit(code)


class _Ended(BaseException):
    """A signal asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _unwind_on_signals() -> None:
    """Let the signals that end a process unwind it first, so that no file of it stays; a second one ends it at once."""

    def end(number: int, _frame: object) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_DFL)
        raise _Ended(number)

    if threading.current_thread() is threading.main_thread():
        names = ("SIGTERM", "SIGHUP")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        caught = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
        for number in caught:
            signal.signal(number, end)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _leave_pipe() -> int:
    """The exit code when the reader of our output has gone; keeps the interpreter from complaining about the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_USER


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Print an error as its kind demands; returns the exit code."""
    if isinstance(error, click.Abort):
        _say("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        _say(_click_message(error))
        return EXIT_USER
    if isinstance(error, RelayBuildError) and not isinstance(error, InternalError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT_ERRORS:
        _say(f"'{error.filename}': {error.strerror}" if error.filename else str(error.strerror))
        return EXIT_USER
    from relaybuild.cli import _reproducer

    _reproducer.report(error, arguments)
    return EXIT_INTERNAL


def _say(message: str) -> None:
    click.echo(f"error: {message}", err=True)


def _click_message(error: click.ClickException) -> str:
    """What click found wrong with the arguments, as a sentence of ours, and where help is."""
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text}; see '{ctx.command_path} --help'" if ctx is not None else text


def _version() -> str:
    from relaybuild.cli import _reproducer

    return f"relaybuild {_reproducer.version()}"


def _include_dir() -> str:
    from relaybuild.runtime.sources import include_dir

    return include_dir().as_posix()


def _prefix() -> str:
    from relaybuild.build.share import share_dir

    return share_dir().as_posix()


def _printing(text: Callable[[], str], *names: str, help: str) -> Callable[[F], F]:
    """An option that prints a text, and nothing else, and ends."""

    def run(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(text())
            ctx.exit()

    return click.option(*names, is_flag=True, is_eager=True, expose_value=False, callback=run, help=help)


@click.command(cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@_printing(_version, "--version", help="Print it.")
@_printing(lambda: f"{_prefix()}/cmake", "--cmake-dir", "--cmakedir", help="Print the folder for relaybuild_DIR.")
@_printing(_include_dir, "--includedir", "--include-dir", help="Print the folder of the C and C++ headers.")
@_printing(_prefix, "--prefix", help="Print the folder for CMAKE_PREFIX_PATH.")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Compile neural networks ahead of time to self-contained native libraries."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
