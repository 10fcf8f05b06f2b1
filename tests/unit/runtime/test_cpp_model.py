"""The C++ header over the C interface: two models in one program, under the sanitizers and without exceptions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.runtime import include_dir, standalone_header

from .building import DATA, INPUTS, OUTPUTS, RUNTIME, compiled

CXX = os.environ.get("CXX", "c++")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Werror")
BUILDS = {
    "C++17": ("-std=c++17",),
    "C++20": ("-std=c++20",),
    "C++23": ("-std=c++23",),
    "no exceptions": ("-std=c++17", "-fno-exceptions", "-fno-rtti"),
    "address and undefined": ("-std=c++20", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-std=c++17", "-fsanitize=thread"),
}
OF_CLANG = ("C++17", "C++20", "no exceptions")
"""What clang compiles as well; the rest is the same to it, but for sanitizers that the models were compiled with."""

RUN_ALWAYS = ("address and undefined", "thread", "no exceptions")
"""Builds of both standards that differ in what they run; what others compile does the same."""

READ_ALWAYS = (("C++23", None), ("C++20", "clang++"), ("no exceptions", "clang++"))
"""What compilers are asked whether they take it, beside those builds."""

LINKED = [
    (build, None) if build in RUN_ALWAYS else pytest.param(build, None, marks=pytest.mark.slow) for build in BUILDS
]
LINKED += [pytest.param(build, "clang++", marks=pytest.mark.slow) for build in OF_CLANG]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headers of two models: each has all that it needs inside, so what both have must not collide."""
    made = tmp_path_factory.mktemp("cpp")
    for name in ("sample", "other"):
        (made / f"{name}.h").write_text(standalone_header(name, INPUTS, OUTPUTS))
    return made


def objects(folder: Path, flags: tuple[str, ...]) -> list[Path]:
    """Both models, the second with a runtime of its own as a static library has it."""
    made = []
    for name, scale in (("sample", "0.5f"), ("other", "4.0f")):
        defines = (f"-DMODEL={name}", f"-DSCALE={scale}", "-DSTATIC_MODEL")
        parts = [compiled(DATA / "program.c", "-g", *flags, *defines)]
        parts += [compiled(source, "-g", *flags) for source in RUNTIME]
        whole = folder / f"{name}.o"
        subprocess.check_call(["ld", "-r", *parts, "-o", whole])
        subprocess.check_call(["objcopy", "--wildcard", f"--keep-global-symbol={name}_*", whole])
        made.append(whole)
    return made


@pytest.mark.parametrize(("build", "compiler"), LINKED)
def test_everything_that_the_header_offers(build: str, compiler: str | None, folder: Path, tmp_path: Path) -> None:
    flags = BUILDS[build]
    sanitizers = tuple(flag for flag in flags if "sanitize" in flag)
    program = tmp_path / "program"
    words = (*flags, "-O0", "-g1", *objects(tmp_path, sanitizers), "-pthread", "-o", program)
    compile_cpp(DATA / "cpp_model.cc", folder, *words, compiler=compiler)
    arguments = ["--no-fork"] if build == "thread" else []
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not the thread sanitizer's")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("build", "compiler"), READ_ALWAYS)
def test_compilers_have_nothing_to_warn_of(build: str, compiler: str | None, folder: Path) -> None:
    compile_cpp(DATA / "cpp_model.cc", folder, *BUILDS[build], "-fsyntax-only", compiler=compiler)


@pytest.mark.slow
def test_no_optimisation_finds_anything_to_warn_of(folder: Path, tmp_path: Path) -> None:
    for level in ("-O1", "-O3"):
        compile_cpp(DATA / "cpp_model.cc", folder, *BUILDS["C++20"], level, "-c", "-o", tmp_path / "program.o")


def compile_cpp(source: Path, folder: Path, *words: str | Path, compiler: str | None = None) -> None:
    if compiler is not None and shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    command = [compiler or CXX, *WARNINGS, f"-I{folder}", f"-I{include_dir()}", str(source)]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


RIGHT = "instance.Run({x});"
MISTAKES = {
    'instance.SetInput("x", std::vector<float>(128));': "has to outlive the runs",
    'instance.SetOutput("y", std::array<float, 128>());': "has to outlive the runs",
    "const std::vector<float> y; instance.Run({x}, {y});": "no matching function",
    "std::vector<bool> bits; instance.Run({bits});": "no matching function",
    "std::string text; instance.Run({text});": "no matching function",
    "relaybuild::Instance copy = instance;": "use of deleted function",
    "instance.TryRun({x});": "nodiscard",
}


def complaints(folder: Path, *statements: str) -> list[str]:
    """What the compiler says of each statement, all of them in one source."""
    line = "void f%d(relaybuild::Instance &instance, std::vector<float> &x) { (void)x; %s }\n"
    text = "".join(line % numbered for numbered in enumerate(statements))
    source = folder / "main.cc"
    source.write_text(f'#include "relaybuild/model.hpp"\n#include <array>\n{text}')
    command = [CXX, "-std=c++17", "-Werror", "-fsyntax-only", f"-I{include_dir()}", source]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    # what is said of a template comes behind the place where it was called
    parts = re.split(rf"^(?:In file included from )?{re.escape(str(source))}:(\d+):", done.stderr, flags=re.MULTILINE)
    found = [""] * (len(statements) + 3)
    for line, said in zip(parts[1::2], parts[2::2]):
        found[int(line)] += said
    return found[3:]


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, str]:
    statements = (RIGHT, *MISTAKES)
    return dict(zip(statements, complaints(folder, *statements)))


def test_what_is_right_compiles(said: dict[str, str]) -> None:
    assert said[RIGHT] == ""


@pytest.mark.parametrize("statement", MISTAKES)
def test_mistakes_that_do_not_compile(statement: str, said: dict[str, str]) -> None:
    assert "error: " in said[statement]
    if "Free Software Foundation" in subprocess.check_output([CXX, "--version"], text=True):
        assert MISTAKES[statement] in said[statement]
