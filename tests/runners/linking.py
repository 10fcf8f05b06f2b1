"""Links models into C programs, and reads the symbols of what is made; knows the models of its own text alone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import relaybuild
from relaybuild.driver import Artifact

MODEL = (
    '#[version = "0.0.5"]\n'
    "def @main(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {{ nn.relu({operator}(%x, {number}f)) }}"
)

TWO_MODELS = """
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
  if (first_create(1, &first) || second_create(2, &second)) return 1;
  if (first_run(first, ins, 1, results, 1) || second_run(second, middles, 1, outs, 1)) return 2;
  if (first_run(first, NULL, 3, results, 1) != RB_ERROR_INVALID_ARGUMENT) return 3;
  printf("%g %g %g %g, %g %g %g %g\\n", y[0], y[1], y[2], y[3], z[0], z[1], z[2], z[3]);
  printf("%d %d\\n", first_last_error()[0] != 0, second_last_error()[0] != 0);
  first_destroy(first);
  second_destroy(second);
  return 0;
}
"""
"""A program of the models `first`, which adds 2, and `second`, which multiplies by 10; both end in a relu."""

PRINTED = "0 2 3 7, 0 20 30 70\n1 0\n"

BACKENDS: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "C": {"USE_CODEGENC": "ON"},
    "C++": {"USE_EXAMPLE_JSON": "ON"},
}
"""What a model of `MODEL` has regions in, and the configuration by which it does."""


def model(name: str, form: str, config: Mapping[str, object]) -> Artifact:
    """The model `first` or `second`, compiled."""
    operator, number = {"first": ("add", 2), "second": ("multiply", 10)}[name]
    module = relaybuild.parse(MODEL.format(operator=operator, number=number))
    return relaybuild.compile(module, config=dict(config), name=name, form=form)


def put(folder: Path, name: str, form: str, config: Mapping[str, object]) -> Sequence[str]:
    """Make a model and its header in a folder; what programs are linked with besides."""
    artifact = model(name, form, config)
    assert bool(artifact.summary["regions"]) == bool(config)
    artifact.export_library(folder / f"{name}{artifact.form.suffix}")
    (folder / f"{name}.h").write_text(artifact.header, encoding="utf-8")
    words: Sequence[str] = artifact.summary["link"]
    return words


def printed_by_two_models(folder: Path, command: Sequence[str], *words: str) -> str:
    """What the program of two models prints, compiled in `folder` and linked with no warning."""
    (folder / "program.c").write_text(TWO_MODELS, encoding="utf-8")
    compiled = [*command, "-Wall", "-Wextra", "-Werror", "-Wl,--fatal-warnings", f"-I{folder}", "program.c", *words]
    done = subprocess.run([*compiled, "-o", "program"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "program"], capture_output=True, text=True, check=True, timeout=60).stdout


def symbols(path: Path, *options: str) -> set[str]:
    """The symbols of a file, or of an archive's members, as nm lists them with some options."""
    listing = subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True, timeout=60).stdout
    return {line.split()[-1] for line in listing.splitlines() if line and not line.endswith(":")}
