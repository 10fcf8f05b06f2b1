"""Compiles models in processes that are killed at random moments; a program of its own.

`python crashing.py FOLDER COUNT SEED` compiles in children that have imported everything, so that they spend their time
at work, and kills each with SIGKILL, every second one with the tools that it has started. Each has a model that no
other had. Prints as JSON how many died, and the numbers of models that were compiled afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from relaybuild.cli import main

IMPORTED_ON_THE_WAY = ("relaybuild.cli.compile", "relaybuild.build.cached_build", "relaybuild.stages")
SHARE_CHECKED = 5
MODEL = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3, 5), float32]) {{ nn.relu(add(nn.softmax(%x), {number}f)) }}\n'


def compile_in_child(folder: Path, number: int) -> int:
    """The process, in a group of its own, that compiles the model of that number."""
    model = folder / f"{number}.relay"
    model.write_text(MODEL.format(number=number))
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(BaseException):
        os.setsid()
        os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        os.dup2(1, 2)
        words = ["compile", model, "-o", folder / f"{number}.so", "--target", "c", "--cache-dir", folder / "cache"]
        main([str(word) for word in words], prog_name="relaybuild")
    os._exit(0 if (folder / f"{number}.so").exists() else 1)


def finished(folder: Path, number: int) -> float:
    """Compile a model to its end; how many seconds that takes."""
    begin = time.monotonic()
    _, status = os.waitpid(compile_in_child(folder, number), 0)
    if status != 0:
        raise SystemExit(f"model {number} failed: {status}\n{(folder / 'log').read_text()}")
    return time.monotonic() - begin


def main_loop(folder: Path, count: int, seed: int) -> None:
    chooser = random.Random(seed)
    for name in IMPORTED_ON_THE_WAY:
        importlib.import_module(name)
    # the first makes what all of them share
    finished(folder, 0)
    longest = finished(folder, 1)
    died, checked = 0, [0, 1]
    for number in range(2, count + 2):
        child = compile_in_child(folder, number)
        time.sleep(chooser.uniform(0.0, longest))
        with contextlib.suppress(ProcessLookupError):
            (os.kill if number % 2 else os.killpg)(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
        if number % SHARE_CHECKED == 0:
            finished(folder, number)
            checked.append(number)
    print(json.dumps({"died": died, "checked": checked}))


if __name__ == "__main__":
    main_loop(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
