"""find_package(relaybuild) finds what pip has installed, in all the ways in which packages of pip are found."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import ROOT, Environment
from runners.consumer import HEAD, OLDEST, Consumer

import relaybuild

pytestmark = pytest.mark.slow

PROJECT = f"""{HEAD}get_target_property(headers relaybuild::headers INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "found ${{relaybuild_VERSION}} in ${{headers}}")
"""
ENTRY_POINT = """\
from importlib.metadata import entry_points
from importlib.resources import files
print(*(files(point.load()) for point in entry_points(group="cmake.prefix") if point.name == "relaybuild"))
"""


def by_folder(environment: Environment) -> str:
    # the first line of a command of pip's names the interpreter where it was installed, and not where it was moved to
    return f"-Drelaybuild_DIR={told(environment, 'python', str(environment.bin / 'relaybuild'), '--cmake-dir')}"


def by_module(environment: Environment) -> str:
    return f"-Drelaybuild_DIR={told(environment, 'python', '-m', 'relaybuild', '--cmakedir')}"


def by_prefix(environment: Environment) -> str:
    return f"-DCMAKE_PREFIX_PATH={told(environment, 'python', '-m', 'relaybuild', '--prefix')}"


def by_environment(environment: Environment) -> str:
    return f"-DCMAKE_PREFIX_PATH={environment.folder}"


def by_site_packages(environment: Environment) -> str:
    return f"-DCMAKE_PREFIX_PATH={package(environment).parent}"


def by_entry_point(environment: Environment) -> str:
    """As scikit-build-core reads it."""
    return f"-DCMAKE_PREFIX_PATH={told(environment, 'python', '-c', ENTRY_POINT)}"


def by_path(environment: Environment) -> str:
    """Nothing is said: the environment is active."""
    return "-DNOTHING_SAID=ON"


def told(environment: Environment, *command: str) -> str:
    (line,) = environment.run(*command, folder=environment.folder).splitlines()
    return line


def package(environment: Environment) -> Path:
    (folder,) = environment.folder.glob("lib/python*/site-packages/relaybuild")
    return folder


@pytest.mark.parametrize("cmake", ["cmake", OLDEST])
@pytest.mark.parametrize(
    "way", [by_folder, by_module, by_prefix, by_environment, by_site_packages, by_entry_point, by_path]
)
def test_it_is_found(consumer: Consumer, way: Callable[[Environment], str], cmake: str) -> None:
    project = consumer.by(cmake, "Ninja")
    project.write("CMakeLists.txt", PROJECT + 'set(NOTHING "${NOTHING_SAID}")\n')
    said = project.configure(way(project.environment))
    include = package(project.environment) / "runtime" / "include"
    assert f"-- found {relaybuild.__version__} in {include}\n" in said
    assert (include / "relaybuild" / "model.h").is_file()


def test_nothing_in_it_says_where_it_was_built_or_installed(installed: Environment) -> None:
    folders = [package(installed) / "cmake", package(installed) / "_share", installed.folder / "share" / "cmake"]
    # pip compiles what is Python, and writes into that where it lies
    scripts = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(scripts) > 10
    places = [str(path).encode() for path in (installed.folder.parents[1], ROOT)]
    assert [path for path in scripts if any(place in path.read_bytes() for place in places)] == []


def test_an_installation_without_its_package_is_not_found(consumer: Consumer, tmp_path: Path) -> None:
    shutil.copytree(consumer.environment.folder / "share", tmp_path / "prefix" / "share")
    consumer.write("CMakeLists.txt", PROJECT)
    done = consumer.try_configure(f"-Drelaybuild_DIR={tmp_path}/prefix/share/cmake/relaybuild")
    assert done.returncode != 0
    assert "there is no Python package 'relaybuild' beside" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        ("", True),
        ("{major}.{minor}", True),
        ("{major}.{minor}.{patch} EXACT", True),
        ("0", True),
        ("{major}.{minor}...{major}.{next}", True),
        ("{major}.{minor}...<{major}.{next}", True),
        ("{major}.{next}", False),
        ("{major}.{minor}.{later}", False),
        ("{higher}.0", False),
        ("{major}.{next}...{higher}", False),
    ],
)
def test_versions(consumer: Consumer, wanted: str, is_found: bool) -> None:
    major, minor, patch = map(int, re.findall(r"\d+", relaybuild.__version__)[:3])
    names = {"major": major, "minor": minor, "patch": patch, "next": minor + 1, "later": patch + 1, "higher": major + 1}
    text = wanted.format(**names)
    consumer.write("CMakeLists.txt", PROJECT.replace("relaybuild CONFIG", f"relaybuild {text} CONFIG"))
    done = consumer.try_configure()
    assert (done.returncode == 0) == is_found, done.stderr
    assert is_found or f"version: {relaybuild.__version__}" in done.stderr


def test_an_older_minor_version_is_another_series_before_one(consumer: Consumer) -> None:
    folder = consumer.folder / "later"
    shutil.copytree(package(consumer.environment) / "_share" / "cmake", folder / "cmake")
    init = folder / "relaybuild" / "__init__.py"
    init.parent.mkdir()
    for own, wanted, is_found in (("0.9.2", "0.8", False), ("0.9.2", "0.9.1", True), ("2.3.4", "2.0", True)):
        init.write_text(f'__version__ = "{own}"\n')
        consumer.write("CMakeLists.txt", PROJECT.replace("relaybuild CONFIG", f"relaybuild {wanted} CONFIG"))
        done = consumer.try_configure(f"-Drelaybuild_DIR={folder}/cmake")
        assert (done.returncode == 0) == is_found, (own, wanted, done.stderr)


@pytest.mark.parametrize(
    ("languages", "components", "message"),
    [
        ("C CXX", "runtime", None),
        ("C", "runtime", "relaybuild::runtime is C and C++: enable both languages before find_package()"),
        ("C", "training", "it has no component 'training', only 'runtime'"),
    ],
)
def test_components(consumer: Consumer, languages: str, components: str, message: str | None) -> None:
    text = PROJECT.replace("LANGUAGES C", f"LANGUAGES {languages}")
    consumer.write("CMakeLists.txt", text.replace("CONFIG REQUIRED", f"CONFIG REQUIRED COMPONENTS {components}"))
    done = consumer.try_configure()
    assert (done.returncode == 0) == (message is None), done.stderr
    assert message is None or message in " ".join(done.stderr.split())


MAIN = r"""
#include <cstdio>
#include "relaybuild/module.h"
int main(int argc, char **argv) {
  try {
    const relaybuild::Module module = relaybuild::LoadModule(argv[argc - 1]);
    std::printf("%s\n", module->type_key());
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
  }
}
"""


@pytest.mark.parametrize("link", ["main.cc", "main.cc WRAPPED"])
def test_the_runtime_is_compiled_where_it_is_linked_and_has_its_loaders(consumer: Consumer, link: str) -> None:
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    consumer.write("main.cc", MAIN)
    consumer.write("sum.examplejson", "sum\n  input 0 2 3\n  input 1 3\n  add 2 inputs: 0 1 shape: 2 3\n")
    text = HEAD.replace("LANGUAGES C", "LANGUAGES C CXX").replace("REQUIRED", "REQUIRED COMPONENTS runtime")
    wrapped = "add_library(between STATIC main.cc)\ntarget_link_libraries(between PUBLIC relaybuild::runtime)\n"
    text += wrapped if "WRAPPED" in link else ""
    text += "add_executable(unused main.cc)\nset_target_properties(unused PROPERTIES EXCLUDE_FROM_ALL ON)\n"
    text += "add_executable(main main.cc)\ntarget_link_libraries(main PRIVATE "
    text += "between)\n" if "WRAPPED" in link else "relaybuild::runtime)\n"
    consumer.write("CMakeLists.txt", text)
    consumer.configure()
    consumer.make()
    done = consumer.run(consumer.build / "main", "sum.examplejson")
    assert done.stdout == "examplejson\n"


def test_the_runtime_is_not_compiled_where_nobody_links_it(consumer: Consumer) -> None:
    text = HEAD.replace("LANGUAGES C", "LANGUAGES C CXX")
    consumer.write("CMakeLists.txt", f"{text}find_package(relaybuild CONFIG REQUIRED)\n")
    consumer.configure()
    assert consumer.work() == set()
