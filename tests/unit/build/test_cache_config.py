"""Which caches are used: flags win over the environment, that over the project; mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.cache.settings import CacheSettings, Mode, RemoteSettings
from relaybuild.build.cache_config import CacheFlags, chosen_settings, parse_mode
from relaybuild.errors import UserError

PROJECT = """
[project]
name = "demo"

[tool.relaybuild]
cache-dir = "kept"
cache-max-size = "2 GB"
remote-cache = "https://project.example"
remote-mode = "read"
namespace = "dev"
trust = ["main", "release"]
"""

NONE = CacheFlags()


def chosen(folder: Path, project: str = "", flags: CacheFlags = NONE, **environ: str) -> CacheSettings:
    if project:
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    return chosen_settings(flags, {"HOME": "/home/user", **environ}, folder)


def error(folder: Path, project: str = "", flags: CacheFlags = NONE, **environ: str) -> str:
    with pytest.raises(UserError) as caught:
        chosen(folder, project, flags, **environ)
    return str(caught.value)


def test_without_a_word_there_is_a_local_cache(tmp_path: Path) -> None:
    assert chosen(tmp_path) == CacheSettings(Path("/home/user/.cache/relaybuild"))


def test_what_a_project_says(tmp_path: Path) -> None:
    found = chosen(tmp_path, PROJECT)
    remote = RemoteSettings("https://project.example", Mode.READ)
    assert found == CacheSettings(
        tmp_path / "kept", namespace="dev", trusted=("main", "release"), max_size=2 * 10**9, remote=remote
    )


def test_the_nearest_project_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert chosen(below).folder == tmp_path / "kept"
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    assert chosen(below) == CacheSettings(Path("/home/user/.cache/relaybuild"))


def test_the_environment_wins_over_the_project(tmp_path: Path) -> None:
    found = chosen(
        tmp_path,
        PROJECT,
        RELAYBUILD_CACHE_DIR="/env",
        RELAYBUILD_REMOTE_CACHE="http://env.example",
        RELAYBUILD_REMOTE_MODE="write",
        RELAYBUILD_REMOTE_TOKEN=" sesame\n",
        RELAYBUILD_CACHE_NAMESPACE="pr/7",
        RELAYBUILD_CACHE_TRUST=" main , ",
        RELAYBUILD_CACHE_SECRET="secret",
    )
    remote = RemoteSettings("http://env.example", Mode.WRITE, "sesame")
    assert found == CacheSettings(
        Path("/env"), Mode.READ_WRITE, False, "pr/7", ("main",), b"secret", 2 * 10**9, remote=remote
    )
    assert "sesame" not in repr(found)
    assert "secret" not in repr(found).replace("secret=", "")


def test_an_empty_list_of_the_environment_trusts_nobody(tmp_path: Path) -> None:
    assert chosen(tmp_path, PROJECT, RELAYBUILD_CACHE_TRUST="").trusted == ()


def test_flags_win(tmp_path: Path) -> None:
    flags = CacheFlags(tmp_path / "flag", Mode.READ, "http://flag.example", "verify", "flag", True)
    environ = {"RELAYBUILD_CACHE_DIR": "/env", "RELAYBUILD_REMOTE_CACHE": "http://env.example"}
    found = chosen(tmp_path, PROJECT, flags, **environ, RELAYBUILD_REMOTE_MODE="write", RELAYBUILD_CACHE_NAMESPACE="e")
    assert (found.folder, found.mode, found.namespace, found.is_shared) == (tmp_path / "flag", Mode.READ, "flag", True)
    assert found.remote == RemoteSettings("http://flag.example", Mode.VERIFY)


@pytest.mark.parametrize("flags", [CacheFlags(is_offline=True), CacheFlags(remote_mode="off")])
def test_no_other_machine(tmp_path: Path, flags: CacheFlags) -> None:
    found = chosen(tmp_path, PROJECT, flags)
    assert found.remote is None
    assert found.folder == tmp_path / "kept"


def test_no_cache_is_none_at_all(tmp_path: Path) -> None:
    assert chosen(tmp_path, "[tool.relaybuild]\nnonsense = 1", CacheFlags(False)) == CacheSettings(None, Mode.OFF)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('remote-cahce = "http://h"', "did you mean 'remote-cache'?"),
        ("zzz = 1", "no key 'zzz'"),
        ("remote-cache = 1", "'remote-cache' in [tool.relaybuild] is 1, expected a text"),
        ('remote-cache = ""', "expected a text"),
        ("cache-dir = []", "expected a text"),
        ("namespace = false", "expected a text"),
        ("trust = 1", "expected a list of texts"),
        ("trust = [1]", "expected a list of texts"),
        ("cache-max-size = -1", "expected a number of bytes"),
        ("cache-max-size = true", "expected a number of bytes"),
        ('cache-max-size = "much"', "'cache-max-size': 'much' is no size"),
        ('remote-mode = "raed"\nremote-cache = "http://h"', "did you mean 'read'?"),
        ("cache-dir = ", "cannot be read"),
    ],
)
def test_mistakes_in_a_project(tmp_path: Path, line: str, told: str) -> None:
    message = error(tmp_path, f"[tool.relaybuild]\n{line}\n")
    assert told in message
    assert str(tmp_path / "pyproject.toml") in message


def test_a_table_that_is_none(tmp_path: Path) -> None:
    assert "expected a table" in error(tmp_path, "[tool]\nrelaybuild = 3\n")


def test_files_of_others_are_not_judged(tmp_path: Path) -> None:
    assert chosen(tmp_path, "this is no TOML").remote is None


@pytest.mark.parametrize("text", ["nope", "", "recache", "READ"])
def test_a_mode_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match="expected one of off, read, write, readwrite, verify"):
        parse_mode(text, "it")


def test_a_mode_of_the_environment_that_is_none(tmp_path: Path) -> None:
    assert "RELAYBUILD_REMOTE_MODE is 'x'" in error(tmp_path, RELAYBUILD_REMOTE_MODE="x")


def test_a_secret_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from a file\n", encoding="utf-8")
    assert chosen(tmp_path, RELAYBUILD_CACHE_SECRET_FILE=str(file)).secret == b"from a file"
    both = error(tmp_path, RELAYBUILD_CACHE_SECRET_FILE=str(file), RELAYBUILD_CACHE_SECRET="x")
    assert "exclude each other" in both
    file.write_text("\n", encoding="utf-8")
    assert "is empty" in error(tmp_path, RELAYBUILD_CACHE_SECRET_FILE=str(file))
    assert "cannot be read" in error(tmp_path, RELAYBUILD_CACHE_SECRET_FILE=str(tmp_path / "none"))
