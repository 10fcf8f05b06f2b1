"""The packed function of a whole model, called from C: many threads, fork, unloading, wrong arguments, sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .building import DATA, RUNTIME, cc, compiled

# A child of fork() may wait for ever for what another thread held at that moment: the allocators of the sanitizers that
# come with gcc 12 do not mind forks.
BUILDS = {
    "plain": (),
    "address and undefined": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DNO_FORK"),
    "thread": ("-fsanitize=thread", "-DNO_FORK"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("build", BUILDS)
def test_calls_of_many_threads(build: str, threads: int, tmp_path: Path) -> None:
    flags = BUILDS[build]
    library, program = tmp_path / "sample.so", tmp_path / "packed"
    hidden = ("-g", "-fPIC", "-fvisibility=hidden", *flags)
    objects = [compiled(source, *hidden) for source in RUNTIME]
    model = compiled(DATA / "program.c", *hidden, f"-DDEFAULT_THREADS={threads}")
    cc(*flags, "-shared", model, *objects, "-o", library, "-pthread")
    cc(*flags, compiled(DATA / "packed.c", "-D_GNU_SOURCE", "-g", *flags), "-o", program, "-pthread", "-ldl")
    environment = {name: value for name, value in os.environ.items() if name != "RELAYBUILD_NUM_THREADS"}
    command = [program, library, "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not the thread sanitizer's")
    assert (done.returncode, done.stderr) == (0, "")
