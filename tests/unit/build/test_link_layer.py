"""What the linker reads decides whether a library is taken from the cache."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.cache.journal import MissReason
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.library import LibrarySpec, Unit
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import ToolError, UserError

from .caching import EXPORT, Site

LINK_ALONE = {"object": 0, "link": 1}
NOTHING = {"object": 0, "link": 0}
USER = Unit("user", f"int vendor(void);\n{EXPORT} int value(void) {{ return vendor(); }}\n{EXPORT} int extra = 1;\n")


@pytest.fixture
def site(tmp_path: Path, toolchain: Toolchain) -> Site:
    return Site(tmp_path, toolchain, tmp_path / "cache")


def archive(site: Site, value: int, folder: str = "lib") -> Path:
    """An archive `libvendor.a` whose `vendor()` gives a value."""
    place = site.folder / folder
    place.mkdir(exist_ok=True)
    (place / "vendor.c").write_text(f"int vendor(void) {{ return {value}; }}\n", encoding="utf-8")
    subprocess.run([*site.toolchain.command, "-fPIC", "-c", "vendor.c", "-o", "vendor.o"], cwd=place, check=True)
    path = place / "libvendor.a"
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rcsD", path, "vendor.o"], cwd=place, check=True)
    return path


def spec(**changes: object) -> LibrarySpec:
    return dataclasses.replace(LibrarySpec("demo", (USER,)), **changes)


def test_an_archive_by_its_path_counts_by_content_alone(site: Site) -> None:
    site.build(spec(link_files=(str(archive(site, 5)),)))
    elsewhere = archive(site, 5, "other place")
    assert site.build(spec(link_files=(str(elsewhere),)), name="moved").executed == NOTHING
    archive(site, 6, "other place")
    assert site.build(spec(link_files=(str(elsewhere),)), name="changed").executed == LINK_ALONE
    assert site.changes("library") == ["link/files/000/libvendor.a"]
    assert ctypes.CDLL(str(site.library("changed"))).value() == 6


@pytest.mark.parametrize("word", ["-lvendor", "-l:libvendor.a"])
def test_a_library_that_is_searched_for(site: Site, word: str) -> None:
    archive(site, 5)
    library = spec(link_flags=(f"-L{site.folder / 'lib'}",), link_files=(word,))
    site.build(library)
    assert site.build(library).executed == NOTHING
    archive(site, 6)
    assert site.build(library, name="second").executed == LINK_ALONE
    assert ctypes.CDLL(str(site.library("second"))).value() == 6


def test_a_library_in_a_folder_that_is_searched_before(site: Site) -> None:
    archive(site, 5)
    (site.folder / "first").mkdir()
    flags = (f"-L{site.folder / 'first'}", f"-L{site.folder / 'lib'}")
    library = spec(link_flags=flags, link_libs=("vendor",))
    site.build(library)
    archive(site, 8, "first")
    assert site.build(library, name="second").executed == LINK_ALONE
    assert ctypes.CDLL(str(site.library("second"))).value() == 8


def test_an_archive_that_a_flag_prefers_to_a_shared_library(site: Site) -> None:
    path = archive(site, 5)
    shared = ["-shared", "-fPIC", "vendor.c", "-o", "libvendor.so"]
    subprocess.run([*site.toolchain.command, *shared], cwd=path.parent, check=True)
    library = spec(
        link_flags=(f"-L{path.parent}",), link_files=("-Wl,-Bstatic", "-lvendor", "-Wl,-Bdynamic"), link_libs=()
    )
    site.build(library)
    assert ctypes.CDLL(str(site.library())).value() == 5
    archive(site, 6)
    assert site.build(library, name="second").executed == LINK_ALONE
    assert ctypes.CDLL(str(site.library("second"))).value() == 6


def test_a_script_for_the_linker_and_what_it_names(site: Site) -> None:
    path = archive(site, 5)
    script = site.folder / "lib" / "libscript.so"
    script.write_text(f"/* a script */ GROUP({path})\n", encoding="utf-8")
    library = spec(link_flags=(f"-L{site.folder / 'lib'}",), link_libs=("script",))
    site.build(library)
    assert site.build(library).executed == NOTHING
    archive(site, 7)
    assert site.build(library, name="second").executed == LINK_ALONE
    assert ctypes.CDLL(str(site.library("second"))).value() == 7


def test_a_file_in_a_flag(site: Site, toolchain: Toolchain) -> None:
    if not toolchain.is_elf:
        pytest.skip("version scripts are of ELF linkers")
    path = site.folder / "exports.map"
    path.write_text("{ global: value; extra; local: *; };\n", encoding="utf-8")
    library = spec(link_files=(str(archive(site, 5)),), link_flags=(f"-Wl,--version-script={path}",))
    site.build(library)
    assert site.build(library).executed == NOTHING
    path.write_text("{ global: value; local: *; };\n", encoding="utf-8")
    assert site.build(library, name="second").executed == LINK_ALONE
    assert not hasattr(ctypes.CDLL(str(site.library("second"))), "extra")


def test_other_flags_and_libraries(site: Site) -> None:
    files = (str(archive(site, 5)),)
    site.build(spec(link_files=files))
    assert site.build(spec(link_files=files, link_libs=("m",))).executed == LINK_ALONE
    assert "option.libraries" in site.changes("library")
    assert site.build(spec(link_files=files, link_libs=("m",), link_flags=("-Wl,-O1",))).executed == LINK_ALONE
    assert site.changes("library") == ["option.flags"]


@pytest.mark.parametrize("flag", ["-B.", "-fuse-ld=bfd", "@{}"])
def test_a_flag_that_may_read_what_is_not_known(site: Site, flag: str) -> None:
    (site.folder / "words").write_text("-Wl,-O1\n", encoding="utf-8")
    library = spec(link_files=(str(archive(site, 5)),), link_flags=(flag.format(site.folder / "words"),))
    try:
        site.build(library)
    except ToolError:
        pytest.skip(f"the compiler does not know '{flag}'")
    assert site.build(library).executed == LINK_ALONE
    assert site.misses()["library"].reason is MissReason.BYPASSED
    assert "may read files that are not known" in site.misses()["library"].detail


def test_an_archive_that_is_replaced_during_the_link_spoils_the_library(site: Site) -> None:
    path = archive(site, 5)
    new = archive(site, 9, "new")
    script = site.folder / "meddler"
    script.write_text(
        f'#!/bin/sh\n{site.toolchain.path} "$@" || exit 1\ncase "$*" in *library*) cp {new} {path};; esac\n', "utf-8"
    )
    script.chmod(0o755)
    library = spec(link_files=(str(path),))
    site.build(library, toolchain=dataclasses.replace(site.toolchain, command=(str(script),)), name="meddled")
    assert ctypes.CDLL(str(site.library("meddled"))).value() == 5
    assert site.build(library, name="second").executed == LINK_ALONE
    assert ctypes.CDLL(str(site.library("second"))).value() == 9


def test_a_library_with_cpp_in_it(site: Site) -> None:
    try:
        cxx = probe_cxx(site.toolchain)
    except UserError:
        pytest.skip("needs a C++ compiler")
    include = site.folder / "include"
    include.mkdir()
    (include / "value.hpp").write_text('#include <string>\nstatic const std::string text = "12";\n', encoding="utf-8")
    body = f'extern "C" {EXPORT} int value() {{ return std::stoi(text); }}\n'
    unit = Unit("main", f'#include "value.hpp"\n{body}', language="c++", include_dirs=(include,))
    library = LibrarySpec("demo", (unit,))
    site.build(library, cxx=cxx)
    first = site.library().read_bytes()
    assert site.build(library, cxx=cxx, name="second").executed == NOTHING
    assert site.library("second").read_bytes() == first
    (include / "value.hpp").write_text('#include <string>\nstatic const std::string text = "13";\n', encoding="utf-8")
    assert site.build(library, cxx=cxx, name="third").executed == {"object": 1, "link": 1}
    assert site.changes("main.cc") == ["include/0/value.hpp"]
    assert ctypes.CDLL(str(site.library("third"))).value() == 13
