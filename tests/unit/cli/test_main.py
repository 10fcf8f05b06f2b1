"""Finding commands, and what each kind of error looks like from outside."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import relaybuild.cli
from cli.conftest import ROOT, Invoke
from relaybuild.errors import InternalError, ToolError, UserError

COMMANDS = [
    "bench",
    "cache",
    "compile",
    "fmt",
    "init",
    "inspect",
    "new-backend",
    "partition",
    "passes",
    "run",
    "verify",
]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `relaybuild run` raise something."""

    def arrange(error: BaseException) -> None:
        @click.command()
        @click.argument("arguments", nargs=-1)
        def command(arguments: tuple[str, ...]) -> None:
            raise error

        monkeypatch.setattr(importlib.import_module("relaybuild.cli.run"), "command", command)

    return arrange


def test_commands_are_the_files_of_the_folder(invoke: Invoke) -> None:
    files = {path.stem.replace("_", "-") for path in Path(relaybuild.cli.__file__).parent.glob("[!_]*.py")}
    assert sorted(files) == COMMANDS
    result = invoke("--help")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines()] == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(invoke: Invoke, name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: relaybuild {name} ")


def test_help_without_arguments(invoke: Invoke) -> None:
    assert invoke().stdout == invoke("-h").stdout
    assert invoke().exit_code == 0


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("--cmake-dir", "relaybuildConfig.cmake"),
        ("--cmakedir", "relaybuildConfig.cmake"),
        ("--includedir", "relaybuild/model.h"),
        ("--prefix", "cmake/relaybuildConfig.cmake"),
    ],
)
def test_places_for_other_build_systems(option: str, file: str) -> None:
    code = (
        "import sys\nfrom relaybuild.cli import main\n"
        f"try: main([{option!r}])\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print([m for m in ('numpy', 'onnx', 'rich', 'diskcache') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    (line,) = done.stdout.splitlines()
    assert (Path(line) / file).is_file()
    assert "\\" not in line
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_version_and_help_are_light(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom relaybuild.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit as end: assert end.code == 0, end.code\n"
        "print([m for m in ('numpy', 'onnx', 'rich', 'diskcache') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout
    if arguments == ["--version"]:
        assert done.stdout.startswith("relaybuild ")
        assert done.stderr == "[]\n"


def test_numpys_threads_sleep_while_they_have_nothing_to_do() -> None:
    code = (
        "import time\nfrom relaybuild.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: import numpy\n"
        "time.sleep(0.1)\nprint(time.process_time() - time.thread_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert float(done.stdout.splitlines()[-1]) < 0.01


def test_element_types_that_numpy_lacks_are_registered_for_models_that_have_them(
    digits_model: Path, tmp_path: Path
) -> None:
    arguments = ["compile", str(digits_model), "-o", str(tmp_path / "digits.so"), "--no-cache"]
    code = (
        "import sys\nfrom relaybuild.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit as end: print(end.code)\n"
        "import relaybuild.ir.parser\n"
        "print('onnx' in sys.modules, 'ml_dtypes._ml_dtypes_ext' in sys.modules)\n"
        "from relaybuild.ir.dtypes import numpy_dtype\nprint(numpy_dtype('bfloat16'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-3:] == ["0", "True False", "bfloat16"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compil"], "no such command 'compil'"),
        (["compile", "m.onnx"], "missing option '-o' / '--output'"),
        (["compile", "m.onnx", "-o", "m.so", "--threads", "0"], "invalid value for '--threads': 0 is not in the range"),
        (["verify", "m.onnx"], "missing argument 'LIBRARY'"),
    ],
)
def test_wrong_arguments(invoke: Invoke, arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
    command = "relaybuild" if arguments == ["compil"] else f"relaybuild {arguments[0]}"
    assert result.stderr.endswith(f"; see '{command} --help'\n")


def test_user_error(invoke: Invoke, failing: Callable[[BaseException], None]) -> None:
    failing(UserError("it is bad", where="m.onnx", notes=["while reading"]))
    result = invoke("run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: m.onnx: it is bad\n  note: while reading\n"


def test_tool_error(invoke: Invoke, failing: Callable[[BaseException], None]) -> None:
    failing(ToolError("the compiler failed", command=["cc", "x.c"], returncode=4, output="x.c:1: no\n"))
    result = invoke("run")
    assert result.exit_code == 2
    assert result.stderr == "error: the compiler failed\n  command: cc x.c\n  exit code: 4\n    x.c:1: no\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_errors_of_the_machine(invoke: Invoke, failing: Callable[[BaseException], None], code: int) -> None:
    failing(OSError(code, os.strerror(code), "/some/file"))
    result = invoke("run")
    assert result.exit_code == 1
    assert result.stderr == f"error: '/some/file': {os.strerror(code)}\n"


@pytest.mark.parametrize("error", [InternalError("an invariant broke"), KeyError("x"), OSError(errno.ENOENT, "gone")])
def test_own_faults_leave_a_reproducer(
    invoke: Invoke,
    failing: Callable[[BaseException], None],
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = tmp_path / "a model.onnx"
    model.write_bytes(b"model")
    failing(error)
    result = invoke("run", f"x={model}")
    assert result.exit_code == 70
    assert "Traceback (most recent call last):" in result.stderr
    assert "error: this is a fault of relaybuild, not of your model\n" in result.stderr
    (folder,) = tmp_path.glob("relaybuild-failure-*")
    assert f"'{folder}'" in result.stderr
    assert (folder / "a model.onnx").read_bytes() == b"model"
    report = (folder / "report.txt").read_text()
    assert report.startswith(f"command: relaybuild run 'x={model}'\n")
    assert type(error).__name__ in report


def test_interrupt(invoke: Invoke, failing: Callable[[BaseException], None]) -> None:
    failing(KeyboardInterrupt())
    result = invoke("run")
    assert result.exit_code == 130
    assert result.stderr.strip() == "error: interrupted"


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "import sys; from relaybuild.cli import main; main(['--help'])"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_as_a_module(spawn: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    done = spawn("inspect", tmp_path / "none.so")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {tmp_path}/none.so: there is no such file, expected a model library\n"


ENDED = [("INT", 130, "error: interrupted"), ("TERM", -signal.SIGTERM, ""), ("HUP", -signal.SIGHUP, "")]


@pytest.mark.parametrize(("name", "code", "said"), ENDED, ids=[row[0] for row in ENDED])
def test_interrupt_of_a_build(digits_model: Path, tmp_path: Path, name: str, code: int, said: str) -> None:
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "relaybuild", "compile", str(digits_model), "-o", str(tmp_path / "m.so")]
    # what other tests have made would leave nothing to interrupt
    command.append("--no-cache")
    # whoever runs tests in the background of a shell has them ignore interrupts, and their children, too
    command = ["env", f"--default-signal={name}", f"TMPDIR={tmp_path / 'temporary'}", *command]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("codegen:"):
            assert process.poll() is None
        process.send_signal(getattr(signal, f"SIG{name}"))
        rest = process.stderr.read()
    assert (process.returncode, rest.strip()) == (code, said)
    assert [*tmp_path.rglob("*")] == [tmp_path / "temporary"]
