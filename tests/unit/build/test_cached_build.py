"""Whole builds with a cache: what is executed again after each kind of change, and that the bytes never differ."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from relaybuild.build import library as library_module
from relaybuild.build.cache.archive import export_entries, import_entries
from relaybuild.build.cache.explain import explain
from relaybuild.build.cache.journal import Looked, MissReason, Storing
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import open_cache
from relaybuild.build.cache.upkeep import count, entries
from relaybuild.build.cached_build import CachedBuild
from relaybuild.build.library import Unit, build_library
from relaybuild.build.object_layer import KnownObject
from relaybuild.build.toolchain import Toolchain
from relaybuild.digest import digest_bytes
from relaybuild.errors import ToolError, UserError

from . import caching
from .caching import ADD, EXPORT, MAIN, MUL, WEIGHTS, Site, no_processes, write_headers

ROOT = Path(__file__).resolve().parents[3]
NOTHING = {"object": 0, "link": 0}
TIMEOUT = 120


@pytest.fixture
def site(tmp_path: Path, toolchain: Toolchain) -> Site:
    write_headers(tmp_path / "include")
    return Site(tmp_path, toolchain, tmp_path / "cache")


def test_a_second_build_starts_no_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC01: what was compiled once is not compiled again, whatever the library is called."""
    first = site.build()
    assert (first.executed, first.cached) == ({"object": 3, "link": 1}, NOTHING)
    assert site.executed() == ["library", "main.c", "rb_add.c", "rb_mul.c"]
    with no_processes(monkeypatch):
        second = site.build(name="other")
    assert (second.executed, second.cached) == (NOTHING, {"object": 3, "link": 1})
    assert site.executed() == []
    assert site.library("other").read_bytes() == site.library().read_bytes()
    assert second.size == site.library().stat().st_size
    assert os.access(site.library("other"), os.X_OK)
    assert not (site.folder / "other").exists()
    assert set(second.seconds) == {"write", "weights", "object", "link", "publish"}


@pytest.mark.parametrize("jobs", [1, 8])
def test_the_bytes_are_those_of_a_build_without_a_cache(site: Site, jobs: int) -> None:
    build_library(site.spec(), site.toolchain, site.folder / "plain", site.library("plain"), jobs=jobs)
    site.build(jobs=jobs)
    site.build(dataclasses.replace(site.spec(), link_flags=("-Wl,-O1",)), name="links anew")
    objects_from_cache = site.build(dataclasses.replace(site.spec(), link_libs=("m",)), name="places", jobs=jobs)
    assert objects_from_cache.executed == {"object": 0, "link": 1}
    assert site.library().read_bytes() == site.library("plain").read_bytes()
    # Libraries that nothing needs are not recorded.
    assert site.library("places").read_bytes() == site.library("plain").read_bytes()


def in_another_process(
    site: Site, folder: Path, environ: Mapping[str, str], cwd: Path, umask: int = 0o022
) -> dict[str, object]:
    result = subprocess.run(
        [sys.executable, caching.__file__, str(site.cache), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=cwd,
        umask=umask,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


def test_another_folder_home_umask_locale_and_hash_seed_hit(site: Site) -> None:
    here, there = write_headers(site.folder / "a" / "include").parent, site.folder / "b c" / "ü"
    write_headers(there / "include")
    home = site.folder / "home"
    home.mkdir()
    first = in_another_process(site, here, {"PYTHONHASHSEED": "1", "LC_ALL": "C"}, here)
    environ = {"PYTHONHASHSEED": "2", "HOME": str(home), "LC_ALL": "C.UTF-8", "TMPDIR": str(home), "USER": "other"}
    environ["PATH"] = f"{home}{os.pathsep}{os.environ['PATH']}"
    second = in_another_process(site, there, environ, home, umask=0o077)
    assert first["executed"] == {"object": 3, "link": 1}
    assert second["executed"] == NOTHING
    assert second["library"] == first["library"]


def test_an_imported_cache_hits(site: Site) -> None:
    first = site.build()
    with open_cache(CacheSettings(site.cache)) as cache:
        transfer = export_entries(cache.records, cache.blobs, "main", site.folder / "export.tar")
    assert transfer.entries == sum(first.executed.values())
    there = Site(site.folder / "there", site.toolchain, site.folder / "other cache")
    write_headers(there.include)
    with open_cache(CacheSettings(there.cache)) as cache:
        assert import_entries(cache.records, cache.blobs, "main", site.folder / "export.tar").refused == ()
    assert there.build().executed == NOTHING
    assert there.library().read_bytes() == site.library().read_bytes()


def test_two_processes_at_once_do_the_work_once(site: Site) -> None:
    for name in ("a", "b"):
        write_headers(site.folder / name / "include")
    command = [sys.executable, caching.__file__, str(site.cache)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [
        subprocess.Popen([*command, str(site.folder / name), "--wait"], env=environ, text=True, **pipes)
        for name in ("a", "b")
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(process.communicate(timeout=TIMEOUT)[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert answers[0]["library"] == answers[1]["library"]
    assert sum(answer["executed"]["object"] for answer in answers) == 3
    assert sum(answer["executed"]["link"] for answer in answers) == 1


@pytest.mark.parametrize("names", [{"rb_add"}, {"rb_add", "rb_mul", "main"}])
def test_objects_that_another_process_was_to_make_and_did_not_are_made(
    site: Site, monkeypatch: pytest.MonkeyPatch, names: set[str]
) -> None:
    claimed = CachedBuild._has_claimed
    monkeypatch.setattr(
        CachedBuild,
        "_has_claimed",
        lambda self, known, claims: known.unit.name not in names and claimed(self, known, claims),
    )
    assert site.build().executed == {"object": 3, "link": 1}
    assert site.build(name="second").executed == NOTHING


def test_objects_that_another_process_has_made_meanwhile_are_not_made(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = CachedBuild._has_claimed

    def wait(self: CachedBuild, known: KnownObject, claims: contextlib.ExitStack) -> bool:
        monkeypatch.setattr(CachedBuild, "_has_claimed", claimed)
        other = Site(site.folder, site.toolchain, site.cache)
        other.build(other.spec(ADD, MUL, weights=None), name="other")
        return known.unit.name != "rb_add"

    monkeypatch.setattr(CachedBuild, "_has_claimed", wait)
    report = site.build()
    assert report.executed == {"object": 1, "link": 1}
    assert {name: event.reason for name, event in looked(site).items()} == {
        "rb_add.c": None,
        "rb_mul.c": None,
        "main.c": MissReason.NEVER_SEEN,
    }


def looked(site: Site) -> dict[str, Looked]:
    """What was asked for each object; each was asked for once, as far as the journal says."""
    events = [event for event in site.journal.looked if event.layer == "object"]
    assert len(events) == len({event.name for event in events})
    return {event.name: event for event in events}


def test_an_edited_unit_is_compiled_alone_and_linked(site: Site) -> None:
    site.build()
    other = dataclasses.replace(MUL, text=MUL.text.replace("a * b", "(a + 1) * b"))
    report = site.build(site.spec(ADD, other, MAIN))
    assert (report.executed, report.cached) == ({"object": 1, "link": 1}, {"object": 2, "link": 0})
    assert site.executed() == ["library", "rb_mul.c"]
    assert site.changes("rb_mul.c") == ["in/source"]
    assert site.changes("library") == ["objects/rb_mul"]
    assert ctypes.CDLL(str(site.library())).compute(6, 7) == 50
    assert explain(site.journal).lines()[0].startswith("MISS object/rb_mul.c#demo/rb_mul: in/source changed")
    assert "1 link follows" in explain(site.journal).lines()[0]


def test_an_edit_that_changes_no_object_does_not_link(site: Site) -> None:
    site.build()
    with_comment = dataclasses.replace(MUL, text=f"{MUL.text}// a remark\n")
    report = site.build(site.spec(ADD, with_comment, MAIN))
    assert (report.executed, report.cached) == ({"object": 1, "link": 0}, {"object": 2, "link": 1})
    assert [event.name for event in explain(site.journal).cutoffs] == ["rb_mul.c"]


def test_changed_flags_compile_that_unit(site: Site) -> None:
    site.build()
    assert site.build(site.spec(ADD, dataclasses.replace(MUL, flags=("-O0",)), MAIN)).executed["object"] == 1
    assert site.changes("rb_mul.c") == ["option.arguments"]


@pytest.mark.parametrize(
    ("header", "units"),
    [("add.h", ["rb_add.c"]), ("mul.h", ["rb_mul.c"]), ("common.h", ["rb_add.c", "rb_mul.c"])],
)
def test_an_edited_header_compiles_what_includes_it(site: Site, header: str, units: list[str]) -> None:
    site.build()
    path = site.include / header
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace("ZERO", "(ZERO + 5)") if "#include" in before else "#define ZERO 5\n", "utf-8")
    report = site.build(name="edited")
    assert report.executed["object"] == len(units)
    assert site.executed() == ["library", *units]
    assert all(site.changes(unit) == [f"include/0/{header}"] for unit in units)
    path.write_text(before, encoding="utf-8")
    os.utime(path, (1, 1))
    assert site.build(name="back").executed == NOTHING
    assert site.library("back").read_bytes() == site.library().read_bytes() != site.library("edited").read_bytes()


def test_a_header_that_is_touched_is_the_same(site: Site) -> None:
    site.build()
    os.utime(site.include / "add.h", (2_000_000_000, 2_000_000_000))
    assert site.build().executed == NOTHING


def test_other_headers_than_the_last_time(site: Site) -> None:
    site.build()
    (site.include / "more.h").write_text("#define BIAS 40\n", encoding="utf-8")
    (site.include / "add.h").write_text('#include "more.h"\n', encoding="utf-8")
    assert site.build().executed == {"object": 1, "link": 1}
    assert ctypes.CDLL(str(site.library())).compute(1, 1) == 42
    # The object was stored under what was really read, and the journal speaks of one piece of work.
    assert len(explain(site.journal).causes) == 1
    assert site.build().executed == NOTHING
    (site.include / "more.h").write_text("#define BIAS 41\n", encoding="utf-8")
    assert site.build(name="second").executed["object"] == 1
    assert ctypes.CDLL(str(site.library("second"))).compute(1, 1) == 43
    (site.include / "more.h").unlink()
    with pytest.raises(ToolError, match=r"more\.h"):
        site.build()


def test_a_header_in_a_folder_that_is_searched_before_is_a_miss(site: Site) -> None:
    first = site.folder / "first"
    first.mkdir()
    spec = dataclasses.replace(site.spec(), include_dirs=(first, site.include))
    site.build(spec)
    assert site.build(spec).executed == NOTHING
    (first / "mul.h").write_text("#define SCALE 3\n", encoding="utf-8")
    assert site.build(spec, name="shadowed").executed == {"object": 1, "link": 1}
    assert site.changes("rb_mul.c") == ["option.shadows"]
    assert ctypes.CDLL(str(site.library("shadowed"))).compute(2, 2) == 13
    assert site.build(spec).executed == NOTHING
    (first / "mul.h").unlink()
    assert site.build(spec, name="gone").executed == {"object": 1, "link": 0}
    assert ctypes.CDLL(str(site.library("gone"))).compute(2, 2) == 5


def test_a_header_beside_the_one_that_includes_it_is_a_miss(site: Site) -> None:
    below = site.include / "below"
    below.mkdir()
    (below / "way.h").write_text('#include "common.h"\n', encoding="utf-8")
    unit = Unit("way", f'#include "below/way.h"\n{EXPORT} int way(void) {{ return ZERO; }}\n')
    spec = site.spec(unit, weights=None)
    site.build(spec)
    (below / "common.h").write_text("#define ZERO 9\n", encoding="utf-8")
    site.build(spec, name="second")
    assert ctypes.CDLL(str(site.library("second"))).way() == 9


def test_a_header_that_is_asked_for_and_comes_to_be_is_a_miss(site: Site) -> None:
    text = '#if __has_include("extra.h")\n#include "extra.h"\n#else\n#define EXTRA 1\n#endif\n'
    spec = site.spec(Unit("asks", f"{text}{EXPORT} int asks(void) {{ return EXTRA; }}\n"), weights=None)
    site.build(spec)
    assert site.build(spec).executed == NOTHING
    (site.include / "extra.h").write_text("#define EXTRA 2\n", encoding="utf-8")
    assert site.build(spec, name="second").executed == {"object": 1, "link": 1}
    assert site.changes("asks.c") == ["option.asked"]
    assert ctypes.CDLL(str(site.library("second"))).asks() == 2


def test_another_compiler_misses_everything(site: Site) -> None:
    site.build()
    other = dataclasses.replace(site.toolchain, digest=digest_bytes(b"another"))
    assert site.build(toolchain=other).executed == {"object": 3, "link": 1}
    assert site.changes("rb_add.c") == ["toolchain/compiler"]
    assert site.changes("library") == ["toolchain/cc"]


def test_the_compilers_own_words_count(site: Site) -> None:
    site.build()
    assert site.build(toolchain=caching.with_command(site.toolchain, "-DX=1")).executed == {"object": 3, "link": 1}
    assert site.changes("library") == ["option.command"]


@pytest.mark.parametrize("name", ["CPATH", "C_INCLUDE_PATH", "SOURCE_DATE_EPOCH", "LIBRARY_PATH"])
def test_a_variable_that_changes_outputs_misses(site: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    site.build()
    monkeypatch.setenv(name, "1" if name == "SOURCE_DATE_EPOCH" else str(site.folder))
    assert site.build().executed["object"] == 3
    assert site.changes("rb_add.c") == [f"env.{name}"]


def test_new_weights_are_linked_without_compiling_and_not_kept(site: Site) -> None:
    data = bytes(3) + os.urandom(1 << 20)
    weights = caching.WeightBlob.from_bytes(data, digest_bytes(data).hex)
    site.build()
    report = site.build(site.spec(weights=weights), name="new")
    assert (report.executed, report.cached) == ({"object": 0, "link": 1}, {"object": 3, "link": 0})
    assert site.changes("library") == ["weights"]
    assert ctypes.CDLL(str(site.library("new"))).compute(6, 7) == 42
    with open_cache(CacheSettings(site.cache)) as cache:
        stored = list(entries(cache))
        assert sorted(entry.action.layer for entry in stored) == ["link", "link", "object", "object", "object"]
        large = [blob for blob in cache.blobs.blobs() if blob.size > len(data)]
        assert len(large) == 1
        assert large[0].size == site.library("new").stat().st_size


def test_weights_that_libraries_share_are_kept_once(site: Site) -> None:
    common, size = os.urandom(1 << 20), 1 << 19
    kept = []
    for number in range(3):
        data = common + bytes([number]) * size
        weights = caching.WeightBlob.from_bytes(data, digest_bytes(data).hex)
        name = f"library{number}"
        site.build(site.spec(weights=dataclasses.replace(weights, offsets=(0, len(common)))), name=name)
        assert site.library(name).read_bytes().endswith(data)
        with open_cache(CacheSettings(site.cache)) as cache:
            kept.append(sum(blob.size for blob in cache.blobs.blobs()))
    assert kept[0] > len(common) + size
    for before, after in itertools.pairwise(kept):
        assert size < after - before < size + 100_000
    for number in range(3):
        before = site.library(f"library{number}").read_bytes()
        data = before[-len(common) - size :]
        weights = caching.WeightBlob.from_bytes(data, digest_bytes(data).hex)
        assert site.build(site.spec(weights=weights), name="again").executed == {"object": 0, "link": 0}
        assert site.library("again").read_bytes() == before


def test_weights_that_the_cache_has_in_a_library_are_not_written(site: Site) -> None:
    site.build()

    def never(file: object) -> None:
        raise AssertionError("the weights were written")

    site.build(site.spec(weights=caching.WeightBlob(never, WEIGHTS.digest, WEIGHTS.size)), name="other")


def test_weights_through_the_assembler(site: Site) -> None:
    assembler = dataclasses.replace(site.toolchain, elf_machine=None)
    assert site.build(toolchain=assembler).executed == {"object": 4, "link": 1}
    report = site.build(toolchain=assembler)
    assert (report.executed, report.cached) == (NOTHING, {"object": 4, "link": 1})


def damage(path: Path, how: str) -> None:
    path.chmod(0o644)
    data = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes({"truncated": data[:-9], "emptied": b"", "altered": data[:-1] + bytes([data[-1] ^ 1])}[how])


def blob_paths(site: Site, layer: str) -> list[Path]:
    with open_cache(CacheSettings(site.cache)) as cache:
        outputs = [entry.entry.result.outputs for entry in entries(cache) if entry.action.layer == layer]
        return [cache.blobs.path_of(output.digest.hex) for each in outputs for output in each if not output.contents]


@pytest.mark.parametrize("how", ["truncated", "emptied", "altered", "deleted"])
@pytest.mark.parametrize("layer", ["object", "link"])
def test_what_is_damaged_is_made_again_and_healed(site: Site, layer: str, how: str) -> None:
    # Objects that fit into a record are no blobs: these do not.
    filler = Unit("filler", f"{EXPORT} const char filler[3000] = {{1}};\n")
    spec = site.spec(ADD, MUL, MAIN, filler)
    site.build(spec)
    paths = blob_paths(site, layer)
    assert paths
    for path in paths:
        damage(path, how)
    # Linked with another flag, so that the objects are needed.
    again = dataclasses.replace(spec, link_flags=("-Wl,-O1",)) if layer == "object" else spec
    report = site.build(again, name="second")
    assert report.executed[layer] == len(paths)
    assert {event.reason for event in site.misses().values()} & {MissReason.INTEGRITY, MissReason.EVICTED}
    build_library(again, site.toolchain, site.folder / "plain", site.library("plain"))
    assert site.library("second").read_bytes() == site.library("plain").read_bytes()
    assert site.build(again, name="third").executed == NOTHING
    assert site.journal.failed == []


def test_a_failing_compilation_is_not_stored_and_what_came_before_it_is(site: Site) -> None:
    broken = Unit("broken", "int broken(void) { return undeclared_name; }\n")
    for _ in range(2):
        with pytest.raises(ToolError, match="undeclared_name"):
            # the longest is compiled first
            site.build(site.spec(ADD, broken, MAIN), jobs=1)
        assert "broken.c" in site.misses()
    with open_cache(CacheSettings(site.cache)) as cache:
        assert not [entry for entry in entries(cache) if entry.action.name == "broken.c"]
    assert not site.library().exists()
    assert site.build().executed == {"object": 1, "link": 1}


def test_a_failing_link_is_not_stored(site: Site) -> None:
    for _ in range(2):
        with pytest.raises(ToolError, match="rb_mul"):
            site.build(site.spec(ADD, MAIN))
    with open_cache(CacheSettings(site.cache)) as cache:
        assert count(cache)["layers"] == {"object": 2}


def meddling(site: Site, edit: str) -> Toolchain:
    """A compiler that runs a command after each compilation of `rb_mul`."""
    script = site.folder / "meddler"
    lines = ("#!/bin/sh", f'{site.toolchain.path} "$@" || exit 1', f'case "$*" in *src/rb_mul*) {edit};; esac')
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o755)
    return dataclasses.replace(site.toolchain, command=(str(script),))


@pytest.mark.parametrize("is_known", [False, True])
def test_a_header_edited_during_the_compilation_spoils_what_includes_it(site: Site, is_known: bool) -> None:
    header = site.include / "mul.h"
    if is_known:
        site.build()
        header.write_text(header.read_text(encoding="utf-8") + "\n#define CHANGED 1\n", encoding="utf-8")
    site.build(toolchain=meddling(site, f"echo '#define SCALE 7' > {header}"), name="meddled")
    stored = {event.name: event.storing for event in site.journal.executed}
    assert stored["rb_mul.c"] is Storing.RACY_INPUT
    assert is_known or stored["rb_add.c"] is Storing.STORED
    site.build(name="next")
    assert "rb_mul.c" in site.executed()
    assert ctypes.CDLL(str(site.library("next"))).compute(2, 2) == 29


def test_a_header_edited_during_the_compilation_spoils_all_that_include_it(site: Site) -> None:
    header = site.include / "common.h"
    site.build(toolchain=meddling(site, f"echo '#define ZERO 3' > {header}"), name="meddled", jobs=1)
    stored = {event.name: event.storing for event in site.journal.executed}
    assert (stored["rb_add.c"], stored["rb_mul.c"]) == (Storing.RACY_INPUT, Storing.RACY_INPUT)
    site.build(name="next")
    assert ctypes.CDLL(str(site.library("next"))).compute(2, 2) == 4 * 4 + 3 + 1


@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        ('__asm__(".section .rodata\\n.incbin \\"{}\\"\\n.previous");\n', (), "reads files that are no headers"),
        ("const char when[] = __DATE__ __TIME__;\n", (), "uses the time of the build"),
        ("#define NAME <string.h>\n#if __has_include(NAME)\n#endif\n", (), "asks for a header by a macro"),
        ("int x;\n", ("-march=native",), "depends on this machine"),
        ("int x;\n", ("-save-temps=obj",), "makes other files than the object"),
        ("int x;\n", ("-ftest-coverage",), "makes other files than the object"),
        ("int x;\n", ("@{}",), "may read files that are not known"),
        ('#include "rb_add.c"\n', (), "includes a file of the build directory"),
    ],
)
def test_what_depends_on_more_than_headers_is_never_taken_from_the_cache(
    site: Site, text: str, flags: tuple[str, ...], why: str
) -> None:
    data = site.folder / "data"
    data.write_text("-DDATA=1\n", encoding="utf-8")
    unit = Unit("odd", text.replace("{}", str(data)), tuple(flag.format(data) for flag in flags))
    spec = site.spec(dataclasses.replace(ADD, text="static int rb_hidden;\n"), unit, weights=None)
    site.build(spec)
    report = site.build(spec, name="second")
    assert report.executed["object"] == 1
    miss = site.misses()["odd.c"]
    assert miss.reason is MissReason.BYPASSED
    assert why in miss.detail
    assert [event.storing for event in site.journal.executed if event.name == "odd.c"] == [Storing.BYPASSED]


def test_a_header_that_depends_on_the_time_is_seen(site: Site) -> None:
    header = site.include / "mul.h"
    before = header.read_text(encoding="utf-8")
    header.write_text(f"{before}static const char when[] __attribute__((unused)) = __TIME__;\n", encoding="utf-8")
    site.build()
    site.build()
    assert "'include/0/mul.h' uses the time of the build (__TIME__)" in site.misses()["rb_mul.c"].detail
    # Once it is gone, the next compilation finds out.
    header.write_text(before, encoding="utf-8")
    site.build()
    assert site.build().executed == NOTHING


def test_a_kept_directory_can_be_looked_at_and_used_without_the_cache(site: Site) -> None:
    site.build()
    site.build(keep=True, name="kept")
    assert sorted(path.name for path in (site.folder / "kept" / "src").iterdir()) == ["main.c", "rb_add.c", "rb_mul.c"]
    report = build_library(site.spec(), site.toolchain, site.folder / "kept", site.library("plain"), keep=True)
    assert report.executed == {"object": 3, "link": 1}
    assert site.library("plain").read_bytes() == site.library().read_bytes()
    other = dataclasses.replace(MUL, text=MUL.text.replace("a * b", "(a + 1) * b"))
    site.build(site.spec(ADD, other, MAIN), keep=True, name="kept")
    assert ctypes.CDLL(str(site.library("kept"))).compute(6, 7) == 50
    site.build(keep=True, name="kept")
    assert site.library("kept").read_bytes() == site.library().read_bytes()


def test_recache_executes_everything_even_in_a_kept_directory(site: Site) -> None:
    site.build(keep=True)
    report = site.build(keep=True, mode=Mode.RECACHE)
    assert report.executed == {"object": 3, "link": 1}
    assert {event.reason for event in site.misses().values()} == {MissReason.BYPASSED}


@pytest.mark.parametrize("mode", [Mode.READ, Mode.OFF])
def test_a_mode_without_writing_keeps_nothing(site: Site, mode: Mode) -> None:
    site.build(mode=mode)
    assert site.build(mode=mode).executed == {"object": 3, "link": 1}
    site.build()
    assert site.build(mode=mode).executed == (NOTHING if mode is Mode.READ else {"object": 3, "link": 1})


def test_progress_counts_all_steps(site: Site) -> None:
    calls: list[tuple[int, int]] = []

    def build(name: str, *units: Unit) -> None:
        with open_cache(CacheSettings(site.cache)) as cache:
            library_module.build_library(
                site.spec(*units),
                site.toolchain,
                site.folder / name,
                site.library(name),
                jobs=1,
                on_progress=lambda finished, total: calls.append((finished, total)),
                cache=cache,
            )

    build("first")
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    calls.clear()
    build("second", dataclasses.replace(ADD, text=ADD.text.replace("BIAS", "BIAS + 1")), MUL, MAIN)
    assert calls == [(1, 2), (2, 2)]
    calls.clear()
    build("third")
    assert calls == []


def test_an_output_that_cannot_be_written_is_the_users_error(site: Site) -> None:
    site.build()
    with pytest.raises(UserError, match="its folder does not exist"):
        site.build(name="missing/demo")


def test_one_name_for_other_text_in_another_library(site: Site) -> None:
    site.build()
    other = Unit("rb_add", "int rb_add(int a, int b) { return a - b; }\n", ("-O3",))
    site.build(dataclasses.replace(site.spec(other, MUL, MAIN), name="another"), name="another")
    assert ctypes.CDLL(str(site.library("another"))).compute(6, 7) == 41
    assert site.build(name="again").executed == NOTHING


def test_kernels_are_shared_between_libraries(site: Site) -> None:
    site.build()
    renamed = dataclasses.replace(MAIN, name="program")
    report = site.build(dataclasses.replace(site.spec(ADD, MUL, renamed), name="another"), name="another")
    assert report.executed == {"object": 1, "link": 1}
    assert site.executed() == ["library", "program.c"]


def test_the_order_of_objects_counts(site: Site) -> None:
    site.build()
    assert site.build(site.spec(MUL, ADD, MAIN), name="other").executed == {"object": 0, "link": 1}
    assert site.changes("library") == ["option.objects"]
