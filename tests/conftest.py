"""Keeps what tests register, and what they cache, from one another and from the user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from runners import objects
from runners.command import MODEL, Runner, copy_package
from runners.fixed_code import fix_code

from relaybuild import registry
from relaybuild.artifact.key import Unkeyed
from relaybuild.build.cache_folder import VARIABLE
from relaybuild.compilation.actions import Actions
from relaybuild.job import Job
from relaybuild.partition import backend, pattern_table
from relaybuild.passes import _base, _config

NOBODYS_MODEL = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3, 11), float32]) { negative(%x) }\n'

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


@pytest.fixture(scope="session")
def runtime_cache(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with what libraries of all models have in common, the objects of the runtime, and a model that no test
    has. Tests go on with copies: this stays as it is."""
    runner = Runner(package, tmp_path_factory.mktemp("runtime"))
    (runner.folder / "nobodys.relay").write_text(NOBODYS_MODEL)
    # a backend in C asks for the C++ compiler, too
    runner.done("-D", "USE_CODEGENC=ON", model="nobodys.relay", output="out/nobodys.so")
    for told in (runner.folder / runner.cache).glob("v1/runs/*"):
        told.unlink()
    return runner.folder / runner.cache


@pytest.fixture(scope="session")
def filled(package: Path, runtime_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """`MODEL`, compiled into a cache that had nothing of it. Tests go on with copies: this stays as it is."""
    runner = Runner(package, tmp_path_factory.mktemp("filled")).beginning_with(runtime_cache)
    (runner.folder / "model.relay").write_text(MODEL)
    assert runner.done()["executed"]["link"] == 1
    return runner


@pytest.fixture(scope="session", autouse=True)
def _shared_objects(_shared_cache: Path) -> None:
    """Let what tests link into their own programs be compiled once, too."""
    objects.folder = _shared_cache.with_name("objects")
    objects.folder.mkdir(exist_ok=True)


@pytest.fixture
def own_cache() -> None:
    """Ask for it where a test may find nothing cached that it has not compiled itself, and then all of that."""


@pytest.fixture
def own_warm_cache(own_cache: None, runtime_cache: Path) -> None:
    """As `own_cache`, but that the objects of the runtime are there."""
    shutil.copytree(runtime_cache, os.environ[VARIABLE], dirs_exist_ok=True)


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
    fix_code(monkeypatch, tmp_path_factory.mktemp("code"))


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
