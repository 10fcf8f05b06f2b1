"""The C++ header over the C interface: two models in one program, under the sanitizers and without exceptions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.runtime import include_dir, standalone_header

from .building import DATA, INPUTS, OUTPUTS, RUNTIME, STRICT, cc

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
        parts = []
        for source in (DATA / "program.c", *RUNTIME):
            parts.append(folder / f"{name}-{source.stem}.o")
            cc(*STRICT, "-g", "-O1", *flags, *defines, f"-I{include_dir()}", "-c", source, "-o", parts[-1])
        whole = folder / f"{name}.o"
        subprocess.check_call(["ld", "-r", *parts, "-o", whole])
        subprocess.check_call(["objcopy", "--wildcard", f"--keep-global-symbol={name}_*", whole])
        made.append(whole)
    return made


@pytest.mark.parametrize(
    ("build", "compiler"), [*((build, None) for build in BUILDS), *((build, "clang++") for build in OF_CLANG)]
)
def test_everything_that_the_header_offers(build: str, compiler: str | None, folder: Path, tmp_path: Path) -> None:
    flags = BUILDS[build]
    sanitizers = tuple(flag for flag in flags if "sanitize" in flag)
    program = tmp_path / "program"
    words = (*flags, "-O1", "-g", *objects(tmp_path, sanitizers))
    compile_cpp(DATA / "cpp_model.cc", program, folder, *words, compiler=compiler)
    arguments = ["--no-fork"] if build == "thread" else []
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not the thread sanitizer's")
    assert (done.returncode, done.stderr) == (0, "")


def compile_cpp(source: Path, output: Path, folder: Path, *words: str | Path, compiler: str | None = None) -> None:
    if compiler is not None and shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    command = [compiler or os.environ.get("CXX", "c++"), *WARNINGS, f"-I{folder}", f"-I{include_dir()}", str(source)]
    done = subprocess.run([*command, *map(str, words), "-pthread", "-o", output], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ('instance.SetInput("x", std::vector<float>(128));', "has to outlive the runs"),
        ('instance.SetOutput("y", std::array<float, 128>());', "has to outlive the runs"),
        ("const std::vector<float> y; instance.Run({x}, {y});", "no matching function"),
        ("std::vector<bool> bits; instance.Run({bits});", "no matching function"),
        ("std::string text; instance.Run({text});", "no matching function"),
        ("relaybuild::Instance copy = instance;", "use of deleted function"),
        ("instance.TryRun({x});", "nodiscard"),
    ],
)
def test_mistakes_that_do_not_compile(statement: str, complaint: str, tmp_path: Path) -> None:
    text = (
        '#include "relaybuild/model.hpp"\n#include <array>\n'
        "void f(relaybuild::Instance &instance, std::vector<float> &x) {\n  (void)x;\n  %s\n}\n"
    )
    compiler = os.environ.get("CXX", "c++")
    for body, fails in (("instance.Run({x});", False), (statement, True)):
        (tmp_path / "main.cc").write_text(text % body)
        command = [compiler, "-std=c++17", "-Werror", "-fsyntax-only", f"-I{include_dir()}", str(tmp_path / "main.cc")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert bool(done.returncode) == fails, done.stderr
    if "gcc" in subprocess.check_output([compiler, "--version"], text=True).lower():
        assert complaint in done.stderr
