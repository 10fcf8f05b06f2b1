"""What an instance keeps for a region of oneDNN, and how failures come out; skipped where oneDNN is not installed."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runners.packed import Array, Failure, PackedLibrary, build, options, typed
from runners.vendors import flags_of, link_of, random_arguments, region_of, require

import relaybuild
from relaybuild.contrib.dnnl import BACKEND
from relaybuild.ir.expr import Function, const
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import rewrite
from relaybuild.partition.backend import SourceUnit

PARAMS = """%x: Tensor[(1, 8, 14, 14), float32], %w: Tensor[(16, 8, 3, 3), float32], %b: Tensor[(16, 1, 1), float32],
  %k: Tensor[(16, 16, 1, 1), float32]"""
TEXT = f"""def @main({PARAMS}) {{
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1]);
  %1 = add(%0, %b);
  %2 = nn.relu(%1);
  %3 = nn.conv2d(%2, %k);
  add(%3, %2)
}}"""
RESULT = [TensorType((1, 16, 14, 14))]
WEIGHTS = frozenset({1, 2, 3})

# the functions that a model's library calls, which are hidden
DOORS = """
#include "relaybuild/packed.h"
RB_HIDDEN int32_t region_create(const RbRegion *region, void **self);
RB_HIDDEN void region_destroy(void *self);
RB_EXPORT int32_t make(void **self);
RB_EXPORT void unmake(void *self);
int32_t make(void **self) { return region_create(NULL, self); }
void unmake(void *self) { region_destroy(self); }
"""


@pytest.fixture(scope="module")
def function() -> Function:
    main = typed(TEXT)["main"]
    return region_of(BACKEND, main.params, [main.body])


@pytest.fixture(scope="module")
def library(function: Function, tmp_path_factory: pytest.TempPathFactory) -> PackedLibrary:
    require(BACKEND)
    code = BACKEND.codegen(function, options(function, constants=WEIGHTS))
    units = [*code.units, SourceUnit("doors", DOORS, False)]
    return build(units, tmp_path_factory.mktemp("dnnl"), flags=flags_of(BACKEND), link=link_of(BACKEND))


@contextmanager
def instance(library: PackedLibrary) -> Iterator[int]:
    """The address of a region's state."""
    state = ctypes.c_void_p()
    assert library.handle.make(ctypes.byref(state)) == 0, library.last_error()
    assert state.value
    yield state.value
    library.handle.unmake(state)


def wanted(function: Function, arguments: list[Array]) -> Any:
    return interpret(IRModule({"main": function}), *arguments)


def close(found: Array, expected: Array) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-3))


def test_an_instance_runs_again_and_again(function: Function, library: PackedLibrary) -> None:
    first, *weights = random_arguments(function.params)
    with instance(library) as state:
        for x in (first, first * 2, -first):
            (found,) = library.run("region", [x, *weights], RESULT, state)
            assert close(found, wanted(function, [x, *weights]))


def test_weights_at_another_place_are_read_anew(function: Function, library: PackedLibrary) -> None:
    arguments, others = random_arguments(function.params, 1), random_arguments(function.params, 2)
    with instance(library) as state:
        for given in (arguments, others, arguments):
            (found,) = library.run("region", given, RESULT, state)
            assert close(found, wanted(function, given))


def test_without_an_instance_weights_may_change_where_they_are(function: Function, library: PackedLibrary) -> None:
    arguments = random_arguments(function.params)
    library.run("region", arguments, RESULT)
    arguments[1] *= -1
    (found,) = library.run("region", arguments, RESULT)
    assert close(found, wanted(function, arguments))


def test_instances_share_nothing(function: Function, library: PackedLibrary) -> None:
    """Eight threads, each with its own, get what one gets alone."""
    x, *weights = random_arguments(function.params)
    inputs = [x * (number + 1) for number in range(8)]
    results: list[list[Array]] = [[] for _ in inputs]

    def work(number: int) -> None:
        with instance(library) as state:
            for _ in range(20):
                results[number] += library.run("region", [inputs[number], *weights], RESULT, state)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    for given, found in zip(inputs, results):
        expected = wanted(function, [given, *weights])
        assert len(found) == 20
        assert all(close(each, expected) for each in found)


def test_a_child_of_fork_computes_too(function: Function, library: PackedLibrary) -> None:
    """OpenMP's threads are not in it; what was made before and what is made after the fork run without them."""
    arguments = random_arguments(function.params)
    expected = wanted(function, arguments)
    with instance(library) as state:
        library.run("region", arguments, RESULT, state)
        child = os.fork()
        if not child:
            found = [library.run("region", arguments, RESULT, each)[0] for each in (state, None, state)]
            os._exit(0 if all(close(each, expected) for each in found) else 1)
        assert ended(child) == 0
        (found,) = library.run("region", arguments, RESULT, state)
        assert close(found, expected)


def ended(child: int, seconds: float = 60) -> int:
    """The exit code of a child, which is killed where it does not end in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def test_a_tensor_of_another_shape_is_named(function: Function, library: PackedLibrary) -> None:
    x, *weights = random_arguments(function.params)
    with pytest.raises(Failure, match="x0"):
        library.run("region", [x[:, :4].copy(), *weights], RESULT)


def test_what_onednn_refuses_is_an_error_of_the_call(function: Function, tmp_path: Path) -> None:
    """A description that contradicts itself: nothing is thrown through C."""
    require(BACKEND)
    code = BACKEND.codegen(function, options(function))
    wrong = code.units[0].text.replace(".strides = {1, 1}", ".strides = {2, 1}", 1)
    assert wrong != code.units[0].text
    units = [SourceUnit("region", wrong, False), SourceUnit("doors", DOORS, False)]
    library = build(units, tmp_path, flags=flags_of(BACKEND), link=link_of(BACKEND))
    with pytest.raises(Failure, match=r"oneDNN: could not create a .*descriptor.*\(status \d\)"):
        library.run("region", random_arguments(function.params), RESULT)
    state = ctypes.c_void_p()
    assert library.handle.make(ctypes.byref(state)) == -1
    assert "oneDNN: could not create" in library.last_error()
    assert not state.value


def test_a_model_with_regions_of_onednn(function: Function, tmp_path: Path) -> None:
    """From the program to a loaded library, whose weights are constants."""
    require(BACKEND)
    main = typed(TEXT)["main"]
    x, *weights = random_arguments(main.params)
    constants = {id(param): const(weight) for param, weight in zip(main.params[1:], weights)}
    body = rewrite(main.body, lambda node: constants.get(id(node), node))
    module = infer_types(IRModule({"main": Function(main.params[:1], body)}))
    artifact = relaybuild.compile(module, config={"USE_DNNL": "ON"}, threads=2)
    assert [region["backend"] for region in artifact.summary["regions"]] == ["dnnl"]
    artifact.export_library(tmp_path / "model.so")
    model = relaybuild.load_module(tmp_path / "model.so")
    for given in (x, -x):
        (found,) = model(given)
        assert close(found, wanted(function, [given, *weights]))
