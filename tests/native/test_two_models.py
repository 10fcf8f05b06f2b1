"""Two models with regions in one C program: neither sees the other's symbols."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compiling import HEAD

import relaybuild
from relaybuild.build.toolchain import probe

MODEL = "def @main(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {{ nn.relu({operator}(%x, {number}f)) }}"

PROGRAM = """
#include "first.h"
#include "second.h"

#include <stdio.h>

int main(void) {
  float x[4] = {-3, 0, 1, 5}, y[4], z[4];
  RbInstance *first, *second;
  DLTensor in = rb_tensor(&first_describe()->inputs[0], x);
  DLTensor middle = rb_tensor(&first_describe()->outputs[0], y);
  DLTensor out = rb_tensor(&second_describe()->outputs[0], z);
  const DLTensor *ins[] = {&in}, *middles[] = {&middle};
  DLTensor *results[] = {&middle}, *outs[] = {&out};
  if (first_create(1, &first) || second_create(1, &second)) return 1;
  if (first_run(first, ins, 1, results, 1) || second_run(second, middles, 1, outs, 1)) return 2;
  printf("%g %g %g %g, %g %g %g %g\\n", y[0], y[1], y[2], y[3], z[0], z[1], z[2], z[3]);
  first_destroy(first);
  second_destroy(second);
  return 0;
}
"""


def test_two_models_with_regions_in_one_program(tmp_path: Path) -> None:
    for name, operator, number in (("first", "add", 2), ("second", "multiply", 10)):
        module = relaybuild.parse(HEAD + MODEL.format(operator=operator, number=number))
        artifact = relaybuild.compile(module, config={"USE_CODEGENC": "ON"}, name=name)
        assert artifact.summary["regions"]
        artifact.export_library(tmp_path / f"lib{name}.so")
        (tmp_path / f"{name}.h").write_text(artifact.header, encoding="utf-8")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM, encoding="utf-8")
    # whichever library comes first would win a symbol that both define
    for order in (("first", "second"), ("second", "first")):
        command = [*probe().command, "-Wall", "-Wextra", "-Werror", str(source), f"-L{tmp_path}", "-o", str(program)]
        subprocess.run([*command, *(f"-l{name}" for name in order), f"-Wl,-rpath,{tmp_path}"], check=True, timeout=60)
        done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "0 2 3 7, 0 20 30 70\n"
