"""What the tests of whole compilations with a cache share: models, a launcher that writes down what is compiled.

Knows no failure that a test provokes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runners.command import Runner

from relaybuild.build.cache import upkeep
from relaybuild.build.cache.folder import CacheFolder
from relaybuild.build.cache.locks import exclusive, held
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.toolchain import LAUNCHER_VARIABLE

HEAD = '#[version = "0.0.5"]\n'
PROGRAMS = {
    "add": "def @main(%x: Tensor[(2, 3), float32]) { nn.relu(add(%x, 1f)) }\n",
    "softmax": "def @main(%x: Tensor[(4, 7), float32]) { nn.softmax(%x) }\n",
    "twice": "def @main(%x: Tensor[(2, 3), float32]) { (nn.relu(add(%x, 1f)), nn.softmax(%x)) }\n",
    "sum": "def @main(%x: Tensor[(5, 8), float32]) { sum(multiply(%x, %x), axis=[1]) }\n",
}


def write_programs(folder: Path) -> None:
    """The models `<name>.relay`, some of which have kernels of others."""
    for name, text in PROGRAMS.items():
        (folder / f"{name}.relay").write_text(HEAD + text)


class Compilations:
    """A launcher of the compiler that writes down the text of each unit that is compiled."""

    def __init__(self, folder: Path) -> None:
        """The launcher and its log are files in `folder`."""
        self._log = folder / "compilations"
        self._launcher = folder / "launcher"
        # one short write for each: lines of processes do not mix
        self._launcher.write_text(
            '#!/bin/sh\nfor word; do case $word in src/*) text=$(sha256sum <"$word") && '
            f'echo "$word $text" >>\'{self._log}\';; esac; done\nexec "$@"\n'
        )
        self._launcher.chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        """The variable that puts the launcher before the compiler."""
        return {LAUNCHER_VARIABLE: f"'{self._launcher}'"}

    def counts(self) -> Counter[str]:
        """How often each unit was compiled."""
        return Counter(self._log.read_text().splitlines()) if self._log.exists() else Counter()


def compile_together(run: Runner, names: Sequence[str]) -> list[str]:
    """Compile one model in each process, all at once; the outputs. Each must succeed."""
    outputs = [f"{number}/{name}.so" for number, name in enumerate(names)]
    processes = [run.start(model=f"{name}.relay", output=output) for name, output in zip(names, outputs)]
    try:
        for process in processes:
            _, err = process.communicate(timeout=240)
            assert process.returncode == 0, err
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return outputs


def opened(run: Runner) -> Cache:
    """The cache that a runner's compilations use."""
    return open_cache(CacheSettings(run.folder / run.cache))


def check_idle(folder: CacheFolder) -> None:
    """Fail where a lock or a lease is held although no process uses the cache."""
    assert held(folder) == frozenset()
    for name in os.listdir(folder.locks):
        with exclusive(folder, name, 0.0) as is_ours:
            assert is_ours, name


def bytes_of(cache: Cache) -> int:
    """What lies in a cache: all blobs, and all values of the index."""
    return upkeep.count(cache)["bytes"] + sum(len(row.row.value) for row in cache.records.rows())
