"""Keeps what tests register, and what they cache, from one another and from the user."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaybuild import registry
from relaybuild.build.cache_folder import VARIABLE
from relaybuild.partition import backend, pattern_table
from relaybuild.passes import _base, _config


@pytest.fixture(scope="session", autouse=True)
def _cache_folders() -> Iterator[Path]:
    """Where the caches of this session's tests are; what is compiled outside of a test has one of its own there."""
    with tempfile.TemporaryDirectory(prefix="relaybuild-caches-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(Path(folder) / "session"))
        yield Path(folder)


@pytest.fixture(autouse=True)
def _own_cache(_cache_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test finds nothing cached that it has not compiled itself."""
    folder = _cache_folders / "test"
    monkeypatch.setenv(VARIABLE, str(folder))
    yield
    shutil.rmtree(folder, ignore_errors=True)


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
