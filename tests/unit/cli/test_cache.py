"""`relaybuild cache`: each command through the command line, on a cache with a few entries."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from cli.conftest import Invoke
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.build.cache_config import CacheFlags, chosen_settings, parse_size
from relaybuild.digest import digest_bytes
from relaybuild.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")

LARGE = b"int x;\n" * 1000
NAMES = ("Fold", "Fuse", "Fold")


def made(name: str) -> ActionBuilder:
    return ActionBuilder("pass", name).input("in/module", digest_bytes(b"m")).option("level", 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "the cache"
    with open_cache(CacheSettings(path, origin="here")) as cache:
        for name in NAMES:
            cache.run(made(name).build(), lambda: {"code.c": LARGE, "note": b"n"}, slot=name)
    return path


@pytest.fixture
def ask(invoke: Invoke, folder: Path) -> Invoke:
    """Runs `relaybuild cache` on the folder."""

    def run(*arguments: str | Path) -> Result:
        return invoke("cache", "--cache-dir", folder, *arguments)

    return run


def blob_of(folder: Path) -> Path:
    digest = digest_bytes(LARGE).hex
    return folder / "v1" / "cas" / digest[:2] / digest[2:]


def test_dir_prints_the_folder(ask: Invoke, invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("dir").stdout == f"{folder}\n"
    monkeypatch.setenv("RELAYBUILD_CACHE_DIR", "/some/where")
    assert invoke("cache", "dir").stdout == "/some/where\n"


def test_the_folder_stands_before_a_commands_name_or_behind_it(invoke: Invoke, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert invoke("cache", "dir", "--cache-dir", first).stdout == f"{first}\n"
    assert invoke("cache", "--cache-dir", first, "dir").stdout == f"{first}\n"
    assert invoke("cache", "--cache-dir", first, "dir", "--cache-dir", second).stdout == f"{second}\n"


READING = (("stats",), ("verify",), ("export", "a.tar"), ("show", "abcd"))


@pytest.mark.parametrize("arguments", READING)
@pytest.mark.parametrize("is_there", [False, True])
def test_who_only_looks_makes_no_cache(
    invoke: Invoke, tmp_path: Path, arguments: tuple[str, ...], is_there: bool
) -> None:
    folder = tmp_path / "absent"
    if is_there:
        folder.mkdir()
    result = invoke("cache", "--cache-dir", folder, *arguments)
    assert (result.exit_code, result.stderr) == (1, f"error: there is no cache in '{folder}'\n")
    assert list(folder.iterdir()) == [] if is_there else not folder.exists()


def test_the_doctor_makes_no_cache(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "absent" / "cache"
    result = invoke("cache", "--cache-dir", folder, "doctor")
    assert (result.exit_code, "cache: none yet" in result.stdout.splitlines()) == (0, True)
    assert not folder.parent.exists()
    (tmp_path / "absent").write_text("a file")
    result = invoke("cache", "--cache-dir", folder, "doctor")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        1,
        "problem: the folder cannot be made: nothing is kept",
    )


@pytest.mark.parametrize("arguments", [("cache", "stats"), ("cache", "doctor"), ("compile", "a.onnx", "-o", "a.so")])
def test_a_folder_without_a_name_is_refused(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "--cache-dir", "")
    assert (result.exit_code, result.stderr) == (1, "error: option '--cache-dir': expected a folder, found ''\n")
    with pytest.raises(UserError, match="the folder of the cache is '', expected a path"):
        chosen_settings(CacheFlags(""))


def test_without_a_home_there_is_no_folder(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "RELAYBUILD_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    result = invoke("cache", "stats")
    assert result.exit_code == 1
    assert "name one with --cache-dir or RELAYBUILD_CACHE_DIR" in result.stderr


def test_stats_say_what_there_is_and_what_was_found(ask: Invoke) -> None:
    assert ask("stats").stdout.splitlines() == [
        "2 entries, 1 blobs, 7.0 kB",
        "1 runs",
        "  layer  entries  cached  executed",
        "  pass         2       1         2",
        "misses: 2 never-seen",
        "storing: 2 stored",
    ]
    facts = json.loads(ask("stats", "--json", "--last").stdout)
    assert (facts["entries"], facts["bytes"], facts["cached"]) == (2, len(LARGE), {"pass": 1})
    ask("stats", "--zero")
    assert json.loads(ask("stats", "--json").stdout)["runs"] == 0


def test_stats_go_to_the_summary_of_a_job_of_github(
    ask: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert ask("stats", "--github").stdout == ask("stats").stdout
    assert page.read_text(encoding="utf-8").splitlines() == [
        "before",
        "### Cache of relaybuild: 2 entries, 1 blobs, 7.0 kB",
        "",
        "| layer | entries | cached | executed |",
        "|---|---:|---:|---:|",
        "| pass | 2 | 1 | 2 |",
        "",
        "- 1 runs",
        "- misses: 2 never-seen",
        "- storing: 2 stored",
        "",
    ]


def test_a_summary_needs_a_job_of_github(ask: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = ask("stats", "--github")
    assert result.exit_code == 1
    assert "GITHUB_STEP_SUMMARY names no file" in result.stderr


def test_show_prints_what_went_in_and_what_came_out(ask: Invoke) -> None:
    key = made("Fold").build().key("main")
    lines = ask("show", key[:12]).stdout.splitlines()
    assert lines[0] == "pass/Fold"
    assert lines[1] == f"key: {key} (namespace 'main')"
    assert lines[2].startswith("made: ")
    assert " UTC on here, in " in lines[2]
    assert lines[3:] == [
        "inputs:",
        f"  in/module: {digest_bytes(b'm').hex}",
        "  option.level: 3",
        "outputs:",
        f"  code.c: {digest_bytes(LARGE).hex} (7.0 kB)",
        f"  note: {digest_bytes(b'n').hex} (1 B)",
    ]
    facts = json.loads(ask("show", key, "--json").stdout)
    assert (facts["key"], facts["inputs"]["option.level"]) == (key, "3")


@pytest.mark.parametrize(
    ("key", "message"),
    [("0" * 64, "the cache has no entry"), ("xyz", "is no key, expected 4 to 64 digits"), ("../..", "is no key")],
)
def test_show_refuses_what_is_no_key(ask: Invoke, key: str, message: str) -> None:
    result = ask("show", key)
    assert result.exit_code == 1
    assert message in result.stderr


def test_verify_finds_and_removes_what_is_damaged(ask: Invoke, folder: Path) -> None:
    result = ask("verify")
    assert (result.exit_code, result.stdout) == (0, "2 entries verified, 0 damaged\n")
    path = blob_of(folder)
    path.chmod(0o600)
    path.write_bytes(LARGE[:-1] + b"x")
    result = ask("verify")
    assert (result.exit_code, result.stdout) == (1, "0 entries verified, 2 damaged\n")
    assert "has another content" in result.stderr
    assert ask("verify").stdout == "0 entries verified, 0 damaged\n"


def test_verify_takes_a_sample(ask: Invoke, folder: Path) -> None:
    with open_cache(CacheSettings(folder)) as cache:
        for number in range(200):
            cache.store(made(f"pass{number}").build(), {"out": b"1"})
    verified = int(ask("verify", "--sample", "25").stdout.split()[0])
    assert 20 <= verified <= 85
    assert ask("verify", "--sample", "0").exit_code == 1
    assert ask("verify", "--sample", "nan").stderr == "error: option '--sample': expected a number above 0\n"


def test_gc_keeps_the_limit(ask: Invoke, folder: Path) -> None:
    assert ask("gc").stdout.endswith(": 0 entries and 0 blobs removed\n")
    result = ask("gc", "--max-size", "1kB")
    assert result.stdout.endswith(": 2 entries and 1 blobs removed\n")
    assert not blob_of(folder).exists()


@pytest.mark.parametrize(
    ("text", "count"),
    [("5GB", 5 * 10**9), ("1.5 MB", 1_500_000), ("1GiB", 2**30), ("2k", 2000), ("700", 700), ("3B", 3), ("1t", 10**12)],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1", "5XB", "1iB", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no size, expected"):
        parse_size(text)


def test_entries_are_carried_to_another_cache(ask: Invoke, invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "a.tar"
    assert ask("export", file).stdout == f"2 entries with 1 blobs written to '{file}'\n"
    other = ("cache", "--cache-dir", tmp_path / "other")
    assert invoke(*other, "import", file).stdout == "2 entries with 1 blobs imported, 0 were there already\n"
    assert invoke(*other, "import", file).stdout == "0 entries with 1 blobs imported, 2 were there already\n"
    assert invoke(*other, "verify").stdout == "2 entries verified, 0 damaged\n"
    folder = invoke(*other, "import", tmp_path)
    assert folder.stderr == f"error: {tmp_path}: it is a folder, expected a file that 'export' has written\n"
    refused = invoke("cache", "--cache-dir", tmp_path / "third", "--namespace", "release", "import", file)
    assert refused.exit_code == 1
    assert "not the record of that key in the namespace 'release'" in refused.stderr


def test_doctor_finds_a_healthy_cache_healthy(ask: Invoke, folder: Path) -> None:
    if shutil.disk_usage(folder).free < 2 * 10**9:
        pytest.skip("less than 2 GB are free, which the doctor says")
    result = ask("doctor")
    assert result.exit_code == 0
    assert "index: database" in result.stdout.splitlines()
    facts = json.loads(ask("doctor", "--json").stdout)
    assert (facts["writable"], facts["locks"], facts["blobs"], facts["problems"]) == (True, True, True, [])


def test_doctor_says_what_is_wrong(invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBUILD_CACHE_DIR", str(folder))
    monkeypatch.setattr(os, "access", lambda *_: False)
    result = invoke("cache", "doctor")
    assert result.exit_code == 1
    assert "problem: the folder cannot be written: results are read, none is kept" in result.stdout


def test_a_folder_that_others_may_write_is_refused(ask: Invoke, folder: Path) -> None:
    folder.chmod(0o777)
    result = ask("stats")
    assert result.exit_code == 1
    assert "can be written by others (mode 777)" in result.stderr
    assert ask("--shared", "stats").exit_code == 0


def test_clear_leaves_nothing_of_the_cache_and_all_else(ask: Invoke, folder: Path) -> None:
    (folder / "mine.txt").write_text("data")
    precious = folder.parent / "precious"
    precious.mkdir()
    (precious / "x").write_text("data")
    (folder / "v1" / "cas" / "link").symlink_to(precious)
    assert ask("clear").exit_code == 0
    assert ask("stats").stdout.startswith("0 entries, 0 blobs, 0 B\n0 runs")
    assert (folder / "mine.txt").read_text() == "data"
    assert (precious / "x").read_text() == "data"


def test_a_key_for_ci_is_the_same_each_time(invoke: Invoke) -> None:
    first = invoke("cache", "ci-key")
    assert first.exit_code == 0
    assert first.stdout == invoke("cache", "ci-key").stdout
    assert first.stdout.startswith("relaybuild-")
    assert len(first.stdout.strip().rpartition("-")[2]) == 16
