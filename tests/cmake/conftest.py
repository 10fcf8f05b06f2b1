"""relaybuild as its users have it: installed from a wheel, in an environment that was moved, the source tree gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import Environment, copy_sources, make_environment
from runners.consumer import Consumer

PLACE = "Ort mit Ümläuten/an environment"
"""Where the environment is in the end: with what has to be quoted, and what is no ASCII."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with relaybuild's wheel, built and installed once for all processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installed"
    shared.mkdir(exist_ok=True)
    place = shared / PLACE
    with _locked(shared / "lock"):
        if not place.exists():
            _install(shared / "work", place)
    return Environment(place)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(work: Path, place: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    source, first = copy_sources(work / "source"), work / "environment"
    environment = make_environment(first, with_checkout=False)
    environment.run("pip", "wheel", "--wheel-dir=../dist", ".", folder=source)
    source.rename(work / "renamed away")
    (wheel,) = (work / "dist").iterdir()
    environment.run("pip", "install", "-q", wheel, folder=work)
    place.parent.mkdir(exist_ok=True)
    first.rename(place)


@pytest.fixture(scope="session")
def wheel(installed: Environment) -> Path:
    """The wheel that was installed."""
    (path,) = (installed.folder.parents[PLACE.count("/")] / "work" / "dist").iterdir()
    return path


@pytest.fixture
def changeable(installed: Environment, tmp_path: Path) -> Environment:
    """A copy of the environment for one test, which may change what is installed; `python -m pip` is the copy's."""
    return Environment(shutil.copytree(installed.folder, tmp_path / "venv", symlinks=True))


@pytest.fixture
def consumer(installed: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """An empty project in a folder with a space in its name, with a cache of its own."""
    folder = tmp_path / "my project"
    folder.mkdir()
    return Consumer(installed, folder, {"RELAYBUILD_CACHE_DIR": str(tmp_path / "cache")})
