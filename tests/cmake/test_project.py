"""CMake projects that models become: built, tested, installed and used where neither relaybuild nor Python is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from runners.building import Bare, bare, tree
from runners.command import DIGITS
from runners.consumer import OLDEST

import relaybuild
from relaybuild.build.bundle import LIST

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")

HEAD = '#[version = "0.0.5"]\n'
PROGRAMS = {
    "first": "def @main(%x: Tensor[(4,), float32]) { nn.relu(add(%x, 0.5f)) }\n",
    "second": "def @main(%x: Tensor[(4,), float32]) { nn.softmax(multiply(%x, 2f)) }\n",
}
JSON = {"USE_EXAMPLE_JSON": "ON"}
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


def project(name: str, folder: Path, **options: object) -> Path:
    """The project of a model, whatever was in the folder before."""
    module = relaybuild.parse(HEAD + PROGRAMS[name])
    relaybuild.compile(module, name=name, target="c", form="project", **options).export_library(folder)  # type: ignore[arg-type]
    return folder


def test_a_project_builds_and_gives_what_the_library_gives(tmp_path: Path, tools: Bare) -> None:
    folder, build = tmp_path / "ein Ort" / "digits", tmp_path / "ein Ort" / "out"
    folder.parent.mkdir()
    relaybuild.compile(DIGITS, name="digits", target="x86-64-v2", form="project").export_library(folder)
    shared = relaybuild.compile(DIGITS, name="digits", target="x86-64-v2")
    tools.build(folder, build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    assert (build / "compile_commands.json").is_file()
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype("float32")
    ours, theirs = (relaybuild.load_module(path, threads=1)(x) for path in (shared.path, build / "libdigits.so"))
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def test_a_test_fails_where_results_differ(tmp_path: Path, tools: Bare) -> None:
    folder, build = project("first", tmp_path / "first"), tmp_path / "out"
    recording = folder / "tests" / "expected.bin"
    tools.build(folder, build, "-G", "Unix Makefiles")
    recording.write_bytes(bytes(len(recording.read_bytes())))
    done = tools.start("ctest", "--output-on-failure", folder=build)
    assert done.returncode != 0
    assert "FAILED" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ON", "OFF"])
def test_two_projects_in_one(tmp_path: Path, tools: Bare, kind: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    project("first", top / "first", config=JSON)
    project("second", top / "second")
    find = "add_subdirectory(first)\nadd_subdirectory(second)"
    (top / "CMakeLists.txt").write_text(TOP.format(languages="", find=find))
    (top / "consumer.c").write_text(CONSUMER)
    tools.build(top, tmp_path / "out", "-G", "Ninja", f"-DBUILD_SHARED_LIBS={kind}")
    # tests, installation and compile commands are those of the top-level project
    assert "first" not in tools.run("ctest", "-N", folder=tmp_path / "out")
    assert not (tmp_path / "out" / "compile_commands.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ON", "OFF"])
def test_installed_projects_are_found(tmp_path: Path, tools: Bare, kind: str) -> None:
    for name, config in (("first", JSON), ("second", {})):
        build = tmp_path / f"build {name}"
        tools.build(project(name, tmp_path / name, config=config), build, "-G", "Ninja", f"-DBUILD_SHARED_LIBS={kind}")
        tools.run("cmake", "--install", build, "--prefix", tmp_path / "first place", folder=tmp_path)
        shutil.rmtree(tmp_path / name)
    (tmp_path / "first place").rename(tmp_path / "place")
    top = tmp_path / "top"
    top.mkdir()
    find = "find_package(first 1.0 CONFIG REQUIRED)\nfind_package(second CONFIG REQUIRED)"
    (top / "CMakeLists.txt").write_text(TOP.format(languages=" CXX", find=find))
    (top / "consumer.c").write_text(CONSUMER)
    tools.build(top, tmp_path / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={tmp_path / 'place'}")


@pytest.mark.slow
def test_a_backend_that_owns_regions_cannot_be_switched_off(tmp_path: Path, tools: Bare) -> None:
    folder = project("first", tmp_path / "first", config=JSON)
    assert "set(USE_EXAMPLE_JSON ON)" in (folder / "config.cmake").read_text()
    done = tools.start("cmake", "-S", folder, "-B", tmp_path / "off", "-DUSE_EXAMPLE_JSON=OFF", folder=tmp_path)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "USE_EXAMPLE_JSON is off, but the backend 'example_json' computes these regions of the model 'first'" in said
    (region,) = relaybuild.compile(
        relaybuild.parse(HEAD + PROGRAMS["first"]), name="first", target="c", config=JSON
    ).summary["regions"]
    assert region["symbol"] in said
    # one that has none changes nothing
    tools.build(folder, tmp_path / "on", "-G", "Ninja", "-DUSE_DNNL=ON")


def test_presets(tmp_path: Path, tools: Bare) -> None:
    folder = project("second", tmp_path / "second")
    names = [preset["name"] for preset in json.loads((folder / "CMakePresets.json").read_text())["configurePresets"]]
    assert names == ["release", "static", "debug"]
    for name in ("static", "debug"):
        tools.run("cmake", "--preset", name, folder=folder)
        tools.run("cmake", "--build", "--preset", name, folder=folder)
        assert "100% tests passed" in tools.run("ctest", "--preset", name, folder=folder)
    assert (folder / "build" / "static" / "libsecond.a").exists()


def test_compilations_go_through_a_launcher(tmp_path: Path, tools: Bare) -> None:
    log, launcher = tmp_path / "log", tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$*" >>"{log}"\nexec "$@"\n')
    launcher.chmod(0o755)
    folder = project("second", tmp_path / "second")
    tools.build(folder, tmp_path / "out", "-G", "Ninja", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}")
    sources = [name for name in tree(folder) if name.endswith(".c")]
    assert sum(" -c " in line for line in log.read_text().splitlines()) == len(sources)


def test_no_place_is_in_it_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "an other" / "two"]
    places[1].parent.mkdir()
    for place in places:
        project("first", place, config=JSON, cache_dir=tmp_path / f"cache of {place.name}")
        for name, data in tree(place).items():
            assert bytes(tmp_path) not in data, name
            assert bytes(DIGITS.parents[2]) not in data, name
    assert tree(places[0]) == tree(places[1])
    before = {name: (places[0] / name).stat().st_mtime_ns for name in tree(places[0])}
    project("first", places[0], config=JSON)
    assert {name: (places[0] / name).stat().st_mtime_ns for name in tree(places[0])} == before
    # without the backend, its files go
    project("first", places[0])
    left = tree(places[0])
    assert not [name for name in left if name.startswith(("backends/", "example_json/", "cxx/"))]
    assert json.loads(left[LIST])["files"].keys() == left.keys() - {LIST}


def test_a_model_that_has_the_name_of_a_library(tmp_path: Path, tools: Bare) -> None:
    module = relaybuild.parse(HEAD + PROGRAMS["first"])
    for name in ("m", "dl"):
        relaybuild.compile(module, name=name, target="c", form="project").export_library(tmp_path / name)
        tools.build(tmp_path / name, tmp_path / f"build {name}", "-G", "Ninja")


def test_the_oldest_cmake(tmp_path: Path, tools: Bare) -> None:
    oldest = shutil.which(OLDEST)
    if oldest is None:
        pytest.skip(f"{OLDEST} is not installed")
    (tools.folder / "cmake").unlink()
    (tools.folder / "cmake").symlink_to(Path(oldest).resolve())
    folder = project("second", tmp_path / "second")
    tools.build(folder, tmp_path / "out", "-G", "Ninja", "-DBUILD_SHARED_LIBS=OFF")
    assert (tmp_path / "out" / "compile_commands.json").is_file()


def test_nothing_in_it_is_global(tmp_path: Path) -> None:
    text = (project("first", tmp_path / "first", config=JSON) / "CMakeLists.txt").read_text()
    for word in ("CMAKE_SOURCE_DIR", "CMAKE_BINARY_DIR", "add_compile_options", "set(CMAKE_C_FLAGS"):
        assert word not in text, word
    assert "include_directories(" not in text.replace("target_include_directories(", "")
