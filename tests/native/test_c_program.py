"""Recursive and closure programs called from C, where no Python is: as a user compiles them, and with sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from compiling import HEAD, generated, weights_text
from runners.compiled import threads_wanted_always
from runners.objects import compiled_once

from relaybuild import driver
from relaybuild.build.toolchain import probe
from relaybuild.ir.parser import parse
from relaybuild.lower.sources import include_dir as kernel_include_dir
from relaybuild.runtime import include_dir, model_sources

RECURSION = """
def @main(%x: int32) -> int32 {
  %1 = equal(%x, 1);
  if (%1) { %x } else { %2 = subtract(%x, 1); %3 = @main(%2); add(%3, %3) }
}
"""
CLOSURE = """
def @main(%x: float32, %y: float32, %n: int32) -> (float32, int32) {
  let %f = { %1 = log(%x); fn(%z: float32) -> float32 { add(%z, %1) } };
  (@apply(%f, %y, %n), @weigh(%n))
}
def @apply(%f: fn(float32) -> float32, %y: float32, %n: int32) -> float32 {
  if (less(%n, 1)) { %y } else { %f(@apply(%f, multiply(%y, 0.5f), subtract(%n, 1))) }
}
def @weigh(%n: int32) -> int32 {
  if (less(%n, 2)) { 1 } else { add(@weigh(subtract(%n, 1)), @weigh(subtract(%n, 2))) }
}
"""

RECURSION_MAIN = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  int32_t x, y;
  RbInstance *instance;
  const RbModelInfo *info = model_describe();
  DLTensor in = rb_tensor(&info->inputs[0], &x), out = rb_tensor(&info->outputs[0], &y);
  const DLTensor *ins[] = {&in};
  DLTensor *outs[] = {&out};
  if (model_create(argc > 1 ? atoi(argv[1]) : 0, &instance)) return 1;
  for (x = 1; x < 30; x += 7) {
    if (model_run(instance, ins, 1, outs, 1)) return 2;
    printf("%d\\n", (int)y);
  }
  x = 100000000; /* needs more stack than there is */
  if (model_run(instance, ins, 1, outs, 1) != RB_ERROR_CALL_DEPTH) return 3;
  x = 3;
  if (model_run(instance, ins, 1, outs, 1) || y != 4) return 4;
  model_destroy(instance);
  return 0;
}
"""

CLOSURE_MAIN = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  float x = 2, y = 8, z;
  int32_t n = 12, w;
  RbInstance *instance;
  const RbModelInfo *info = model_describe();
  DLTensor in[] = {rb_tensor(&info->inputs[0], &x), rb_tensor(&info->inputs[1], &y), rb_tensor(&info->inputs[2], &n)};
  DLTensor out[] = {rb_tensor(&info->outputs[0], &z), rb_tensor(&info->outputs[1], &w)};
  const DLTensor *ins[] = {&in[0], &in[1], &in[2]};
  DLTensor *outs[] = {&out[0], &out[1]};
  if (model_create(argc > 1 ? atoi(argv[1]) : 0, &instance)) return 1;
  if (model_run(instance, ins, 3, outs, 2) || model_run(instance, ins, 3, outs, 2)) return 2;
  printf("%.5f %d\\n", z, (int)w);
  model_destroy(instance);
  return 0;
}
"""
DECLARATIONS = """
#include "relaybuild/model.h"
RbStatus model_create(int32_t, RbInstance **);
RbStatus model_run(RbInstance *, const DLTensor *const *, int32_t, DLTensor *const *, int32_t);
void model_destroy(RbInstance *);
const RbModelInfo *model_describe(void);
"""
RECURSION_OUTPUT = "1\n128\n16384\n2097152\n268435456\n"
CLOSURE_OUTPUT = "8.31972 233\n"
SANITIZERS = {"address,undefined": (1, 3), "thread": (3,)}
"""Sanitizers, and numbers of threads: one thread has no races."""

PROGRAMS = [
    pytest.param(RECURSION, RECURSION_MAIN, RECURSION_OUTPUT, id="recursion"),
    pytest.param(CLOSURE, CLOSURE_MAIN, CLOSURE_OUTPUT, id="closure"),
]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr[:3000]}"
    return done.stdout


@pytest.mark.parametrize(("text", "main", "output"), PROGRAMS)
def test_a_c_program_without_python(text: str, main: str, output: str, tmp_path: Path) -> None:
    artifact = driver.compile(parse(HEAD + text), name="model", target="c", jobs=2)
    artifact.export_library(tmp_path / "libmodel.so")
    (tmp_path / "model.h").write_text(artifact.header)
    (tmp_path / "main.c").write_text(main)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    compiler = str(probe(None).path)
    run([compiler, *strict, "main.c", "-o", "main", "-L.", "-lmodel", "-Wl,-rpath,$ORIGIN"], tmp_path)
    assert run(["./main"], tmp_path) == output
    needed = run(["ldd", "libmodel.so"], tmp_path)
    assert "python" not in needed


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize(("text", "main", "output"), PROGRAMS)
def test_under_the_sanitizers(text: str, main: str, output: str, sanitizer: str, tmp_path: Path) -> None:
    with threads_wanted_always():
        code = generated(text)
    (tmp_path / "model.h").write_text(DECLARATIONS)
    (tmp_path / "main.c").write_text(main)
    for unit in code.units:
        (tmp_path / f"{unit.name}.c").write_text(unit.text)
    (tmp_path / "weights.c").write_text(weights_text(code))
    compiler = str(probe(None).path)
    flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-Wall", "-Werror"]
    folders = [f"-I{include_dir()}", f"-I{kernel_include_dir()}"]
    words = [compiler, *flags, *folders]
    sources = ["main.c", "weights.c", *(f"{unit.name}.c" for unit in code.units)]
    objects = [str(compiled_once(words, source)) for source in model_sources()]
    run([*words, "-I.", *sources, *objects, "-lm", "-lpthread", "-o", "main"], tmp_path)
    for threads in SANITIZERS[sanitizer]:
        assert run(["./main", str(threads)], tmp_path) == output
