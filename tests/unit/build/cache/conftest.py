"""What the tests of the cache share: caches in a temporary folder, actions, processes of a worker script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import digest_bytes

ROOT = Path(__file__).resolve().parents[4]
WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 60


def action(name: str = "Fold", layer: str = "pass", **inputs: bytes) -> Action:
    """An action whose inputs `in/<name>` have the contents given."""
    builder = ActionBuilder(layer, name).option("level", 3)
    for each, content in inputs.items():
        builder.input(f"in/{each}", digest_bytes(content))
    return builder.build()


@pytest.fixture
def settings(tmp_path: Path) -> CacheSettings:
    return CacheSettings(tmp_path / "cache")


@pytest.fixture
def cache(settings: CacheSettings) -> Iterator[Cache]:
    with open_cache(settings) as opened:
        yield opened


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; skips where it cannot be mounted."""
    yield from mounted(tmp_path / "tiny", "-t", "tmpfs", "-o", "size=1m", "tmpfs")


def mounted(folder: Path, *arguments: str | Path) -> Iterator[Path]:
    """A folder that something is mounted on, for a test; skips where that cannot be done."""
    folder.mkdir()
    try:
        done = subprocess.run(["mount", *arguments, folder], capture_output=True, check=False, timeout=TIMEOUT)
    except OSError:
        pytest.skip("there is no 'mount'")
    if done.returncode != 0:
        pytest.skip("mounting a file system needs rights that this user does not have")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True, timeout=TIMEOUT)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes of the worker script, which are gone after the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*arguments: object, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def together(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Let workers that are ready go at the same time; what each of them printed last."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = []
    for process in processes:
        output, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
        outputs.append(output.strip())
    return outputs
