"""A toolchain that is known is known without a process, and whatever could make it another one is seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.moment import Moment
from relaybuild.build.tool_record import ToolRecords, content_of
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.errors import ToolError, UserError

from .caching import no_processes


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def forwards(path: Path, program: Path | str, more: str = "") -> Path:
    return script(path, f'{more}\nexec {program} "$@"')


@pytest.fixture
def settings(tmp_path: Path) -> CacheSettings:
    return CacheSettings(tmp_path / "cache")


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder at the head of the PATH with an assembler and a linker of our own."""
    for tool in ("as", "ld"):
        path = shutil.which(tool)
        if path is None:
            pytest.skip(f"needs '{tool}' on the PATH")
        forwards(tmp_path / "bin" / tool, path)
    return tmp_path / "bin"


def environ_with(*folders: Path, **variables: str) -> dict[str, str]:
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    dropped = {"CC", "CXX", "RELAYBUILD_COMPILER_LAUNCHER"}
    return {name: value for name, value in os.environ.items() if name not in dropped} | {"PATH": path} | variables


Probe = Callable[..., Toolchain]


@pytest.fixture
def known(settings: CacheSettings, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Probes without a process; fails where one would be needed."""

    def ask(cc: Path | str | None, environ: Mapping[str, str] | None = None) -> Toolchain:
        with no_processes(monkeypatch), open_cache(settings) as cache:
            return probe(str(cc) if cc is not None else None, environ=environ, cache=cache)

    return ask


def tried(settings: CacheSettings, cc: Path | str | None, environ: Mapping[str, str] | None = None) -> Toolchain:
    with open_cache(settings) as cache:
        return probe(str(cc) if cc is not None else None, environ=environ, cache=cache)


def test_the_machines_compiler_is_tried_once(settings: CacheSettings, known: Probe, toolchain: Toolchain) -> None:
    assert tried(settings, None) == toolchain
    assert known(None) == toolchain


def test_a_wrapper_is_tried_once(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain, bin_folder: Path
) -> None:
    compiler = forwards(
        tmp_path / "my tools" / "cc", toolchain.path, '# a remark\ncase "$1" in --nothing) exit 1;; esac'
    )
    environ = environ_with(bin_folder)
    first = tried(settings, compiler, environ)
    assert first.path == compiler
    assert known(compiler, environ) == first == probe(str(compiler), environ=environ)


def test_a_touched_compiler_is_the_same(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    compiler = forwards(tmp_path / "cc", toolchain.path)
    first = tried(settings, compiler, environ_with())
    os.utime(compiler, (2_000_000_000, 2_000_000_000))
    assert known(compiler, environ_with()) == first


def test_neutral_variables_and_a_longer_path_do_not_matter(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    first = tried(settings, toolchain.path, environ_with())
    assert known(toolchain.path, environ_with(tmp_path, HOME="/nowhere", LANG="de_DE", USER="other")) == first


Change = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda compiler, _: forwards(compiler, compiler.with_name("inner"), ": other"), id="wrapper"),
        pytest.param(lambda compiler, _: forwards(compiler.with_name("inner"), "cc", ": other"), id="what it runs"),
        pytest.param(lambda _, folder: forwards(folder / "as", "/usr/bin/as", ": other"), id="assembler"),
        pytest.param(lambda _, folder: forwards(folder / "ld", "/usr/bin/ld", ": other"), id="linker"),
        pytest.param(lambda _, folder: (folder / "as").unlink(), id="no assembler of our own"),
        pytest.param(lambda _, folder: forwards(folder / "cc", shutil.which("cc") or ""), id="earlier on the PATH"),
        pytest.param(lambda compiler, _: compiler.with_name("cc1").write_text("other"), id="compiler proper"),
    ],
)
def test_every_program_that_has_a_say_is_watched(
    tmp_path: Path,
    settings: CacheSettings,
    known: Probe,
    toolchain: Toolchain,
    bin_folder: Path,
    change: Change,
) -> None:
    tools = tmp_path / "tools"
    script(tools / "cc1", "exit 0")
    answer = f'case "$1" in -print-prog-name=cc1) echo {tools / "cc1"}; exit 0;; esac'
    forwards(tools / "inner", "cc", answer)
    compiler, environ = forwards(tools / "outer", tools / "inner"), environ_with(bin_folder)
    first = tried(settings, compiler, environ)
    assert known(compiler, environ) == first
    change(compiler, bin_folder)
    with pytest.raises(AssertionError, match="a process was started"):
        known(compiler, environ)
    second = tried(settings, compiler, environ)
    assert second == probe(str(compiler), environ=environ)
    assert known(compiler, environ) == second


def test_a_link_that_leads_elsewhere_is_another_compiler(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    old, new = forwards(tmp_path / "12" / "gcc", toolchain.path), forwards(tmp_path / "13" / "gcc", toolchain.path, ":")
    link = tmp_path / "cc"
    link.symlink_to(old)
    first = tried(settings, link, environ_with())
    assert known(link, environ_with()).digest == first.digest
    link.unlink()
    link.symlink_to(new)
    assert tried(settings, link, environ_with()).digest != first.digest
    # A driver looks for its programs beside itself, so that one of the same bytes elsewhere may run others.
    link.unlink()
    link.symlink_to(forwards(tmp_path / "14" / "gcc", toolchain.path, ":"))
    with pytest.raises(AssertionError, match="a process was started"):
        known(link, environ_with())


@pytest.mark.parametrize(
    "body",
    [
        'exec $REAL_CC "$@"',
        'exec "$(cat {place})" "$@"',
        'exec `cat {place}` "$@"',
        'cd /; exec ./{relative} "$@"',
        'exec {compiler}* "$@"',
        'test -e /nowhere && exec false\nexec {compiler} "$@"',
        'if [ -x /nowhere ]; then exec false; fi\nexec {compiler} "$@"',
        'ls / | grep -q nothing-like-it && exec false\nexec {compiler} "$@"',
    ],
)
def test_a_script_that_computes_what_it_runs_is_never_recorded(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain, body: str
) -> None:
    inner = forwards(tmp_path / "inner", toolchain.path)
    (tmp_path / "place").write_text(str(inner), encoding="utf-8")
    names = {"place": tmp_path / "place", "relative": str(inner).lstrip("/"), "compiler": inner}
    compiler = script(tmp_path / "cc", body.format(**names))
    environ = environ_with(REAL_CC=str(inner), RELAYBUILD_TOOL_VARIABLES="REAL_CC")
    first = tried(settings, compiler, environ)
    with pytest.raises(AssertionError, match="a process was started"):
        known(compiler, environ)
    script(
        inner,
        f'case "$1" in --version) echo "gcc 99.1 Free Software Foundation"; exit 0;; esac\nexec {toolchain.path} "$@"',
    )
    assert tried(settings, compiler, environ).digest != first.digest


def test_a_program_of_another_language_is_never_recorded(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(
        f"#!/usr/bin/env python3\nimport os, sys\nos.execv('{toolchain.path}', ['cc', *sys.argv[1:]])\n", "utf-8"
    )
    compiler.chmod(0o755)
    tried(settings, compiler, environ_with())
    with pytest.raises(AssertionError, match="a process was started"):
        known(compiler, environ_with())


def test_a_launcher_under_the_compilers_name_is_never_recorded(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    (tmp_path / "gcc").symlink_to(forwards(tmp_path / "ccache", toolchain.path))
    tried(settings, tmp_path / "gcc", environ_with())
    with pytest.raises(AssertionError, match="a process was started"):
        known(tmp_path / "gcc", environ_with())


def test_a_variable_that_changes_outputs_is_another_record(
    tmp_path: Path, settings: CacheSettings, known: Probe, toolchain: Toolchain
) -> None:
    tried(settings, toolchain.path, environ_with())
    with pytest.raises(AssertionError, match="a process was started"):
        known(toolchain.path, environ_with(CPATH=str(tmp_path)))
    assert str(tmp_path) in tried(settings, toolchain.path, environ_with(CPATH=str(tmp_path))).include_dirs


def test_a_program_that_changed_while_it_was_tried_is_not_recorded(
    tmp_path: Path, settings: CacheSettings, toolchain: Toolchain
) -> None:
    compiler = forwards(tmp_path / "cc", toolchain.path)
    before, after = Moment(0), Moment.now(tmp_path)
    after = Moment(after.ns + 1)
    with open_cache(settings) as cache:
        records = ToolRecords(cache, environ_with())
        records.remember("c", (str(compiler),), {"a": 1}, [str(compiler)], since=before)
        assert records.recall("c", (str(compiler),)) is None
        records.remember("c", (str(compiler),), {"a": 1}, [str(compiler)], since=after)
        assert records.recall("c", (str(compiler),)) == {"a": 1}


@pytest.mark.parametrize("facts", [{}, {"digest": 1}, {"digest": ["00", 1], "family": "gcc"}])
def test_a_record_of_another_shape_is_not_used(
    tmp_path: Path, settings: CacheSettings, toolchain: Toolchain, facts: dict[str, object]
) -> None:
    with open_cache(settings) as cache:
        later = Moment(Moment.now(tmp_path).ns + 1)
        ToolRecords(cache, os.environ).remember("c", toolchain.command, facts, toolchain.command[:1], since=later)
    assert tried(settings, None) == toolchain


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.RECACHE])
def test_a_mode_that_takes_nothing_from_the_cache_tries_the_compiler(
    settings: CacheSettings, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    tried(settings, None)
    with (
        no_processes(monkeypatch),
        open_cache(CacheSettings(settings.folder, mode)) as cache,
        pytest.raises(AssertionError, match="a process was started"),
    ):
        probe(cache=cache)


@pytest.fixture
def cxx_environ(bin_folder: Path) -> dict[str, str]:
    if shutil.which("c++") is None:
        pytest.skip("needs 'c++' on the PATH")
    return environ_with(bin_folder)


@pytest.fixture
def cache(settings: CacheSettings) -> Iterator[Cache]:
    with open_cache(settings) as opened:
        yield opened


def test_the_cxx_compiler_is_tried_once(
    tmp_path: Path, cache: Cache, cxx_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "cc1plus", "exit 0")
    answer = f'case "$1" in -print-prog-name=cc1plus) echo {tmp_path / "cc1plus"}; exit 0;; esac'
    compiler = forwards(tmp_path / "cxx", "c++", answer)
    environ = cxx_environ | {"CXX": str(compiler)}
    toolchain = probe(environ=environ)
    first = probe_cxx(toolchain, environ=environ, cache=cache)
    assert first == probe_cxx(toolchain, environ=environ)
    with no_processes(monkeypatch):
        assert probe_cxx(toolchain, environ=environ, cache=cache) == first
    script(tmp_path / "cc1plus", "exit 1")
    second = probe_cxx(toolchain, environ=environ, cache=cache)
    assert second.digest != first.digest
    assert second == probe_cxx(toolchain, environ=environ)


@pytest.mark.parametrize(("text", "reason"), [("nolauncher --x", "was not found or is not executable"), ("'", "words")])
def test_a_launcher_that_is_not_there(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"RELAYBUILD_COMPILER_LAUNCHER.*{reason}"):
        probe(environ=environ_with(RELAYBUILD_COMPILER_LAUNCHER=text))


def test_a_launcher_that_cannot_compile(tmp_path: Path) -> None:
    launcher = script(tmp_path / "launcher", "echo no server >&2; exit 3")
    with pytest.raises(
        ToolError, match=r"the compiler launcher '.*/launcher --fast' .*cannot compile a file"
    ) as caught:
        probe(environ=environ_with(RELAYBUILD_COMPILER_LAUNCHER=f"{launcher} --fast"))
    assert caught.value.output == "no server\n"


def test_a_program_with_one_other_byte_is_another_one(tmp_path: Path, toolchain: Toolchain) -> None:
    """Its size, its build id and its time are those of the other."""
    program, altered = tmp_path / "program", tmp_path / "altered"
    data = Path(toolchain.path).read_bytes()
    program.write_bytes(data)
    altered.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for path in (program, altered):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    first, second = (content_of(str(path), Inputs(None)) for path in (program, altered))
    assert first is not None
    assert first != second


def test_what_is_found_out_beside_the_run_is_kept_under_the_variables_it_was_asked_for_with(
    settings: CacheSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, late = str(shutil.which("true")), list[Callable[[], None]]()
    environ = environ_with()
    before = dict(environ)
    with open_cache(settings) as cache:
        monkeypatch.setattr(cache, "aside", late.append)
        since = Moment.now(tmp_path)
        ToolRecords(cache, environ).remember("c", [program], {"is": "known"}, [program], since=since)
        environ["CPATH"] = str(tmp_path / "elsewhere")
        (work,) = late
        work()
    with open_cache(settings) as cache:
        assert ToolRecords(cache, before).recall("c", [program]) == {"is": "known"}
        assert ToolRecords(cache, environ).recall("c", [program]) is None
