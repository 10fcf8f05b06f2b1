"""Functions that another backend computes inside of a model: where they run, with whom, and what if they fail."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compiling import HEAD
from runners.compiled import threads_wanted_always

import relaybuild
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function
from relaybuild.partition import backend as backend_module
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode, SourceUnit

Generate = Callable[[Function, CodegenOptions], GeneratedCode]

TEXT = """#include "relaybuild/packed.h"
{includes}
RB_EXPORT int32_t __tvm_ffi_{symbol}(void *self, const RbValue *args, int32_t num_args, RbValue *result);
{before}
int32_t __tvm_ffi_{symbol}(void *self, const RbValue *args, int32_t num_args, RbValue *result) {{
  const float *in = ((DLTensor *)args[0].u.as_pointer)->data;
  float *out = ((DLTensor *)args[num_args - 1].u.as_pointer)->data;
  (void)self, (void)result, (void)in, (void)out;
{body}
  return 0;
}}
"""


def unit(options: CodegenOptions, body: str, before: str = "", includes: str = "") -> SourceUnit:
    """A region's unit whose function runs `body` over `in`, its first input, and `out`, its last output."""
    text = TEXT.format(
        symbol=options.symbol, body=body, before=before.replace("SYMBOL", options.symbol), includes=includes
    )
    return SourceUnit(options.symbol, text, True)


def elements(function: Function) -> int:
    return function.params[0].tensor_type.num_elements


def rectify(function: Function, options: CodegenOptions) -> GeneratedCode:
    """A generator of nn.relu that refuses what begins with a number above a million."""
    body = f"""
  if (in[0] > 1e6f) {{
    return rb_raise("%g is too large", (double)in[0]);
  }}
  for (int i = 0; i < {elements(function)}; ++i) {{
    out[i] = in[i] > 0.0f ? in[i] : 0.0f;
  }}"""
    return GeneratedCode((unit(options, body),))


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers a backend of the tag `toy` for the test."""
    monkeypatch.setattr(backend_module, "_registered", dict(backend_module._registered))

    def register(codegen: Generate, operators: tuple[str, ...] = ("nn.relu",)) -> None:
        def takes(call: Call) -> bool:
            return call.op_name in operators

        backend_module.register_backend(Backend("toy", "toy", "", codegen, supports=takes))

    return register


def library(text: str, folder: Path) -> tuple[Path, list[str]]:
    """The library of a program, and the symbols of its regions."""
    artifact = relaybuild.compile(relaybuild.parse(HEAD + text), threads=1)
    path = folder / "model.so"
    artifact.export_library(path)
    return path, [region["symbol"] for region in artifact.summary["regions"]]


CHAIN = """def @main(%x: Tensor[(33, 70), float32]) -> Tensor[(33, 70), float32] {
  %0 = nn.relu(subtract(%x, 0.5f));
  nn.relu(subtract(exp(%0), 1.5f))
}"""


def chain(x: np.ndarray) -> np.ndarray:
    return np.maximum(np.exp(np.maximum(x - 0.5, 0)) - 1.5, 0)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_regions_between_kernels_on_every_number_of_threads(
    threads: int, bring: Callable[..., None], tmp_path: Path
) -> None:
    bring(rectify)
    with_many = CHAIN.replace("(33, 70)", "(330, 700)")
    path, symbols = library(with_many, tmp_path)
    assert len(symbols) == 2
    x = np.random.default_rng(0).standard_normal((330, 700)).astype("float32")
    model = relaybuild.load_module(path, threads=threads)
    for _ in range(20):
        np.testing.assert_allclose(model(x), chain(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_region_that_fails_ends_the_inference_with_its_words(
    threads: int, bring: Callable[..., None], tmp_path: Path
) -> None:
    bring(rectify)
    path, _ = library(CHAIN.replace("(33, 70)", "(330, 700)"), tmp_path)
    model = relaybuild.load_module(path, threads=threads)
    x = np.random.default_rng(0).standard_normal((330, 700)).astype("float32")
    bad = x.copy()
    bad[0, 0] = 2e6
    for _ in range(5):
        (error,) = within_seconds(60, lambda: model(bad))
        assert isinstance(error, UserError)
        assert "2e+06 is too large" in str(error)
        np.testing.assert_allclose(model(x), chain(x), rtol=1e-5, atol=1e-6)


def within_seconds(limit: float, call: Callable[[], object]) -> list[BaseException]:
    """What a call raises; one that has not ended by then never will, and fails the test."""
    raised: list[BaseException] = []

    def target() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(limit)
    assert not thread.is_alive(), "the threads of the model wait for each other"
    return raised


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor no thread ever spins")
def test_other_threads_sleep_while_a_region_computes(bring: Callable[..., None], tmp_path: Path) -> None:
    def sleeping(function: Function, options: CodegenOptions) -> GeneratedCode:
        """Sleeps for ten milliseconds, and returns how many the processors spent on other threads meanwhile."""
        before = """
static double SYMBOL_milliseconds(void) {
  struct timespec all, own;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
  return (all.tv_sec - own.tv_sec) * 1e3 + (all.tv_nsec - own.tv_nsec) * 1e-6;
}"""
        body = f"""
  const struct timespec nap = {{0, 10000000}};
  const double start = {options.symbol}_milliseconds();
  nanosleep(&nap, NULL);
  const double spent = {options.symbol}_milliseconds() - start;
  for (int i = 0; i < {elements(function)}; ++i) {{
    out[i] = (float)spent;
  }}"""
        return GeneratedCode((unit(options, body, before, "#include <time.h>"),))

    bring(sleeping)
    with threads_wanted_always():
        path, _ = library(
            "def @main(%x: Tensor[(64, 64), float32]) -> Tensor[(64, 64), float32] { nn.relu(exp(%x)) }", tmp_path
        )
    model = relaybuild.load_module(path, threads=2)
    x = np.zeros((64, 64), np.float32)
    # a thread that waited at an ordinary barrier would spin for a millisecond first
    assert np.median([np.asarray(model(x))[0, 0] for _ in range(30)]) < 0.4


def test_regions_in_branches_and_loops(bring: Callable[..., None], tmp_path: Path) -> None:
    bring(rectify)
    text = """def @main(%n: int32, %x: Tensor[(5, 6), float32]) -> Tensor[(5, 6), float32] {
  if (less(%n, 1)) { %x } else {
    let %y = subtract(nn.relu(%x), 0.25f);
    let %z = if (equal(%n, 2)) { nn.relu(multiply(%y, 3f)) } else { %y };
    @main(subtract(%n, 1), %z)
  }
}"""
    path, symbols = library(text, tmp_path)
    assert len(symbols) == 2
    x = np.random.default_rng(1).standard_normal((5, 6)).astype("float32")
    expected, n = x, 4
    while n >= 1:
        expected = np.maximum(expected, 0) - np.float32(0.25)
        expected = np.maximum(expected * 3, 0) if n == 2 else expected
        n -= 1
    np.testing.assert_allclose(relaybuild.load_module(path)(np.int32(4), x), expected, rtol=1e-6)


def test_a_region_of_several_results_in_another_region_s_place(bring: Callable[..., None], tmp_path: Path) -> None:
    def both(function: Function, options: CodegenOptions) -> GeneratedCode:
        count = len(options.outputs)
        fills = "\n".join(
            f"  for (int i = 0; i < {elements(function)}; ++i) "
            f"((float *)((DLTensor *)args[{len(options.inputs) + k}].u.as_pointer)->data)[i] = in[i] * {k + 2}.0f;"
            for k in range(count)
        )
        return GeneratedCode((unit(options, fills),))

    bring(both, ("multiply",))
    text = """def @main(%x: Tensor[(4, 9), float32]) -> (Tensor[(4, 9), float32], Tensor[(4, 9), float32]) {
  %0 = annotation.compiler_begin(exp(%x), compiler="toy");
  %1 = annotation.compiler_end((multiply(%0, 2f), multiply(%0, 3f)), compiler="toy");
  (subtract(%1.0, %x), %1.1)
}"""
    path, symbols = library(text, tmp_path)
    assert len(symbols) == 1
    x = np.random.default_rng(2).standard_normal((4, 9)).astype("float32")
    first, second = relaybuild.load_module(path)(x)
    np.testing.assert_allclose(first, np.exp(x) * 2 - x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second, np.exp(x) * 3, rtol=1e-5)


COUNTING = """
static _Atomic int rb_open;
int32_t SYMBOL_create(const RbRegion *region, void **self) {
  (void)region;
  *self = calloc(1, sizeof(float));
  ++rb_open;
  return *self ? 0 : rb_raise("out of memory");
}
void SYMBOL_destroy(void *self) {
  --rb_open;
  free(self);
}
RB_EXPORT int opened(void);
int opened(void) {
  return rb_open;
}
"""
PROTOTYPES = """#include <stdlib.h>
RB_HIDDEN int32_t {0}_create(const RbRegion *region, void **self);
RB_HIDDEN void {0}_destroy(void *self);
"""


def test_an_instance_keeps_state_of_its_own(bring: Callable[..., None], tmp_path: Path) -> None:
    def counting(function: Function, options: CodegenOptions) -> GeneratedCode:
        body = f"  out[0] = (*(float *)self += 1.0f);\n  for (int i = 1; i < {elements(function)}; ++i) out[i] = in[i];"
        made = unit(options, body, COUNTING, PROTOTYPES.format(options.symbol))
        return GeneratedCode((made,), stateful=True)

    bring(counting)
    path, _ = library("def @main(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] { nn.relu(%x) }", tmp_path)
    opened = ctypes.CDLL(str(path)).opened
    model = relaybuild.load_module(path)
    x = np.ones(3, "float32")
    assert [model(x)[0] for _ in range(3)] == [1, 2, 3]
    assert opened() == model.num_instances == 1
    barrier = threading.Barrier(4)

    def call(called: relaybuild.Module) -> None:
        barrier.wait()
        for _ in range(200):
            called(x)

    threads = [threading.Thread(target=call, args=[model]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    threads.clear()
    assert opened() == model.num_instances
    model = None
    assert opened() == 0


def test_state_that_cannot_be_made_is_an_error_of_the_load_or_the_call(
    bring: Callable[..., None], tmp_path: Path
) -> None:
    def broken(function: Function, options: CodegenOptions) -> GeneratedCode:
        before = """
int32_t SYMBOL_create(const RbRegion *region, void **self) {
  (void)self;
  return rb_raise("no device for '%s'", region->compiler);
}
void SYMBOL_destroy(void *self) {
  (void)self;
}"""
        return GeneratedCode((unit(options, "", before, PROTOTYPES.format(options.symbol)),), stateful=True)

    bring(broken)
    path, _ = library("def @main(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] { nn.relu(%x) }", tmp_path)
    with pytest.raises(UserError, match="no device for 'toy'"):
        relaybuild.load_module(path)(np.ones(3, "float32"))


def test_weights_are_arguments_that_the_backend_is_told_of(bring: Callable[..., None], tmp_path: Path) -> None:
    told: list[tuple[int, frozenset[int], int]] = []

    def adding(function: Function, options: CodegenOptions) -> GeneratedCode:
        told.append((len(options.inputs), options.constants, len(function.params)))
        weight = next(iter(options.constants))
        data = f"((DLTensor *)args[{weight}].u.as_pointer)->data"
        body = f"""
  const float *value = ((DLTensor *)args[{1 - weight}].u.as_pointer)->data, *weight = {data};
  for (int i = 0; i < 2000; ++i) {{
    out[i] = value[i] + weight[i];
  }}"""
        return GeneratedCode((unit(options, body),))

    bring(adding, ("add",))
    module = relaybuild.relay.Module.from_expr(
        relaybuild.relay.Function(
            [x := relaybuild.relay.var("x", shape=(2000,))],
            relaybuild.relay.exp(relaybuild.relay.add(x, relaybuild.relay.const(np.arange(2000), "float32"))),
        )
    )
    artifact = relaybuild.compile(module)
    artifact.export_library(tmp_path / "model.so")
    assert told == [(2, frozenset({1}), 2)]
    value = np.linspace(-2000, -1990, 2000, dtype="float32")
    expected = np.exp(value + np.arange(2000, dtype="float32"))
    np.testing.assert_allclose(relaybuild.load_module(tmp_path / "model.so")(value), expected, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_region_is_told_how_many_threads_it_may_use(threads: int, bring: Callable[..., None], tmp_path: Path) -> None:
    def telling(function: Function, options: CodegenOptions) -> GeneratedCode:
        return GeneratedCode((unit(options, "  out[0] = out[1] = out[2] = (float)rb_threads_allowed();"),))

    bring(telling)
    path, (symbol,) = library("def @main(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] { nn.relu(%x) }", tmp_path)
    model = relaybuild.load_model(path, threads=threads)
    assert model(np.ones(3, "float32"))[0] == model.num_threads == threads
    out = np.zeros(3, "float32")
    model.get_function(symbol)(np.ones(3, "float32"), out)
    assert out[0] == 0


def test_a_mark_for_a_compiler_that_nobody_brings() -> None:
    text = """def @main(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
  annotation.compiler_end(nn.relu(annotation.compiler_begin(%x, compiler="nobody")), compiler="nobody")
}"""
    with pytest.raises(UserError, match=r"for the compiler 'nobody', but no backend has this tag; known are .*'host'"):
        relaybuild.compile(relaybuild.parse(HEAD + text))
