"""Keeps what tests register, and what they cache, from one another and from the user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from runners.command import copy_package

import relaybuild
from relaybuild import registry
from relaybuild.artifact import own_code
from relaybuild.artifact.key import Unkeyed
from relaybuild.build.cache_folder import VARIABLE
from relaybuild.compilation.actions import Actions
from relaybuild.job import Job
from relaybuild.partition import backend, pattern_table
from relaybuild.passes import _base, _config

# how long an example takes says more of the machine than of what is tried
settings.register_profile("relaybuild", deadline=None)
settings.load_profile("relaybuild")


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of this session's tests, on all processors: equal objects are compiled once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "relaybuild-cache"
    with pytest.MonkeyPatch.context() as patch:
        # Whoever has a remote cache does not want to share what tests make.
        for name in [name for name in os.environ if name.startswith(("RELAYBUILD_CACHE_", "RELAYBUILD_REMOTE_"))]:
            patch.delenv(name)
        patch.setenv(VARIABLE, str(folder))
        yield folder


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of relaybuild, for processes that run while the checkout is edited."""
    return copy_package(tmp_path_factory.mktemp("package"))


@pytest.fixture
def own_cache() -> None:
    """Ask for it where a test may find nothing cached that it has not compiled itself, and then all of that."""


@pytest.fixture(autouse=True)
def _cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that compiles takes nothing but objects and links from the cache: what it may have changed in relaybuild
    counts."""
    if "own_cache" not in request.fixturenames:
        monkeypatch.setattr(Job, "_key", lambda self: Unkeyed("a test of relaybuild"))
        monkeypatch.setattr(Actions, "has_cache", False)
        yield
        return
    with tempfile.TemporaryDirectory(prefix="relaybuild-cache-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv(VARIABLE, folder)
        yield


@pytest.fixture
def fixed_code(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let nobody who edits the checkout while tests run keep these from finding what they have compiled."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "code.py").write_text("# stands for all of relaybuild's code\n", encoding="utf-8")
    monkeypatch.setattr(own_code, "_PACKAGE", folder)
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", 1 << 63)


@pytest.fixture(autouse=True)
def _own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes, keys, functions and backends that a test registers are gone after it, relaybuild's own are not."""
    _base.builtin_passes()
    monkeypatch.setattr(_base, "_user_passes", dict(_base._user_passes))
    monkeypatch.setattr(_config, "_keys", dict(_config._keys))
    monkeypatch.setattr(registry, "_functions", dict(registry._functions))
    monkeypatch.setattr(backend, "_registered", dict(backend._registered))
    monkeypatch.setattr(backend, "_predicates", dict(backend._predicates))
    monkeypatch.setattr(pattern_table, "_tables", dict(pattern_table._tables))
