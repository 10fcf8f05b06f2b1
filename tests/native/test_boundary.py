"""C and C++ programs at the boundary of a model's library, watched, in children, and with everything running out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import boundary_models
import pytest
from runners.compiled import runnable_targets, threads_wanted_always

import relaybuild
from relaybuild.runtime import include_dir

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
FLAGS = {"USE_CODEGENC": "ON", "USE_EXAMPLE_JSON": "ON"}
"""The second brings C++ into a library."""
MODELS = {"calls": boundary_models.calls, "regions": boundary_models.regions}
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
STRICT = ("-Wall", "-Wextra", "-Werror", "-O1")


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `libmodel.so` and `model.h` are: for a processor that valgrind understands, with threads in each run."""
    made = tmp_path_factory.mktemp(request.param)
    target = next(target for target in runnable_targets() if target != "x86-64-v4")
    flags = FLAGS if request.param == "regions" else {}
    with threads_wanted_always():
        artifact = relaybuild.compile(
            MODELS[request.param](), flags=flags, name="model", target=target, save_temps=made / "sources"
        )
    backends = {region["backend"] for region in artifact.summary["regions"]}
    assert backends == ({"codegen_c", "example_json"} if request.param == "regions" else set())
    artifact.export_library(made / "libmodel.so")
    (made / "model.h").write_text(artifact.header)
    return made


def compile_c(folder: Path, name: str, flags: Sequence[str] = ()) -> Path:
    """The program data/NAME.c, which finds the library by itself."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", *STRICT, *flags, f"-I{include_dir()}", str(DATA / f"{name}.c")]
    return _made([*command, "-pthread", "-ldl"], folder / f"{name}-c")


def compile_cpp(folder: Path, *files: str, flags: Sequence[str] = ()) -> Path:
    """The program of files in data/, linked to the library."""
    compiler = os.environ.get("CXX", "c++")
    includes = (f"-I{folder}", f"-I{include_dir()}", f"-I{DATA}")
    sources = [str(folder / file) if file.endswith(".o") else str(DATA / file) for file in files]
    words = [compiler, "-std=c++17", *STRICT, *flags, *includes, *sources, f"-L{folder}", "-lmodel", "-pthread"]
    return _made([*words, "-Wl,-rpath,$ORIGIN"], folder / f"{Path(files[0]).stem}-cpp")


def _made(command: list[str], program: Path) -> Path:
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return program


def run(command: Sequence[str | Path], timeout: int = 120, **variables: str) -> str:
    """What a program prints; it has to end well, and to say nothing on stderr."""
    environ = {**os.environ, **variables}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_c_program_under_the_sanitizers(folder: Path) -> None:
    run([compile_c(folder, "boundary", SANITIZERS), folder / "libmodel.so", "run"])


def test_a_cpp_program_under_the_sanitizers(folder: Path) -> None:
    run([compile_cpp(folder, "boundary_cpp.cc", flags=SANITIZERS)])


def valgrind(*command: str | Path) -> None:
    program = shutil.which("valgrind")
    if program is None:
        pytest.skip("there is no valgrind")
    words = ("-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible")
    run([program, *words, *command], timeout=300)


def test_a_c_program_under_valgrind(folder: Path) -> None:
    valgrind(compile_c(folder, "boundary", ("-g",)), folder / "libmodel.so", "run")


def test_a_cpp_program_under_valgrind(folder: Path) -> None:
    valgrind(compile_cpp(folder, "boundary_cpp.cc", flags=("-g",)))


def test_parent_and_children_run_what_was_loaded_before(folder: Path) -> None:
    run([compile_c(folder, "boundary"), folder / "libmodel.so", "fork"])


def test_a_hundred_loads_leave_nothing(folder: Path) -> None:
    # what lies in a thread's cache of free blocks would count as allocated
    tunables = "glibc.malloc.tcache_count=0"
    grown = run([compile_c(folder, "boundary"), folder / "libmodel.so", "reload"], GLIBC_TUNABLES=tunables)
    assert grown.startswith("threads +0, files +0, ")


def test_whatever_is_missing_is_said_and_nothing_stays(folder: Path) -> None:
    if not Path("/lib64/ld-linux-x86-64.so.2").exists():
        pytest.skip("the functions that fail stand in front of those of glibc")
    flags = (f"-I{DATA}", "-c")
    command = [os.environ.get("CC", "cc"), "-std=gnu11", *STRICT, *flags, str(DATA / "faults.c")]
    _made(command, folder / "faults.o")
    program = compile_cpp(folder, "boundary_faults.cc", "faults.o", flags=("-rdynamic", "-ldl"))
    points = dict(line.rsplit(": ", 1) for line in run([program]).splitlines())
    assert set(points) >= {"create", "create with threads", "threads", "pool", "create_with", "C++ with exceptions"}
    assert all(int(count.split()[0]) > 0 for name, count in points.items())
