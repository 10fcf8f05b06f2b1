"""Runs the detection project of the share folder over a request; does not decide what the answer means.

Everything that the run read, or looked for, comes back with the answer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relaybuild.build import cmake
from relaybuild.build.cmake import DetectRequest
from relaybuild.build.cmake_files import Inputs, inputs_of, request_inputs, variables_of
from relaybuild.build.cmake_output import CMakeError, Position, errors_of, searches_of
from relaybuild.build.cmake_trace import trace_of
from relaybuild.build.evidence import Subjects
from relaybuild.build.ninja import find_ninja
from relaybuild.build.process import Completed, run_together
from relaybuild.build.share import share_dir
from relaybuild.build.variables import Reader, shown_to
from relaybuild.dataclass import dataclass
from relaybuild.errors import ToolError, UserError

_TOO_OLD = re.compile(r"CMake \S+ or higher is required")
_CMAKES_SCRIPT = re.compile(r".*/share/cmake[^/]*/Modules/.*")
_TIMEOUT = 300.0


@dataclass(frozen=True)
class Detection:
    """What the detection project wrote (`cmake/detect/CMakeLists.txt`), where the script last set each variable, and
    what the answer rests upon. `opaque` says what cannot be looked at again, if anything."""

    result: Mapping[str, Any]
    assignments: Mapping[str, Position]
    subjects: Subjects
    opaque: str


def shown(position: Position, config: Path | None) -> str:
    """A place in a script as the user knows it: relative to the folder of the configuration if it is below that, which
    is named as it was given."""
    file = Path(position.file)
    if config is not None and file.is_relative_to(os.path.abspath(config.parent)):
        file = config.parent / file.relative_to(os.path.abspath(config.parent))
    return f"{file}:{position.line}"


def detect(request: DetectRequest, folder: Path, environ: Mapping[str, str]) -> Detection:
    """Run CMake in an empty folder, without links in its path.

    Raises UserError for an error of the user's script, ToolError for any other.
    """
    result, trace_file = folder / "result.json", folder / "trace.json"
    (folder / "request.cmake").write_text(_request_text(request, result), encoding="utf-8")
    completed, inputs, variables = _run_informed(request, folder, environ)
    if completed.returncode != 0:
        raise _error(completed, request.config)
    architecture = cmake.python_environment()["CMAKE_LIBRARY_ARCHITECTURE"][0]
    searches = searches_of(completed.output, folder, architecture)
    if inputs is None or searches is None:
        why = "this cmake does not say what it read"
        return Detection(json.loads(result.read_text(encoding="utf-8")), {}, Subjects(), why)
    trace = trace_of(trace_file, inputs, folder)
    files = frozenset(path for path in inputs.scripts | inputs.own if not path.startswith(f"{folder}{os.sep}"))
    return Detection(
        result=json.loads(result.read_text(encoding="utf-8")),
        assignments=trace.assignments,
        subjects=Subjects(files=files) | variables | searches | trace.subjects,
        opaque=trace.opaque,
    )


def _run_informed(
    request: DetectRequest, folder: Path, environ: Mapping[str, str]
) -> tuple[Completed, Inputs | None, Subjects]:
    """Run CMake, and again if a script turns out to name a variable that it was not shown."""
    build, named = folder / "build", _named_in(request)
    while True:
        shutil.rmtree(build, ignore_errors=True)
        request_inputs(build)
        completed = _run(request, folder, environ, named)
        inputs = inputs_of(build)
        variables = variables_of(inputs, environ) if inputs is not None else Subjects()
        if shown_to(Reader.CMAKE, environ, variables.variables).keys() <= shown_to(Reader.CMAKE, environ, named).keys():
            return completed, inputs, variables
        named |= variables.variables


def _named_in(request: DetectRequest) -> frozenset[str]:
    """The variables that the scripts of a request name; those of scripts that they include are known after a run."""
    files = (request.config, *request.modules.values())
    scripts = frozenset(os.path.abspath(file) for file in files if file is not None)
    return variables_of(Inputs(scripts, frozenset()), {}).variables


def _run(request: DetectRequest, folder: Path, environ: Mapping[str, str], named: frozenset[str]) -> Completed:
    """Run the first cmake that is not too old."""
    *older, last = cmake.find_cmakes(environ)
    arguments = (
        *("-S", str(share_dir() / "cmake" / "detect"), "-B", str(folder / "build"), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={find_ninja()}",
        f"-DRELAYBUILD_REQUEST_FILE={folder / 'request.cmake'}",
        *(f"-D{name}={value}" for name, value in request.given.items()),
        *("--debug-find", "--trace-expand", "--trace-format=json-v1", f"--trace-redirect={folder / 'trace.json'}"),
        "-Wno-dev",
    )
    for program in older:
        completed = _completed((program, *arguments), environ, named)
        if completed.returncode == 0 or not _TOO_OLD.search(completed.output):
            return completed
    return _completed((last, *arguments), environ, named)


def _completed(command: Sequence[str], environ: Mapping[str, str], named: frozenset[str]) -> Completed:
    (completed,) = run_together([command], environ=environ, reader=Reader.CMAKE, named=named, timeout=_TIMEOUT)
    return completed


def _request_text(request: DetectRequest, result: Path) -> str:
    config = os.path.abspath(request.config) if request.config is not None else ""
    values: dict[str, Iterable[str]] = {
        "RELAYBUILD_RESULT_FILE": (str(result),),
        "RELAYBUILD_CONFIG": (config,),
        "RELAYBUILD_CONFIG_DIR": (os.path.dirname(config),),
        "RELAYBUILD_FLAGS": request.modules,
        "RELAYBUILD_GIVEN": request.given,
        **{f"RELAYBUILD_MODULE_{flag}": (str(file or ""),) for flag, file in request.modules.items()},
        **{f"RELAYBUILD_GIVEN_{name}": (value,) for name, value in request.given.items()},
        **cmake.python_environment(),
    }
    return "".join(f"set({name} {_quoted(';'.join(words))})\n" for name, words in values.items())


def _quoted(text: str) -> str:
    """A text as an argument in which CMake replaces nothing."""
    bar = "="
    while f"]{bar}]" in f"{text}]":
        bar += "="
    return f"[{bar}[{text}]{bar}]"


def _error(completed: Completed, config: Path | None) -> UserError | ToolError:
    """The first error that has to do with the user's script, or else what the tool printed of its errors."""
    errors = errors_of(completed.output)
    script = os.path.abspath(config) if config is not None else None
    for error in errors:
        if any(position.file == script for position in error.stack):
            places = (p for p in error.stack if os.path.isabs(p.file) and not _CMAKES_SCRIPT.fullmatch(p.file))
            # The project's own include() calls CMake's by another name.
            return UserError(error.message.replace("_include ", "include ", 1), where=shown(next(places), config))
    return ToolError(
        "cmake failed to evaluate the CMake modules of the backends",
        command=completed.command[:1],
        returncode=completed.returncode,
        output="\n".join(map(_line, errors)) or completed.output,
    )


def _line(error: CMakeError) -> str:
    places = "".join(f"{position.file}:{position.line}: " for position in error.stack[:1])
    return f"{places}{error.message}"
