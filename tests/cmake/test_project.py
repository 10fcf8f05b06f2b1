"""CMake projects that models become: built, tested, installed and used where neither relaybuild nor Python is."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from runners.building import Bare, bare, compiled_by_its_line, tree
from runners.command import DIGITS
from runners.consumer import OLDEST, Consumer

from relaybuild.build.bundle import LIST

pytestmark = pytest.mark.slow

HEAD = '#[version = "0.0.5"]\n'
PROGRAMS = {
    "first": "def @main(%x: Tensor[(4,), float32]) { nn.relu(add(%x, 0.5f)) }\n",
    "narrow": "def @main(%x: Tensor[(5, 8), float16]) { nn.softmax(multiply(add(%x, %x), %x)) }\n",
    "second": "def @main(%x: Tensor[(4,), float32]) { nn.softmax(multiply(%x, 2f)) }\n",
}
JSON = "-DUSE_EXAMPLE_JSON=ON"
CONSUMER = """
#include "first.h"
#include "second.h"
int main(void) {
  RbInstance *one, *two;
  if (first_create(1, &one) || second_create(1, &two)) return 1;
  first_destroy(one);
  second_destroy(two);
  return first_describe()->num_inputs + second_describe()->num_inputs == 2 ? 0 : 2;
}
"""
TOP = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C{languages})
{find}
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE first::first second::second)
enable_testing()
add_test(NAME consumer COMMAND consumer)
"""


@pytest.fixture
def tools(tmp_path: Path) -> Bare:
    return bare(tmp_path / "tools")


def emit(consumer: Consumer, model: Path, folder: Path, *options: str | Path, form: str = "project") -> Path:
    """What the installed relaybuild makes of a model, in a folder of its form."""
    command = ("python", "-m", "relaybuild", "compile", model, "-o", folder, "--emit", form, *options)
    done = consumer.run(*command)
    assert done.returncode == 0, done.stderr
    return folder


def project(consumer: Consumer, name: str, folder: Path, *options: str | Path) -> Path:
    """The project of a model, whatever was in the folder before."""
    model = consumer.write(f"{name}.relay", HEAD + PROGRAMS[name])
    return emit(consumer, model, folder, "--name", name, "--target", "c", *options)


def outputs(consumer: Consumer, library: Path) -> str:
    """What a library gives for a picture, as text."""
    code = (
        "import numpy as np, relaybuild, sys\n"
        "x = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype('float32')\n"
        "print(np.asarray(relaybuild.load_module(sys.argv[1], threads=1)(x)).tobytes().hex())"
    )
    done = consumer.run("python", "-c", code, library)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_sources(consumer: Consumer, tools: Bare, options: Sequence[str], expected_by: Path) -> None:
    """A folder of C of digits, compiled and linked by the lines of its README, passes the test of a project."""
    folder = emit(consumer, DIGITS, consumer.folder / "sources", "--name", "digits", *options, form="sources")
    text = (folder / "README.md").read_text()
    (link,) = re.findall(r"^    (\$CC.*program\.c.*)$", text, re.MULTILINE)
    compiled_by_its_line(folder, tools)
    start = '#define MODEL digits\n#define MODEL_HEADER "digits.h"\n'
    (folder / "program.c").write_text(start + (expected_by / "tests" / "check.c").read_text())
    tools.run("sh", "-euc", f"CC=cc; {link}", folder=folder)
    assert ": ok\n" in tools.run("./a.out", expected_by / "tests" / "expected.bin", folder=folder)


def test_a_project_builds_and_gives_what_the_library_gives(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    folder, build = tmp_path / "ein Ort" / "digits", tmp_path / "ein Ort" / "out"
    folder.parent.mkdir()
    options = ("--name", "digits", "--target", "x86-64-v2")
    emit(consumer, DIGITS, folder, *options)
    shared = emit(consumer, DIGITS, tmp_path / "digits.so", *options, form="shared")
    tools.build(folder, build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    assert (build / "compile_commands.json").is_file()
    assert outputs(consumer, shared) == outputs(consumer, build / "libdigits.so")


def test_a_test_fails_where_results_differ(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    folder, build = project(consumer, "first", tmp_path / "first"), tmp_path / "out"
    recording = folder / "tests" / "expected.bin"
    tools.build(folder, build, "-G", "Unix Makefiles")
    recording.write_bytes(bytes(len(recording.read_bytes())))
    done = tools.start("ctest", "--output-on-failure", folder=build)
    assert done.returncode != 0
    assert "FAILED" in done.stdout


def test_a_model_of_float16_has_a_test(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    folder, build = project(consumer, "narrow", tmp_path / "narrow"), tmp_path / "out"
    recording = folder / "tests" / "expected.bin"
    tools.build(folder, build, "-G", "Ninja")
    # one number that is off by a fiftieth of it
    numbers = np.frombuffer(recording.read_bytes(), "float16").copy()
    largest = np.abs(numbers).argmax()
    numbers[largest] *= np.float16(1.02)
    recording.write_bytes(numbers.tobytes())
    assert "FAILED" in tools.start("ctest", "--output-on-failure", folder=build).stdout


def test_a_program_for_several_levels(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    options = ("--name", "digits", "--target", "x86-64-multi")
    folder = emit(consumer, DIGITS, tmp_path / "digits", *options)
    shared = emit(consumer, DIGITS, tmp_path / "digits.so", *options, form="shared")
    tools.build(folder, tmp_path / "out", "-G", "Ninja")
    assert outputs(consumer, shared) == outputs(consumer, tmp_path / "out" / "libdigits.so")
    check_sources(consumer, tools, ("--target", "x86-64-multi"), folder)


@pytest.mark.parametrize("flag", ["USE_CBLAS", "USE_DNNL"])
def test_regions_that_a_library_computes(consumer: Consumer, tmp_path: Path, tools: Bare, flag: str) -> None:
    """The library is found where the project is built; a folder of C names it as a linker does."""
    options = ("--target", "x86-64-v2", f"-D{flag}=ON")
    folder = tmp_path / "digits"
    command = ("python", "-m", "relaybuild", "compile", DIGITS, "-o", folder, "--emit", "project", *options)
    done = consumer.run(*command, "--summary", "digits.json")
    if "was not found" in done.stderr:
        pytest.skip(f"{flag}: the library was not found on this machine")
    assert done.returncode == 0, done.stderr
    backends = {each["backend"] for each in json.loads((consumer.folder / "digits.json").read_text())["regions"]}
    assert backends == {flag.removeprefix("USE_").lower()}
    for kind in ("ON", "OFF"):
        tools.build(folder, tmp_path / kind, "-G", "Ninja", f"-DBUILD_SHARED_LIBS={kind}")
    done = tools.start("cmake", "-S", folder, "-B", tmp_path / "none", f"-D{flag}=OFF", folder=tmp_path)
    assert done.returncode != 0
    assert f"{flag} is off, but the backend" in " ".join(done.stderr.split())
    check_sources(consumer, tools, options, folder)


@pytest.mark.parametrize("kind", ["ON", "OFF"])
def test_two_projects_in_one(consumer: Consumer, tmp_path: Path, tools: Bare, kind: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    project(consumer, "first", top / "first", JSON)
    project(consumer, "second", top / "second")
    find = "add_subdirectory(first)\nadd_subdirectory(second)"
    (top / "CMakeLists.txt").write_text(TOP.format(languages="", find=find))
    (top / "consumer.c").write_text(CONSUMER)
    tools.build(top, tmp_path / "out", "-G", "Ninja", f"-DBUILD_SHARED_LIBS={kind}")
    # tests, installation and compile commands are those of the top-level project
    assert "first" not in tools.run("ctest", "-N", folder=tmp_path / "out")
    assert not (tmp_path / "out" / "compile_commands.json").exists()


@pytest.mark.parametrize("kind", ["ON", "OFF"])
def test_installed_projects_are_found(consumer: Consumer, tmp_path: Path, tools: Bare, kind: str) -> None:
    for name, config in (("first", (JSON,)), ("second", ())):
        build = tmp_path / f"build {name}"
        tools.build(
            project(consumer, name, tmp_path / name, *config), build, "-G", "Ninja", f"-DBUILD_SHARED_LIBS={kind}"
        )
        tools.run("cmake", "--install", build, "--prefix", tmp_path / "first place", folder=tmp_path)
        shutil.rmtree(tmp_path / name)
    (tmp_path / "first place").rename(tmp_path / "place")
    top = tmp_path / "top"
    top.mkdir()
    find = "find_package(first 1.0 CONFIG REQUIRED)\nfind_package(second CONFIG REQUIRED)"
    (top / "CMakeLists.txt").write_text(TOP.format(languages=" CXX", find=find))
    (top / "consumer.c").write_text(CONSUMER)
    tools.build(top, tmp_path / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={tmp_path / 'place'}")


def test_a_backend_that_owns_regions_cannot_be_switched_off(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    folder = project(consumer, "first", tmp_path / "first", JSON, "--summary", "first.json")
    assert "set(USE_EXAMPLE_JSON ON)" in (folder / "config.cmake").read_text()
    done = tools.start("cmake", "-S", folder, "-B", tmp_path / "off", "-DUSE_EXAMPLE_JSON=OFF", folder=tmp_path)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "USE_EXAMPLE_JSON is off, but the backend 'example_json' computes these regions of the model 'first'" in said
    (region,) = json.loads((consumer.folder / "first.json").read_text())["regions"]
    assert region["symbol"] in said
    # one that has none changes nothing
    tools.build(folder, tmp_path / "on", "-G", "Ninja", "-DUSE_DNNL=ON")


def test_presets(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    folder = project(consumer, "second", tmp_path / "second")
    names = [preset["name"] for preset in json.loads((folder / "CMakePresets.json").read_text())["configurePresets"]]
    assert names == ["release", "static", "debug"]
    for name in ("static", "debug"):
        tools.run("cmake", "--preset", name, folder=folder)
        tools.run("cmake", "--build", "--preset", name, folder=folder)
        assert "100% tests passed" in tools.run("ctest", "--preset", name, folder=folder)
    assert (folder / "build" / "static" / "libsecond.a").exists()


def test_compilations_go_through_a_launcher(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    log, launcher = tmp_path / "log", tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$*" >>"{log}"\nexec "$@"\n')
    launcher.chmod(0o755)
    folder = project(consumer, "second", tmp_path / "second")
    tools.build(folder, tmp_path / "out", "-G", "Ninja", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}")
    sources = [name for name in tree(folder) if name.endswith(".c")]
    assert sum(" -c " in line for line in log.read_text().splitlines()) == len(sources)


def test_no_place_is_in_it_and_a_second_run_changes_nothing(consumer: Consumer, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "an other" / "two"]
    places[1].parent.mkdir()
    for place in places:
        project(consumer, "first", place, JSON, "--cache-dir", tmp_path / f"cache of {place.name}")
        for name, data in tree(place).items():
            assert bytes(tmp_path) not in data, name
            assert bytes(DIGITS.parents[2]) not in data, name
    assert tree(places[0]) == tree(places[1])
    before = {name: (places[0] / name).stat().st_mtime_ns for name in tree(places[0])}
    project(consumer, "first", places[0], JSON)
    assert {name: (places[0] / name).stat().st_mtime_ns for name in tree(places[0])} == before
    # without the backend, its files go
    project(consumer, "first", places[0])
    left = tree(places[0])
    assert not [name for name in left if name.startswith(("backends/", "example_json/", "cxx/"))]
    assert json.loads(left[LIST])["files"].keys() == left.keys() - {LIST}


def test_a_model_that_has_the_name_of_a_library(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    for name in ("m", "dl"):
        project(consumer, "first", tmp_path / name, "--name", name)
        tools.build(tmp_path / name, tmp_path / f"build {name}", "-G", "Ninja")


def test_the_oldest_cmake(consumer: Consumer, tmp_path: Path, tools: Bare) -> None:
    oldest = shutil.which(OLDEST)
    if oldest is None:
        pytest.skip(f"{OLDEST} is not installed")
    (tools.folder / "cmake").unlink()
    (tools.folder / "cmake").symlink_to(Path(oldest).resolve())
    folder = project(consumer, "second", tmp_path / "second")
    tools.build(folder, tmp_path / "out", "-G", "Ninja", "-DBUILD_SHARED_LIBS=OFF")
    assert (tmp_path / "out" / "compile_commands.json").is_file()


def test_nothing_in_it_is_global(consumer: Consumer, tmp_path: Path) -> None:
    text = (project(consumer, "first", tmp_path / "first", JSON) / "CMakeLists.txt").read_text()
    for word in ("CMAKE_SOURCE_DIR", "CMAKE_BINARY_DIR", "add_compile_options", "set(CMAKE_C_FLAGS"):
        assert word not in text, word
    assert "include_directories(" not in text.replace("target_include_directories(", "")
