"""Modules from a C++ program, where no Python is: strictly compiled, with sanitizers, alone and with a library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from compiling import HEAD
from runners.modules_program import SANITIZERS, build, example_json_sources, words
from runners.objects import compiled_once

import relaybuild
from relaybuild.runtime.sources import module_sources

SOURCES = (Path(__file__).with_name("modules_program.cc"), *example_json_sources())
NO_MODEL = """
#include "relaybuild/packed.h"
RB_EXPORT int32_t __tvm_ffi_nothing(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_nothing(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  (void)self, (void)args, (void)num_args, (void)result;
  return 0;
}
"""
TEXT = """\
sum
  input 0 2 3
  input 1 3
  add 2 inputs: 0 1 shape: 2 3
clamp
  input 0 4
  const 1 value: 2.5
  relu 2 inputs: 0 shape: 4
  min 3 inputs: 2 1 shape: 4
  output 3 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """The program with the modules' sources and the runtime of ExampleJSON, under the sanitizers of memory."""
    return build(folder / "program", SOURCES, *SANITIZERS)


def run(executable: Path, *arguments: str) -> str:
    """What the program prints; a fault or a sanitizer's report fails the test."""
    done = subprocess.run([str(executable), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def text_file(tmp_path: Path) -> str:
    path = tmp_path / "m.examplejson"
    path.write_text(TEXT)
    return str(path)


def test_everything_once_with_address_sanitizer(program: Path, text_file: str) -> None:
    assert run(program, "check", text_file) == ""


def test_eight_threads_with_address_sanitizer(program: Path, text_file: str) -> None:
    assert run(program, "threads", text_file) == ""


@pytest.mark.slow
def test_eight_threads_with_thread_sanitizer(folder: Path, text_file: str) -> None:
    assert run(build(folder / "threads", SOURCES, "-fsanitize=thread"), "threads", text_file) == ""


@pytest.mark.slow
def test_no_optimisation_finds_anything_to_warn_of() -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    for source in (*module_sources(), *SOURCES):
        for level in ("-O1", "-O3"):
            compiled_once(words(source, level), source)


def test_without_its_runtime_a_format_is_unknown_and_its_flag_named(text_file: str, tmp_path: Path) -> None:
    source = tmp_path / "main.cc"
    source.write_text(
        """
        #include <cstdio>
        #include "relaybuild/module.h"
        int main(int, char **arguments) {
          try {
            relaybuild::LoadModule(arguments[1]);
          } catch (const relaybuild::Error &error) {
            std::puts(error.what());
          }
        }
        """
    )
    executable = build(tmp_path / "main", [source])
    assert run(executable, text_file) == (
        f"'{text_file}': there is no loader 'runtime.module.loadfile_examplejson' for the format 'examplejson', "
        "expected one of 'so': build with USE_EXAMPLE_JSON=ON, which brings one\n"
    )


def test_a_models_library_from_cpp(program: Path, tmp_path: Path) -> None:
    """`main` and the region by its name; nothing is written beside the library; a cut one is refused."""
    text = "def @main(%x: Tensor[(4), float32]) { exp(log(nn.relu(%x))) }"
    artifact = relaybuild.compile(relaybuild.parse(HEAD + text), config={"USE_EXAMPLE_JSON": "ON"}, threads=2)
    (region,) = artifact.summary["regions"]
    library = tmp_path / "model.so"
    artifact.export_library(library)
    assert run(program, "library", str(library), region["symbol"]) == "0 0 0 9 relaybuild examplejson\n"
    numbers, _, kinds = run(program, "library", str(library), "main").partition(" relaybuild")
    assert [float(number) for number in numbers.split()] == pytest.approx([0, 0, 0, 9], abs=1e-5)
    assert kinds == " examplejson\n"
    assert list(tmp_path.iterdir()) == [library]
    whole = library.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2):
        library.write_bytes(whole[:size])
        done = subprocess.run(
            [str(program), "library", str(library), "main"], capture_output=True, text=True, check=False
        )
        assert "' is cut short, it " in done.stdout
    library.write_bytes(b"no library")
    done = subprocess.run([str(program), "library", str(library), "main"], capture_output=True, text=True, check=False)
    assert done.stdout.count("model.so") == 1, done.stdout


@pytest.mark.parametrize("flags", [{}, {"USE_CODEGENC": "ON"}, {"USE_EXAMPLE_JSON": "ON"}])
def test_a_model_that_is_found_at_run_time_is_an_object(program: Path, flags: dict[str, str], tmp_path: Path) -> None:
    """With functions of the host alone, and with regions in C and in C++."""
    text = "def @main(%x: Tensor[(4), float32]) { add(nn.relu(%x), %x) }"
    library = tmp_path / "model.so"
    artifact = relaybuild.compile(relaybuild.parse(HEAD + text), config=flags, name="found")
    assert bool(artifact.summary["regions"]) == bool(flags)
    artifact.export_library(library)
    assert run(program, "model", str(library)) == "-3 0 2 18 found\n"
    packed = tmp_path / "functions.so"
    relaybuild.runtime.csource_module_create(NO_MODEL, "c").export_library(packed)
    done = subprocess.run([str(program), "model", str(packed)], capture_output=True, text=True, check=False)
    assert done.stdout == "unexpected: found a null pointer, expected the functions of a model\n"


def test_the_bytes_of_a_module_are_loaded_from_a_file(program: Path, tmp_path: Path) -> None:
    text, saved = tmp_path / "text.examplejson", tmp_path / "saved.module"
    text.write_text("positive\n  input 0 4\n  relu 1 inputs: 0 shape: 4\n")
    saved.write_bytes(relaybuild.load_module(text).save_to_binary())
    for file in (text, saved):
        assert run(program, "library", str(file), "positive") == "0 0 0 9 examplejson\n"
