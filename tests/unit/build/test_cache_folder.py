"""Where caches go, by platform and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.cache_folder import cache_folder


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {"HOME": "/home/a"}, "/home/a/.cache/relaybuild"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "/var/a"}, "/var/a/relaybuild"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, "/home/a/.cache/relaybuild"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": ""}, "/home/a/.cache/relaybuild"),
        ("darwin", {"HOME": "/Users/a", "XDG_CACHE_HOME": "/var/a"}, "/Users/a/Library/Caches/relaybuild"),
        ("win32", {"LOCALAPPDATA": "/local", "HOME": "/home/a"}, "/local/relaybuild"),
        ("linux", {"HOME": "/home/a", "RELAYBUILD_CACHE_DIR": "/fast"}, "/fast"),
        ("linux", {"RELAYBUILD_CACHE_DIR": "/fast/../slow"}, "/slow"),
        ("linux", {"HOME": "/home/a", "RELAYBUILD_CACHE_DIR": ""}, "/home/a/.cache/relaybuild"),
        ("linux", {}, None),
        ("win32", {}, None),
        ("darwin", {}, None),
    ],
)
def test_the_folder(platform: str, environ: dict[str, str], folder: str | None) -> None:
    assert cache_folder(environ, platform) == (Path(folder) if folder else None)


def test_a_relative_folder_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAYBUILD_CACHE_DIR", "cache")
    assert cache_folder() == Path.cwd() / "cache"
