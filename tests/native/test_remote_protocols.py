"""Models compiled on machines that share a server of the remote-execution API, or a bucket: as over HTTP."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runners.command import MODEL, TIMEOUT, Runner, has_executed_nothing
from unit.build.cache.remote.remotes import Remote, serving

from relaybuild.digest import digest_bytes

pytestmark = pytest.mark.usefixtures("own_cache")

KINDS = ("grid", "grid-write-once", "s3")
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def remote(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """One server of each kind for all tests that leave it as it was; each test has its namespace."""
    with serving(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """A server of each kind for one test, which may end it."""
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(request.param, folder) as started:
        yield started


class Machines:
    """Machines, in a namespace of their own."""

    def __init__(self, package: Path, folder: Path, runtime_cache: Path) -> None:
        self.package = package
        self.folder = folder
        self.runtime_cache = runtime_cache
        self.namespace = f"test-{next(_numbers)}"
        (folder / "model.relay").write_text(MODEL)

    def __call__(self, name: str, remote: Remote, **environ: str) -> Runner:
        """A machine with an empty cache."""
        own = {"RELAYBUILD_REMOTE_CACHE": remote.url, "RELAYBUILD_CACHE_NAMESPACE": self.namespace}
        return Runner(self.package, self.folder, {**own, **environ}, name)

    def beginning(self, names: str, remote: Remote) -> list[Runner]:
        """Machines of one letter each; the objects of the runtime are in the cache of each, and sent by none."""
        machines = [self(name, remote, RELAYBUILD_CACHE_TRUST="main") for name in names]
        return [machine.beginning_with(self.runtime_cache) for machine in machines]


@pytest.fixture
def machines(package: Path, tmp_path: Path, runtime_cache: Path) -> Machines:
    return Machines(package, tmp_path, runtime_cache)


def facts(run: Runner, *command: str) -> dict[str, Any]:
    """What a command on the cache of a machine says as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "relaybuild", "cache", "--cache-dir", run.folder / run.cache, *command, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        cwd=run.folder,
        env={**run.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(run.package), **credentials()},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def credentials() -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def test_another_machine_executes_nothing(machines: Machines, remote: Remote) -> None:
    first, second = (machines(name, remote, RELAYBUILD_CACHE_SECRET="a secret") for name in "ab")
    assert first.done()["executed"]["link"] == 1
    library = first.library()
    assert has_executed_nothing(second.done(output="b/model.so"))
    assert second.library("b/model.so") == library
    for run in (first, second):
        assert facts(run, "stats")["errors"] == {}


def test_the_doctor_finds_nothing_wrong(machines: Machines, remote: Remote) -> None:
    found = facts(machines("a", remote), "doctor")
    assert [each for each in found["problems"] if "remote" in each] == []


@pytest.mark.parametrize(("own", "damage"), [("grid", "altered"), ("grid", "lost"), ("s3", "cut")], indirect=["own"])
def test_damaged_blobs_never_reach_a_library(machines: Machines, own: Remote, damage: str) -> None:
    first, second = machines.beginning("ab", own)
    first.done()
    library = first.library()
    damaged = own.blobs()
    assert digest_bytes(library) in damaged
    for digest in damaged:
        if damage == "lost":
            own.lose(digest)
        else:
            own.alter(digest, b"\1" * (digest.size if damage == "altered" else digest.size // 2))
    summary = second.done(output="b/model.so")
    assert summary["executed"]["link"] == 1
    assert second.library("b/model.so") == library
    third = machines("c", own).done(output="c/model.so")
    # BuildGrid looks at no content of what it has, and replaces none of it: damage stays until that is removed.
    assert has_executed_nothing(third) or (own.kind.startswith("grid") and damage != "lost")


@pytest.mark.parametrize("own", KINDS, indirect=True)
def test_a_server_that_forgets(machines: Machines, own: Remote) -> None:
    first, second, third = machines.beginning("abc", own)
    first.done()
    own.restart()
    summary = second.done(output="b/model.so")
    assert has_executed_nothing(summary) == (own.kind == "grid-write-once")
    assert second.library("b/model.so") == first.library()
    assert has_executed_nothing(third.done(output="c/model.so"))


@pytest.mark.parametrize("own", ["grid", "s3"], indirect=True)
def test_a_server_that_dies_in_the_middle(machines: Machines, own: Remote) -> None:
    first, second = machines.beginning("ab", own)
    process = first.start()
    try:
        end = time.monotonic() + TIMEOUT
        while not own.blobs() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        own.server.kill()
        _, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    summary = second.done(output="b/model.so")
    assert summary["executed"]["link"] == 1
    assert second.library("b/model.so") == first.library()
    assert any(name.startswith("remote-") for name in facts(second, "stats")["errors"])
