"""Equal input gives equal bytes: elsewhere, by another user, in another environment, on another day; and no path is in
them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from runners.command import Runner, copy_package
from runners.small_networks import Network

pytestmark = pytest.mark.usefixtures("own_cache")

Again = Callable[[Runner, Path, pytest.FixtureRequest], Runner]

NOBODY = "65534"
OPTIONS = ("--no-cache", "--target", "x86-64-v2", "-D", "USE_CODEGENC=ON")

# What the runtime asks of the kernel.
SYSTEM_PATHS = re.compile(rb"/(?:proc|sys)/[\w./-]*")
PATH = re.compile(rb"/[\w.+@-]+(?:/[\w.+@-]+)+")


@pytest.fixture(scope="module")
def first(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A compilation that others are to equal."""
    run = Runner(package, tmp_path_factory.mktemp("first"))
    Network((8,)).save(model_of(run))
    run.done(*OPTIONS, "--jobs", "2", model=model_of(run))
    return run


def model_of(first: Runner) -> Path:
    """What all compile; it has kernels, weights, and regions of a backend in C."""
    return first.folder / "network.onnx"


def elsewhere(first: Runner, folder: Path, _request: pytest.FixtureRequest) -> Runner:
    """From a copy of relaybuild and of the model in other places, with other folders for all else."""
    work = folder / "an other folder"
    (work / "tmp").mkdir(parents=True)
    copied = work / "renamed.onnx"
    shutil.copy(model_of(first), copied)
    run = Runner(copy_package(folder / "package"), work, {"TMPDIR": str(work / "tmp")})
    run.done(*OPTIONS, model=copied, cwd=work)
    return run


def in_another_environment(first: Runner, folder: Path, _request: pytest.FixtureRequest) -> Runner:
    """One process at a time, and all that a shell may set."""
    (folder / "bin").mkdir()
    environ = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "USER": "somebody",
        "LC_ALL": "C.UTF-8",
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "4711",
        "COLUMNS": "40",
        "MAKEFLAGS": "-j3",
        "RANK": "1",
        "WORLD_SIZE": "2",
    }
    run = Runner(first.package, folder, environ)
    old = os.umask(0o077)
    try:
        run.done(*OPTIONS, "--jobs", "1", model=model_of(first))
    finally:
        os.umask(old)
    return run


def by_another_user(first: Runner, _folder: Path, request: pytest.FixtureRequest) -> Runner:
    """By 'nobody', who may read all that root may, so that it does not matter where Python is; eight at a time."""
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        pytest.skip("only root can become another user, by 'setpriv'")
    words = [setpriv, "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    words += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    if subprocess.run([*words, "true"], capture_output=True, check=False, timeout=60).returncode != 0:
        pytest.skip("this user may not become another one")
    command = [*words, sys.executable, "-m", "relaybuild"]
    become = f"import os, sys; os.execv({setpriv!r}, [*{command!r}, *sys.argv[1:]])"
    public = Path(tempfile.mkdtemp(prefix="relaybuild-public-"))
    request.addfinalizer(lambda: shutil.rmtree(public))
    public.chmod(0o755)
    run = Runner(copy_package(public / "package"), public / "work", {"TMPDIR": str(public / "work")})
    (public / "work/out").mkdir(parents=True)
    for folder in (public / "work", public / "work/out"):
        folder.chmod(0o777)
    # whether a file may be read is asked for without that right
    shutil.copy(model_of(first), public / "work")
    run.done(*OPTIONS, "--jobs", "8", model=model_of(first).name, code=("-c", become))
    assert (public / "work/out/model.so").stat().st_uid == int(NOBODY)
    return run


def on_another_day(first: Runner, folder: Path, _request: pytest.FixtureRequest) -> Runner:
    """In a year, for the compiler too, which sees no variable that would tell it."""
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.skip("faketime is not installed")
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {faketime} -f +370d {shutil.which("cc")} "$@"\n')
    compiler.chmod(0o755)
    begin = f"import os, sys; os.execv({faketime!r}, ['faketime', '-f', '+370d', {sys.executable!r}, *sys.argv[1:]])"
    run = Runner(first.package, folder)
    run.done(*OPTIONS, "--cc", compiler, model=model_of(first), code=("-c", begin, "-m", "relaybuild"))
    return run


@pytest.mark.parametrize("again", [elsewhere, in_another_environment, by_another_user, on_another_day])
def test_equal_input_gives_equal_bytes(
    first: Runner, tmp_path: Path, request: pytest.FixtureRequest, again: Again
) -> None:
    assert again(first, tmp_path, request).library() == first.library()


def test_no_path_of_this_machine_is_in_a_library(first: Runner) -> None:
    library = first.library()
    found = {path for path in PATH.findall(library) if not SYSTEM_PATHS.fullmatch(path)}
    assert found == set()
    for word in (first.folder, first.package, Path.home(), sys.prefix):
        assert os.fsencode(word) not in library
    if shutil.which("readelf"):
        said = subprocess.run(
            ["readelf", "-d", first.folder / "out/model.so"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert "NEEDED" in said
        assert "RPATH" not in said
        assert "RUNPATH" not in said
