"""Each registered variable: invalidating ones make other keys, neutral ones make none, foreign ones reach no tool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from keys import library_keys, request_key

from relaybuild.artifact.request import Request
from relaybuild.build.cache.store import open_cache
from relaybuild.build.cache_config import CacheFlags, chosen_settings
from relaybuild.build.configure import BackendModule, configure
from relaybuild.build.library import Unit
from relaybuild.build.library_spec import Compilers
from relaybuild.build.process import run_together
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.build.variables import (
    REGISTRY,
    TOOL_VARIABLES,
    Keyed,
    Reader,
    Variables,
    invalidating,
    kind_of,
    shown_to,
)
from relaybuild.target import Target

from .caching import ADD, MAIN, MUL, Site, no_processes, write_headers

pytestmark = pytest.mark.usefixtures("fixed_code")

FOREIGN = tuple("CARGO_MAKEFLAGS MFLAGS CI CI_JOB_ID GITHUB_RUN_ID BUILD_NUMBER USER LANG TERM RANK WORLD_SIZE".split())
"""What is set around builds and changes from one to the next."""


def examples(*keyed: Keyed) -> list[str]:
    """One variable for each registered name."""
    return [name.replace("*", "EXAMPLE") for kind in REGISTRY if kind.keyed in keyed for name in kind.names]


def changed(name: str, toolchain: Toolchain, folder: Path) -> dict[str, str]:
    """This environment with another value of a variable: one that means the same where another would be a mistake."""
    compiler = folder / "another place" / toolchain.path.name
    compiler.parent.mkdir()
    compiler.symlink_to(toolchain.path)
    launcher = folder / "launcher"
    launcher.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    values = {
        "CC": str(compiler).replace(" ", "\\ "),
        "CXX": "c++" if shutil.which("c++") else "",
        "PATH": f"{os.environ['PATH']}{os.pathsep}{folder}",
        "RELAYBUILD_COMPILER_LAUNCHER": str(launcher),
        "TMPDIR": str(folder),
        "RELAYBUILD_CACHE_SECRET_FILE": str(launcher),
        "RELAYBUILD_REMOTE_CACHE": "http://127.0.0.1:9",
        "RELAYBUILD_REMOTE_MODE": "read",
        "PYTHONHOME": os.environ.get("PYTHONHOME", ""),
    }
    return {**os.environ, name: values.get(name, str(folder))}


class Keys:
    """The keys of a library, of one of its objects and of a whole artifact, in any environment."""

    def __init__(self, folder: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
        self._site = Site(folder, toolchain, folder / "cache")
        write_headers(self._site.include)
        (folder / "model.onnx").write_bytes(b"")
        self._request = Request(folder / "model.onnx", "model", Target.parse("c"))
        self._monkeypatch = monkeypatch

    def of(self, toolchain: Toolchain, environ: Mapping[str, str]) -> dict[str, str]:
        settings = chosen_settings(CacheFlags(self._site.cache), environ)
        with self._monkeypatch.context() as patch, open_cache(settings) as cache:
            for name in os.environ.keys() - environ.keys():
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            spec = self._site.spec(ADD, MUL, MAIN)
            keys = library_keys(spec, Compilers(toolchain), self._site.folder, cache)
            return {**keys, "artifact": request_key(self._request, toolchain, cache)}


@pytest.fixture
def keys(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Keys:
    (tmp_path / "keys").mkdir()
    return Keys(tmp_path / "keys", toolchain, monkeypatch)


@pytest.mark.parametrize("name", [*examples(Keyed.ALWAYS, Keyed.NAMESPACE), "MINE"])
def test_an_invalidating_variable_is_in_every_key(
    tmp_path: Path, toolchain: Toolchain, keys: Keys, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(TOOL_VARIABLES, "MINE, MY_*")
    before = keys.of(toolchain, os.environ)
    after = keys.of(toolchain, changed(name, toolchain, tmp_path))
    assert before.keys() == after.keys() == {"object", "link", "artifact"}
    assert [layer for layer in before if before[layer] == after[layer]] == []


@pytest.mark.parametrize("name", [*examples(Keyed.NEVER, Keyed.DETECTION), *FOREIGN])
def test_any_other_variable_is_in_no_key(tmp_path: Path, toolchain: Toolchain, keys: Keys, name: str) -> None:
    environ = changed(name, toolchain, tmp_path)
    # The compiler is looked for anew: variables may name another place, and must find the same there.
    assert keys.of(probe(environ=environ), environ) == keys.of(toolchain, os.environ)


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[BackendModule], Path]:
    """A module that CMake has evaluated in this environment, and where its answer is kept."""
    folder = tmp_path_factory.mktemp("detection")
    module = folder / "MODULE.cmake"
    module.write_text("relaybuild_flag_choices(USE_IT OFF ON)\nrelaybuild_backend(it FLAG USE_IT)\n", encoding="utf-8")
    modules = [BackendModule("it", "USE_IT", module)]
    configure(None, {"USE_IT": "ON"}, modules, cache_dir=folder)
    return modules, folder


# CMake's own scripts name the compilers' variables, so what it found is kept with their values.
@pytest.mark.parametrize("name", [name for name in examples(Keyed.NEVER) if name not in ("CC", "CXX")])
def test_a_neutral_variable_does_not_change_what_cmake_found(
    tmp_path: Path,
    toolchain: Toolchain,
    detection: tuple[list[BackendModule], Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    modules, folder = detection
    environ = changed(name, toolchain, tmp_path)
    with no_processes(monkeypatch):
        configure(None, {"USE_IT": "ON"}, modules, cache_dir=folder, environ=environ)


@pytest.mark.parametrize("name", [*examples(Keyed.DETECTION), "CPATH"])
def test_an_invalidating_variable_changes_what_cmake_found(
    tmp_path: Path,
    toolchain: Toolchain,
    detection: tuple[list[BackendModule], Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    modules, folder = detection
    environ = changed(name, toolchain, tmp_path)
    with no_processes(monkeypatch), pytest.raises(AssertionError, match="a process was started"):
        configure(None, {"USE_IT": "ON"}, modules, cache_dir=folder, environ=environ)


def test_a_foreign_variable_reaches_neither_the_compiler_nor_ninja(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nenv -0 >> {log}\nexec {toolchain.path} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    for name in FOREIGN:
        monkeypatch.setenv(name, "foreign")
    monkeypatch.setenv("CPATH", str(tmp_path))
    monkeypatch.setenv("MAKEFLAGS", "-j2")
    monkeypatch.setenv("MY_OWN", "declared")
    monkeypatch.setenv("CCACHE_COMPILER", "another")
    monkeypatch.setenv(TOOL_VARIABLES, "MY_*")
    site = Site(tmp_path, probe(str(compiler)), tmp_path / "cache")
    write_headers(site.include)
    log.unlink()
    site.build()
    seen = {line.partition("=")[0]: line for line in log.read_text(encoding="utf-8").split("\0")}
    assert seen["CPATH"] == f"CPATH={tmp_path}"
    assert (seen["MAKEFLAGS"], seen["MY_OWN"], seen["LC_ALL"]) == ("MAKEFLAGS=-j2", "MY_OWN=declared", "LC_ALL=C")
    # What is beyond that, the shells and ninja have set.
    assert set(seen) - shown_to(Reader.TOOL, os.environ).keys() <= {"", "LC_ALL", "NINJA_STATUS", "PWD", "SHLVL", "_"}
    assert not {*FOREIGN, "CCACHE_COMPILER"} & set(seen)


def test_a_compiler_cannot_depend_on_a_variable_that_is_in_no_key(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "cc"
    wrapper.write_text(f'#!/bin/sh\nexec {toolchain.path} $STAGE "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    site = Site(tmp_path, probe(str(wrapper)), tmp_path / "cache")
    unit = Unit("main", "#ifndef PLACE\n#define PLACE 0\n#endif\nint rb_place = PLACE;\n", ("-fvisibility=default",))
    libraries = []
    for declared in ("", "STAGE"):
        monkeypatch.setenv(TOOL_VARIABLES, declared)
        for place in ("staging", "production"):
            monkeypatch.setenv("STAGE", f"-DPLACE={len(place)}")
            site.build(site.spec(unit, weights=None))
            libraries.append(site.library().read_bytes())
    # Undeclared, it does nothing; declared, it makes a library of its own.
    assert libraries[0] == libraries[1]
    assert len(set(libraries[1:])) == 3


@pytest.mark.parametrize(
    "body",
    [
        'set(USE_PLAIN "$ENV{WANT_PLAIN}")',
        'set(name WANT_PLAIN)\nset(USE_PLAIN "$ENV{${name}}")',
        "include(other.cmake)",
    ],
)
def test_cmake_is_shown_what_scripts_name(tmp_path: Path, body: str) -> None:
    config = tmp_path / "config.cmake"
    config.write_text(f"{body}\n", encoding="utf-8")
    (tmp_path / "other.cmake").write_text("set(USE_PLAIN $ENV{WANT_PLAIN})\n", encoding="utf-8")
    module = BackendModule("plain", "USE_PLAIN", None)
    found = []
    for value in ("ON", "OFF"):
        environ = {**os.environ, "WANT_PLAIN": value}
        settings = configure(config, {}, [module], cache_dir=tmp_path / "cache", environ=environ)
        found.append(settings["USE_PLAIN"].value)
    assert found == ["ON", "OFF"]


def test_cmake_is_not_shown_what_nobody_names() -> None:
    program = ["/usr/bin/env"]
    environ = {"PATH": os.defpath, "CMAKE_PREFIX_PATH": "/p", "OTHER": "1", "NAMED": "2"}
    tool, cmake = (
        run_together([program], environ=environ, reader=reader, named=named)[0].output.splitlines()
        for reader, named in ((Reader.TOOL, ()), (Reader.CMAKE, ("NAMED",)))
    )
    assert sorted(tool) == ["LC_ALL=C", f"PATH={os.defpath}"]
    assert sorted(cmake) == ["CMAKE_PREFIX_PATH=/p", "LC_ALL=C", "NAMED=2", f"PATH={os.defpath}"]


@pytest.mark.parametrize(
    ("declared", "seen"),
    [("MY_*", {"MY_A", "MY_B_DIR"}), ("MY_*_DIR", {"MY_B_DIR"}), ("MY_A, OTHER", {"MY_A", "OTHER"}), ("", set())],
)
def test_patterns_of_declared_variables(declared: str, seen: set[str]) -> None:
    environ = dict.fromkeys(("MY_A", "MY_B_DIR", "OTHER", "NOT_MY_A"), "1")
    assert invalidating({**environ, TOOL_VARIABLES: declared}).keys() == seen


def test_no_name_stands_twice() -> None:
    names = [name for kind in REGISTRY for name in kind.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", REGISTRY, ids=lambda kind: kind.names[0])
def test_each_name_is_found_in_its_own_kind(kind: Variables) -> None:
    assert [kind_of(name.replace("*", "EXAMPLE")) for name in kind.names] == [kind] * len(kind.names)
