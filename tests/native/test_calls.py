"""Deep recursion and long loops: what they take, and what becomes of those that take too much."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from compiling import compiled, generated, program_text
from runners.compiled import threads_wanted_always

from relaybuild.errors import UserError
from relaybuild.runtime import Module, load_module

MEGABYTE = 1 << 20
DEEP = """
def @main(%n: int32, %wide: Tensor[(300,), float32]) -> (int32, Tensor[(300,), float32]) { @count(%n, %wide) }
def @count(%n: int32, %wide: Tensor[(300,), float32]) -> (int32, Tensor[(300,), float32]) {
  if (equal(%n, 0)) { (0, %wide) } else {
    let %r = @count(subtract(%n, 1), add(%wide, 1f));
    (add(%r.0, 1), subtract(%r.1, 1f))
  }
}
"""
LOOP = """
def @main(%n: int32, %x: float32) -> (int32, float32) {
  if (equal(%n, 0)) { (%n, %x) } else { @main(subtract(%n, 1), add(%x, 1f)) }
}
"""
MUTUAL = """
def @main(%n: int32) -> bool { @even(%n) }
def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) -> bool { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
"""
WIDE = np.arange(300, dtype="float32")


def library(text: str, folder: Path) -> Path:
    with threads_wanted_always():
        compiled(text, folder)
    return folder / "model.so"


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(DEEP, tmp_path_factory.mktemp("deep"))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Module:
    folder = tmp_path_factory.mktemp("loop")
    compiled(LOOP, folder)
    return load_module(folder / "model.so")


def count(model: Module, depth: int) -> int:
    number, wide = model.run_list([np.asarray(depth, "int32"), WIDE])
    np.testing.assert_array_equal(wide, WIDE)
    return int(number)


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_nest_deeply_and_too_deep_a_nest_is_an_error(deep: Path, threads: int) -> None:
    model = load_module(deep, threads=threads)
    assert count(model, 300) == 300
    assert count(model, 5000) == 5000
    with pytest.raises(UserError, match=r"call each other too deeply.*stack"):
        count(model, 10_000_000)
    assert count(model, 5000) == 5000


def test_a_thread_with_a_small_stack_nests_less_deeply(deep: Path) -> None:
    found: list[object] = []

    def work() -> None:
        model = load_module(deep, threads=1)
        found.append(count(model, 1000))
        try:
            count(model, 1_000_000)
        except UserError as error:
            found.append(str(error))

    before = threading.stack_size(MEGABYTE)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found[0] == 1000
    assert "too deeply" in str(found[1])


STARVED = """
import resource, sys
import numpy as np
from relaybuild.errors import UserError
from relaybuild.runtime import load_module
model = load_module(sys.argv[1], threads=int(sys.argv[2]))
wide = np.arange(300, dtype="float32")
count = lambda depth: int(model.run_list([np.asarray(depth, "int32"), wide])[0])
assert count(100) == 100
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), resource.RLIM_INFINITY))
try:
    count(15000)
except UserError as error:
    print(error)
assert count(100) == 100
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert count(15000) == 15000
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_calls_without_memory_are_an_error_on_every_thread(deep: Path, threads: int) -> None:
    command = [sys.executable, "-c", STARVED, str(deep), str(threads)]
    # a thread's own arena would be address space in reserve, which the limit no longer counts
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MALLOC_ARENA_MAX": "1"})
    assert found.returncode == 0, found.stderr
    assert "out of memory: the functions of model 'model'" in found.stdout


@pytest.mark.parametrize("threads", [1, 2])
def test_the_environment_limits_the_depth(deep: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBUILD_MAX_CALL_DEPTH", "51")
    model = load_module(deep, threads=threads)
    assert count(model, 50) == 50
    with pytest.raises(UserError, match="RELAYBUILD_MAX_CALL_DEPTH"):
        count(model, 51)
    monkeypatch.setenv("RELAYBUILD_MAX_CALL_DEPTH", "many")
    with pytest.raises(UserError, match="RELAYBUILD_MAX_CALL_DEPTH is 'many', expected a whole number"):
        count(load_module(deep, threads=threads), 1)


def test_a_loop_of_a_million_iterations_takes_no_memory_and_little_time(loop: Module) -> None:
    loop.run_list([np.asarray(10, "int32"), np.float32(0)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    number, total = loop.run_list([np.asarray(1_000_000, "int32"), np.float32(0)])
    assert time.process_time() - start < 1.0
    assert (int(number), float(total)) == (0, 1_000_000.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024


def test_functions_that_call_each_other_at_their_ends_are_a_loop(tmp_path: Path) -> None:
    assert "rb_call(" not in program_text(generated(MUTUAL)).split("static RB_NOINLINE RbStatus f1")[-1]
    model = compiled(MUTUAL, tmp_path)
    assert [bool(model.run_list([np.asarray(n, "int32")])[0]) for n in (999_999, 1_000_000)] == [False, True]
