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

NOBODYS_MODEL = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3, 11), float32]) { add(%x, %x) }\n'


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installed"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def installed(shared: Path) -> Environment:
    """An environment with relaybuild's wheel, built and installed once for all processes that run tests."""
    place = shared / PLACE
    with _locked(shared / "lock"):
        if not place.exists():
            _install(shared / "work", place)
    return Environment(place)


@pytest.fixture(scope="session")
def runtime_cache(shared: Path, installed: Environment) -> Path:
    """A cache with the objects that libraries of all models have in common, in C and in C++, and no test's model.

    Tests go on with copies: this stays as it is.
    """
    folder = shared / "cache"
    with _locked(shared / "lock"):
        if not folder.exists():
            _fill(installed, folder)
    return folder


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


def _fill(environment: Environment, folder: Path) -> None:
    work = folder.with_name("filling")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "nobodys.relay").write_text(NOBODYS_MODEL)
    command = "python -m relaybuild compile nobodys.relay -o nobodys.so --target c -DUSE_EXAMPLE_JSON=ON".split()
    environment.run(*command, "--cache-dir", work / "cache", folder=work)
    (work / "cache").rename(folder)


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
def consumer(installed: Environment, runtime_cache: Path, tmp_path: Path) -> Consumer:
    """An empty project in a folder with a space in its name, with a cache of its own, which has the runtime."""
    folder = tmp_path / "my project"
    folder.mkdir()
    shutil.copytree(runtime_cache, tmp_path / "cache")
    return Consumer(installed, folder, {"RELAYBUILD_CACHE_DIR": str(tmp_path / "cache")})
