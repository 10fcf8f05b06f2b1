"""A model with regions of several backends, called from eight threads under ThreadSanitizer by a C++ program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from boundary_models import regions
from runners.compiled import threads_wanted_always

import relaybuild
from relaybuild.backends.selection import select
from relaybuild.runtime import include_dir

pytestmark = pytest.mark.slow

HARNESS = Path(__file__).parent / "data" / "threads.cc"
SANITIZER = "-fsanitize=thread"
REPORTED = 66
"""The exit code of a program that the sanitizer has complained of."""

SUPPRESSIONS = """\
# oneDNN is not compiled for the sanitizer, which does not see its threads wait.
race:libdnnl.so
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness with the model's library: every unit of both is compiled for the sanitizer."""
    folder = tmp_path_factory.mktemp("threads")
    compiler = os.environ.get("CXX", "c++")
    _require_sanitizer(compiler, folder)
    flags = {"USE_CODEGENC": "ON", "USE_EXAMPLE_JSON": "ON", "USE_DNNL": "AUTO"}
    with threads_wanted_always():
        artifact = relaybuild.compile(regions(), flags=flags, name="model", cc=f"cc {SANITIZER} -g", save_temps=folder)
    owners = {region["backend"] for region in artifact.summary["regions"]}
    assert owners == {backend.name for backend in select(flags).backends} >= {"codegen_c", "example_json"}
    assert artifact.summary["kernels"]
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", SANITIZER, f"-I{include_dir()}"]
    words = [*command, str(HARNESS), str(artifact.path), "-Wl,-rpath,$ORIGIN", "-o", str(folder / "threads")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "suppressions").write_text(SUPPRESSIONS)
    return folder / "threads"


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
