"""Two models in one C program, in every form: neither sees the other's symbols, and a program sees few of either."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from runners.building import bare, compiled_by_its_line, unoptimised
from runners.linking import BACKENDS, PRINTED, model, printed_by_two_models, put, symbols

from relaybuild.build.toolchain import probe
from relaybuild.runtime.header import public_functions

FIXED = {"relaybuild_model_v1", "relaybuild_last_error_v1", "__tvm_ffi_main"}
QUICKLY = [("none", "clang", False), ("C", "gcc", False), ("C++", "gcc", False)]
AS_IT_STANDS = [("none", "gcc", True), ("C++", "gcc", True), ("C++", "clang", True)]
COMPILED_BY = [*QUICKLY, *(pytest.param(*each, marks=pytest.mark.slow) for each in AS_IT_STANDS)]
"""Backends, compilers, and whether those optimise as they are told."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_libraries(tmp_path: Path, backend: str) -> None:
    for name in ("first", "second"):
        put(tmp_path, name, "shared", BACKENDS[backend])
    # whichever library comes first would win a symbol that both define
    for order in (("first", "second"), ("second", "first")):
        words = [f"-L{tmp_path}", *(f"-l:{name}.so" for name in order), f"-Wl,-rpath,{tmp_path}"]
        assert printed_by_two_models(tmp_path, probe().compiler_command, *words) == PRINTED


@pytest.mark.parametrize("form", ["static", "object"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_the_program(tmp_path: Path, form: str, backend: str) -> None:
    link = [put(tmp_path, name, form, BACKENDS[backend]) for name in ("first", "second")]
    suffix = {"static": ".a", "object": ".o"}[form]
    files = [f"first{suffix}", f"second{suffix}"]
    words = list(dict.fromkeys(word for each in link for word in each))
    for order in (files, files[::-1]):
        assert printed_by_two_models(tmp_path, probe().compiler_command, *order, *words) == PRINTED


def test_one_with_regions_in_cxx_beside_one_without_any(tmp_path: Path) -> None:
    put(tmp_path, "first", "static", {})
    link = put(tmp_path, "second", "static", BACKENDS["C++"])
    assert "-lstdc++" in link
    words = ["second.a", "first.a", *link]
    command = probe().compiler_command
    assert printed_by_two_models(tmp_path, command, "-no-pie", *words) == PRINTED
    # the C library has a warning about dlopen() for everybody
    assert printed_by_two_models(tmp_path, command, "-static", *words, "-Wl,--no-fatal-warnings") == PRINTED


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_cxx_compiler_links_them(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    link = [put(tmp_path, name, "static", BACKENDS["C++"]) for name in ("first", "second")]
    words = ["-x", "none", "first.a", "second.a", *link[0]]
    assert printed_by_two_models(tmp_path, [compiler, "-std=c++17", "-x", "c++"], *words) == PRINTED


@pytest.mark.parametrize(("backend", "compiler", "is_optimised"), COMPILED_BY)
def test_folders_of_sources(tmp_path: Path, backend: str, compiler: str, is_optimised: bool) -> None:
    cxx = {"gcc": "g++", "clang": "clang++"}[compiler]
    if shutil.which(compiler) is None or shutil.which(cxx) is None:
        pytest.skip(f"there is no {compiler} with {cxx}")
    compilers = {"CC": str(shutil.which(compiler)), "CXX": str(shutil.which(cxx))}
    tools = bare(tmp_path / "tools")
    if is_optimised:
        tools = replace(tools, environ=compilers)
    else:
        tools = unoptimised(tools, tmp_path / "compilers", **compilers)
    for name in ("first", "second"):
        model(name, "sources", BACKENDS[backend]).export_library(tmp_path / name)
        compiled_by_its_line(tmp_path / name, tools)
    words = [word for name in ("first", "second") for word in linked_by_its_line(tmp_path / name)]
    assert printed_by_two_models(tmp_path, [compiler, "-Ifirst/include", "-Isecond/include"], *words) == PRINTED
    shown = symbols(tmp_path / "first/libfirst.a", "--defined-only", "--extern-only")
    assert {name for name in shown if "first" not in name and not is_common(name)} == set()


def linked_by_its_line(folder: Path) -> Sequence[str]:
    """What README.md links a program with besides its sources, from the folder above."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"^    \$CC.* program\.c (.*)$", text, re.MULTILINE)
    return [f"{folder.name}/{word}" if word.endswith(".a") else word for word in words.split()]


def is_common(symbol: str) -> bool:
    """Whether it may be in any number of archives: an entry point that is weak, or what any C++ compiler puts into each
    that needs it."""
    is_of_cxx = symbol.startswith(("_Z", "DW.ref.", "__clang_call_terminate")) and "relaybuild" not in symbol
    return is_of_cxx or symbol in FIXED or symbol == "relaybuild_library_v1"


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_program_sees_of_a_static_library(tmp_path: Path, backend: str) -> None:
    put(tmp_path, "first", "static", BACKENDS[backend])
    own = symbols(tmp_path / "first.a", "--defined-only", "--extern-only") - {"first.o:"}
    assert own == set(public_functions("first"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_program_sees_of_a_shared_library(backend: str) -> None:
    """The model's functions, fixed entry points, and regions; nothing of the C++ library, nor of our own in C++."""
    artifact = model("first", "shared", BACKENDS[backend])
    regions = {f"__tvm_ffi_{region['symbol']}" for region in artifact.summary["regions"]}
    assert all(re.fullmatch(r"__tvm_ffi_relaybuild_first_\w+", name) for name in regions)
    expected = {*public_functions("first"), *FIXED, *regions}
    expected |= {"relaybuild_library_v1"} if regions else set()
    assert symbols(artifact.path, "-D", "--defined-only") == expected
