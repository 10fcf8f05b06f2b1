"""Compilations that are killed: whatever they leave behind, the next one is right, waits for nobody and counts all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import crashing
import pytest
from common_cache import bytes_of, check_idle, opened
from runners.command import TIMEOUT, Runner, has_executed_nothing

from relaybuild.build.cache import upkeep
from relaybuild.build.cache.gc import GRACE_SECONDS, collect
from relaybuild.build.cache.journal import MissReason
from relaybuild.build.cache.runs import read_usage

pytestmark = pytest.mark.usefixtures("own_cache")

BIG = 10**12


@pytest.fixture
def run(package: Path, runtime_cache: Path, tmp_path: Path) -> Runner:
    (tmp_path / "tmp").mkdir()
    return Runner(package, tmp_path, {"TMPDIR": str(tmp_path / "tmp")}).beginning_with(runtime_cache)


def kill_many(run: Runner, count: int) -> dict[str, list[int]]:
    """Kill compilations of models, all but a few of which are compiled by nobody else."""
    command = [sys.executable, crashing.__file__, str(run.folder), str(count), "11"]
    environ = {**os.environ, "PYTHONPATH": str(run.package), **run.environ}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_after_kills_at_random_moments_the_next_compilation_is_right(
    run: Runner, runtime_cache: Path, count: int
) -> None:
    report = kill_many(run, count)
    untouched = replace(run, cache="untouched").beginning_with(runtime_cache)
    assert report["died"] >= count // 2
    *_, last, _ = numbers = [*report["checked"], count + 1]
    # one that was killed: nothing of it is waited for
    begin = time.monotonic()
    summary = run.done(model=f"{count + 1}.relay", output=f"{count + 1}.so")
    assert time.monotonic() - begin < 30
    assert not [miss for miss in summary["misses"] if miss["reason"] == MissReason.INTEGRITY.value]
    for number in (numbers[0], last, numbers[-1]):
        untouched.done(model=f"{number}.relay", output=f"clean/{number}.so")
        assert run.library(f"{number}.so") == run.library(f"clean/{number}.so"), number
        assert has_executed_nothing(run.done(model=f"{number}.relay", output=f"again/{number}.so"))
    check_what_is_left(run)


def check_what_is_left(run: Runner) -> None:
    """Fail where a lock is held, an entry is damaged, or bytes are counted wrong."""
    with opened(run) as cache:
        assert cache.folder is not None
        check_idle(cache.folder)
        assert upkeep.verify(cache, 1.0).damaged == ()
        # What orphans take is known: the run after the last killed one has counted it.
        held = bytes_of(cache)
        assert 0.9 * held < read_usage(cache.folder) < 1.1 * held
        report = collect(cache.folder, cache.records, cache.blobs, BIG, now=time.time() + 2 * GRACE_SECONDS)
        assert (report.bytes_before, report.entries_removed) == (held, 0)
        assert report.bytes_after == bytes_of(cache)
        named = {each.digest.hex for entry in upkeep.entries(cache) for each in entry.entry.result.outputs}
        assert {blob.hex for blob in cache.blobs.blobs()} <= named
        assert list(cache.folder.tmp.iterdir()) == list(cache.folder.locks.iterdir()) == []
        assert upkeep.verify(cache, 1.0).damaged == ()


def test_a_compilation_does_not_wait_for_a_killed_one(run: Runner) -> None:
    (run.folder / "1.relay").write_text(crashing.MODEL.format(number=1))
    launcher, started = run.folder / "stuck", run.folder / "started"
    launcher.write_text(f'#!/bin/sh\ncase "$*" in *src/*) echo $$ >>\'{started}\'; exec sleep 60;; esac\nexec "$@"\n')
    launcher.chmod(0o755)
    environ = {"RELAYBUILD_COMPILER_LAUNCHER": f"'{launcher}'"}
    process = run.start(model="1.relay", output="1.so", environ=environ)
    while not started.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    for stuck in map(int, started.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(stuck, signal.SIGKILL)
    process.communicate()
    begin = time.monotonic()
    assert run.done(model="1.relay", output="1.so")["executed"]["link"] == 1
    assert time.monotonic() - begin < 30
