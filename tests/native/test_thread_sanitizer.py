"""Models with regions and calls, called from several threads under ThreadSanitizer by C++ programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from boundary_models import calls, regions
from runners.compiled import threads_wanted_always

import relaybuild
from relaybuild.backends.selection import select
from relaybuild.runtime import include_dir

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
SANITIZER = "-fsanitize=thread"
REPORTED = 66
"""The exit code of a program that the sanitizer has complained of."""

SUPPRESSIONS = """\
# oneDNN is not compiled for the sanitizer, which does not see its threads wait.
race:libdnnl.so
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the libraries of two models are: every unit of both is compiled for the sanitizer."""
    made = tmp_path_factory.mktemp("threads")
    _require_sanitizer(os.environ.get("CXX", "c++"), made)
    flags = {"USE_CODEGENC": "ON", "USE_EXAMPLE_JSON": "ON", "USE_DNNL": "AUTO"}
    for name, module, chosen in (("model", regions(), flags), ("other", calls(), {})):
        with threads_wanted_always():
            artifact = relaybuild.compile(
                module, flags=chosen, name=name, cc=f"cc {SANITIZER} -g", save_temps=made / "sources" / name
            )
        owners = {region["backend"] for region in artifact.summary["regions"]}
        assert owners == {backend.name for backend in select(chosen).backends}
        assert artifact.summary["kernels"]
        artifact.export_library(made / f"lib{name}.so")
    (made / "suppressions").write_text(SUPPRESSIONS)
    return made


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return compile_program(folder, "threads")


def compile_program(folder: Path, name: str) -> Path:
    """The program data/NAME.cc with the libraries, compiled for the sanitizer."""
    words = [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", SANITIZER]
    words += [f"-I{include_dir()}", str(DATA / f"{name}.cc"), f"-L{folder}", "-lmodel", "-lother", "-Wl,-rpath,$ORIGIN"]
    done = subprocess.run([*words, "-o", str(folder / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / name


def _require_sanitizer(compiler: str, folder: Path) -> None:
    (folder / "empty.cc").write_text("int main() { return 0; }\n")
    command = [compiler, SANITIZER, "empty.cc", "-o", "empty"]
    if subprocess.run(command, cwd=folder, capture_output=True).returncode:
        pytest.skip(f"'{compiler}' has no ThreadSanitizer: its library (libtsan) is not installed")
    if "unexpected memory mapping" in subprocess.run([folder / "empty"], capture_output=True, text=True).stderr:
        pytest.skip("this kernel's address layout is not the thread sanitizer's")


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TSAN_OPTIONS": "suppressions=suppressions exitcode=66"}
    command = [program, *words]
    return subprocess.run(command, cwd=program.parent, env=environ, capture_output=True, text=True, timeout=300)


def test_eight_threads_have_the_results_of_one(program: Path) -> None:
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_race_in_the_model_is_seen(program: Path) -> None:
    done = run(program, "race")
    assert done.returncode == REPORTED
    assert "data race src/" in done.stderr


def test_four_threads_with_two_models_share_a_pool(folder: Path) -> None:
    done = run(compile_program(folder, "shared_pool"))
    assert (done.returncode, done.stderr) == (0, "")
