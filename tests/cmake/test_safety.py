"""Safety in programs that CMake builds: sanitizers, valgrind, wrong calls at a model's boundary, lesser processors."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from adder import add
from runners.consumer import Consumer

pytestmark = pytest.mark.slow

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C CXX)
find_package(relaybuild CONFIG REQUIRED)
find_package(Threads REQUIRED)
relaybuild_add_model(adder MODEL models/net.onnx NAME net TARGET_ISA {isa} {kind})
add_executable(main main.cc)
target_compile_features(main PRIVATE cxx_std_17)
target_compile_options(main PRIVATE -Wall -Wextra -Werror {flags})
target_link_options(main PRIVATE {flags})
target_link_libraries(main PRIVATE adder Threads::Threads)
"""
MAIN = r"""
#include <array>
#include <cstdint>
#include <iostream>
#include <thread>
#include <vector>

#include "net.h"
#include "relaybuild/model.hpp"

constexpr std::size_t kSize = NET_INPUT_X_SIZE;

// What is said of a call with a tensor that differs from the right one.
template <typename Change> void Say(RbInstance *net, std::vector<float> &x, Change change) {
  DLTensor tensor = rb_tensor(&net_describe()->inputs[0], x.data());
  change(tensor);
  const DLTensor *ins[] = {&tensor};
  std::vector<float> y(kSize);
  DLTensor out = rb_tensor(&net_describe()->outputs[0], y.data());
  DLTensor *outs[] = {&out};
  std::cout << net_run(net, ins, 1, outs, 1) << ' ' << net_last_error() << '\n';
}

void Infer(const relaybuild::Model &model, const relaybuild::Options &options) {
  relaybuild::Instance net(model, options);
  for (int i = 0; i < 20; ++i) {
    for (float &each : net.Input<float>("x")) {
      each = 1.0f;
    }
    net.Run();
    if (net.Output<float>("y")[1] != 3.0f) {
      std::cout << "wrong\n";
    }
  }
}

int main() {
  const relaybuild::Model model(net_api());
  RbInstance *net = nullptr;
  if (net_create(1, &net) != RB_OK) {
    std::cout << net_last_error() << '\n';
    return 3;
  }
  std::vector<float> x(kSize + 1, 1.0f);
  std::array<std::int64_t, 2> narrow{400, 2};
  std::array<std::int64_t, 2> apart{6, 2};
  Say(net, x, [](DLTensor &) {});
  Say(net, x, [](DLTensor &tensor) { tensor.data = nullptr; });
  Say(net, x, [](DLTensor &tensor) { tensor.ndim = 1; });
  Say(net, x, [](DLTensor &tensor) { tensor.dtype.bits = 64; });
  Say(net, x, [&](DLTensor &tensor) { tensor.shape = narrow.data(); });
  Say(net, x, [&](DLTensor &tensor) { tensor.strides = apart.data(); });
  Say(net, x, [](DLTensor &tensor) { tensor.device.device_type = kDLCUDA; });
  Say(net, x, [](DLTensor &tensor) { tensor.byte_offset = 1; });
  std::cout << net_run(net, nullptr, 1, nullptr, 1) << ' ' << net_last_error() << '\n';
  net_destroy(net);
  relaybuild::ThreadPool pool(2);
  relaybuild::Options options;
  options.pool = pool;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back(Infer, std::cref(model), std::cref(options));
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
  std::cout << "done\n";
}
"""
PROGRAMS = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C CXX)
find_package(relaybuild CONFIG REQUIRED)
find_package(Threads REQUIRED)
relaybuild_add_model(model MODEL models/net.onnx TARGET_ISA x86-64-v3)
add_executable(boundary boundary.c)
target_link_libraries(boundary PRIVATE relaybuild::headers Threads::Threads ${CMAKE_DL_LIBS})
add_executable(faults boundary_faults.cc faults.c)
target_compile_features(faults PRIVATE cxx_std_17)
set_target_properties(faults PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(faults PRIVATE model Threads::Threads ${CMAKE_DL_LIBS})
"""
DATA = Path(__file__).parents[1] / "native" / "data"
SAID = ("", "null", "(400,)", "float64", "(400, 2)", "strides", "device", "aligned", "null")
"""A word of what is said to each of the calls."""


def built(consumer: Consumer, *, isa: str = "x86-64-v3", kind: str = "SHARED", flags: str = "") -> Consumer:
    consumer.write("CMakeLists.txt", PROJECT.format(isa=isa, kind=kind, flags=flags))
    consumer.write("main.cc", MAIN)
    add(consumer, (1, 2, 3))
    consumer.configure("-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    consumer.make()
    return consumer


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Every wrong call was answered with its sentence, and nothing else was said."""
    assert done.returncode == 0, done.stdout + done.stderr
    *answers, last = done.stdout.splitlines()
    assert last == "done"
    assert [bool(int(line.split()[0])) for line in answers] == [bool(word) for word in SAID], answers
    for line, word in zip(answers, SAID):
        assert word in line, (word, line)
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


@pytest.mark.parametrize("kind", ["SHARED", "STATIC"])
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_under_sanitizers(consumer: Consumer, kind: str, sanitizers: str) -> None:
    flags = f"-fsanitize={sanitizers} -fno-sanitize-recover=all"
    check(built(consumer, kind=kind, flags=flags).run("build/main"))


def test_under_valgrind(consumer: Consumer) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed")
    options = ("--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect", "-q")
    done = built(consumer).run(valgrind, *options, "build/main")
    check(done)
    assert done.stderr == ""


@pytest.mark.parametrize("kind", ["SHARED", "STATIC"])
def test_a_lesser_processor(consumer: Consumer, kind: str) -> None:
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed")
    refused = built(consumer, kind=kind).run(emulator, "-cpu", "Nehalem", "build/main")
    assert refused.returncode == 3
    assert "was compiled for target 'x86-64-v3', which needs the processor feature 'avx'" in refused.stdout
    check(built(consumer, kind=kind, isa="x86-64-multi").run(emulator, "-cpu", "Nehalem", "build/main"))


def test_loading_again_children_and_failing_allocations(consumer: Consumer) -> None:
    if not Path("/lib64/ld-linux-x86-64.so.2").exists():
        pytest.skip("the functions that fail stand in front of those of glibc")
    consumer.write("CMakeLists.txt", PROGRAMS)
    for name in ("boundary.c", "boundary.h", "boundary_faults.cc", "faults.c", "faults.h"):
        consumer.write(name, (DATA / name).read_bytes())
    add(consumer, (1, 2, 3))
    consumer.configure()
    consumer.make()
    # what lies in a thread's cache of free blocks would count as allocated
    watched = replace(consumer, environ={**consumer.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"})
    for mode in ("run", "fork", "reload"):
        done = watched.run("build/boundary", "build/libmodel.so", mode)
        assert (done.returncode, done.stderr) == (0, ""), mode
    assert done.stdout.startswith("threads +0, files +0, ")
    done = consumer.run("build/faults")
    assert (done.returncode, done.stderr) == (0, "")
    points = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    # a model this small starts no threads, which could fail; that they do is tried with the library alone
    allocating = {
        "packed",
        "create",
        "pool",
        "memory of a pool",
        "create_with",
        "C++ with exceptions",
        "C++ with results",
    }
    assert {name for name in allocating if int(points[name].split()[0]) > 0} == allocating
