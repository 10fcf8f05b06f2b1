"""Libraries for levels of x86-64, on processors of those levels and of lesser ones, as an emulator has them."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import Array
from runners.compiled import difference

from relaybuild import driver
from relaybuild.ir.expr import Function, Tuple, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.runtime import include_dir, load_module
from relaybuild.target import Target

if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
    pytest.skip("the levels are those of x86-64, and libraries for Linux", allow_module_level=True)

SHAPE = (1, 3, 11, 13)
LOADER = """
#include "relaybuild/model.h"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  void *library = dlopen(argv[argc - 1], RTLD_NOW);
  if (!library) {
    puts(dlerror());
    return 1;
  }
  const RbModelApi *api = ((RbModelEntry)dlsym(library, RELAYBUILD_MODEL_ENTRY))();
  RbInstance *instance = NULL;
  const RbStatus status = api->create(1, &instance);
  static float x[3 * 11 * 13], y[20], z[3 * 11 * 13];
  const RbModelInfo *info = api->describe();
  DLTensor in = rb_tensor(&info->inputs[0], x);
  DLTensor out[] = {rb_tensor(&info->outputs[0], y), rb_tensor(&info->outputs[1], z)};
  const DLTensor *ins[] = {&in};
  DLTensor *outs[] = {&out[0], &out[1]};
  printf("%s\\n%d\\n", info->target, status ? status : api->run(instance, ins, 1, outs, 2));
  puts(status ? api->last_error() : y[19] == 0.05f && z[0] == 1.0f ? "right" : "wrong");
  api->destroy(instance);
  return 0;
}
"""
CALLER = """
import sys
import numpy as np
import relaybuild.errors
try:
    model = relaybuild.load_module(sys.argv[1])
except relaybuild.errors.UserError as error:
    sys.exit(f"refused: {error}")
np.savez(sys.argv[3], *model(np.load(sys.argv[2])))
print(model.target)
"""


_UNSUPPORTED_CPU = 5
"""`RB_ERROR_UNSUPPORTED_CPU`."""


@dataclass(frozen=True)
class Answer:
    """What the C program said: the target described, the status of creating and running, and a sentence."""

    target: str
    status: int
    text: str


class Machines:
    """Runs libraries on this processor, or on an emulated one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loader = folder / "loader"
        (folder / "loader.c").write_text(LOADER)
        flags = ("-std=c11", "-D_GNU_SOURCE", f"-I{include_dir()}")
        subprocess.run(["cc", *flags, folder / "loader.c", "-o", self.loader, "-ldl"], check=True)
        (folder / "caller.py").write_text(CALLER)

    def from_c(self, library: Path, *, cpu: str = "", environ: Mapping[str, str] | None = None) -> Answer:
        """What the C interface says of a library; a signal fails the test."""
        lines = self._run([self.loader, library], cpu, environ).stdout.splitlines()
        return Answer(lines[0], int(lines[1]), lines[2])

    def from_python(self, library: Path, values: Array, cpu: str) -> tuple[str, list[Array]]:
        """The target, and what the model computes; where it is refused, the sentence and nothing."""
        inputs, results = self.folder / "inputs.npy", self.folder / "results.npz"
        np.save(inputs, values)
        done = self._run([sys.executable, self.folder / "caller.py", library, inputs, results], cpu, None)
        if done.returncode:
            return done.stderr.splitlines()[-1], []
        with np.load(results) as arrays:
            return done.stdout.strip(), [arrays[name] for name in arrays.files]

    def inspected(self, library: Path, cpu: str) -> dict[str, Any]:
        """What `relaybuild inspect` tells."""
        done = self._run([sys.executable, "-m", "relaybuild", "inspect", library, "--json"], cpu, None)
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def _run(
        self, words: list[str | Path], cpu: str, environ: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[str]:
        emulator = [_emulator(), "-cpu", cpu] if cpu else []
        own = {name: value for name, value in os.environ.items() if name != "RELAYBUILD_CPU_LEVEL"}
        done = subprocess.run(
            [*emulator, *words], env={**own, **(environ or {})}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode >= 0, done.stderr
        assert "uncaught target signal" not in done.stderr, done.stderr
        return done


def _emulator() -> str:
    found = shutil.which("qemu-x86_64")
    if found is None:
        pytest.skip("needs 'qemu-x86_64' (Debian's package qemu-user)")
    return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    return Machines(tmp_path_factory.mktemp("machines"))


Library = Callable[[str], Path]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The model for a target, compiled once."""
    folder = tmp_path_factory.mktemp("libraries")
    made: dict[str, Path] = {}

    def compiled(target: str) -> Path:
        if target not in made:
            made[target] = folder / f"model{len(made)}.so"
            artifact = driver.compile(_module(), name="model", target=target)
            artifact.export_library(made[target])
        return made[target]

    return compiled


def _module() -> IRModule:
    """A convolution with its epilogue, a reduction, a matrix product and a map: of zeros, 0.05 and 1."""
    rng = np.random.default_rng(3)
    x = var("x", TensorType(SHAPE, "float32"))
    filters, weights = (const(rng.standard_normal(shape, "float32")) for shape in ((24, 3, 3, 3), (20, 24)))
    image = call_op("nn.conv2d", [x, filters], padding=(1, 1), kernel_size=(3, 3), channels=24)
    means = call_op("nn.batch_flatten", [call_op("nn.global_avg_pool2d", [call_op("nn.relu", [image])])])
    scores = call_op("nn.softmax", [call_op("nn.dense", [means, weights])])
    return IRModule({"main": Function([x], Tuple([scores, call_op("exp", [x])]))})


RUNS = [
    ("core2duo", "x86-64", "x86-64"),
    ("Nehalem", "x86-64", "x86-64"),
    ("Nehalem", "x86-64-v2", "x86-64-v2"),
    ("Nehalem", "x86-64-multi", "x86-64-v2"),
    ("Haswell", "x86-64-v2", "x86-64-v2"),
    ("Haswell", "x86-64-v3", "x86-64-v3"),
    ("Haswell", "x86-64-multi", "x86-64-v3"),
    ("Haswell,-xsave", "x86-64-multi", "x86-64-v2"),
]
LESS = "this processor offers no more than"
OFF = "the operating system does not enable it, which leaves"
PYTHONS = [pytest.param("Nehalem", "x86-64-v2", marks=pytest.mark.slow), ("Haswell", "x86-64-v3")]
REFUSALS = [
    ("core2duo", "x86-64-v2", f"'sse4.1' and 2 more; {LESS} x86-64"),
    ("core2duo", "x86-64-multi", f"'sse4.1' and 2 more; {LESS} x86-64"),
    ("Nehalem", "x86-64-v3", f"'avx' and 7 more; {LESS} x86-64-v2"),
    ("Nehalem", "x86-64-v4", f"'avx' and 12 more; {LESS} x86-64-v2"),
    ("Haswell", "x86-64-v4", f"'avx512f' and 4 more; {LESS} x86-64-v3"),
    ("Haswell,-xsave", "x86-64-v3", f"'avx' and 3 more; {OFF} x86-64-v2"),
]


@pytest.mark.parametrize(("cpu", "target", "picked"), RUNS)
def test_a_library_runs_where_the_processor_has_its_level(
    machines: Machines, library: Library, cpu: str, target: str, picked: str
) -> None:
    assert machines.from_c(library(target), cpu=cpu) == Answer(picked, 0, "right")


@pytest.mark.parametrize(("cpu", "target", "text"), REFUSALS)
def test_a_lesser_processor_is_refused_with_a_sentence(
    machines: Machines, library: Library, cpu: str, target: str, text: str
) -> None:
    answer = machines.from_c(library(target), cpu=cpu)
    level = text.rpartition(" ")[2]
    several = "" if level == "x86-64" else ", or with x86-64-multi for processors of several levels"
    advice = f": compile the model with --target {level}{several}"
    assert (answer.status, answer.text.partition("processor feature ")[2]) == (_UNSUPPORTED_CPU, text + advice)
    assert answer.text.startswith(f"model 'model' was compiled for target '{answer.target}', which needs the ")


@pytest.mark.parametrize(("cpu", "picked"), PYTHONS)
def test_python_loads_the_level_of_its_processor(machines: Machines, library: Library, cpu: str, picked: str) -> None:
    values = np.random.default_rng(1).standard_normal(SHAPE, "float32")
    target, found = machines.from_python(library("x86-64-multi"), values, cpu)
    assert target == picked
    expected = interpret(_module(), values)
    assert [difference(*pair, 1e-5) for pair in zip(expected, found)] == ["", ""]


def test_python_is_refused_on_a_lesser_processor(machines: Machines, library: Library) -> None:
    text, found = machines.from_python(library("x86-64-v3"), np.zeros(SHAPE, "float32"), "Nehalem")
    assert not found
    assert "refused: model 'model' was compiled for target 'x86-64-v3', which needs the processor feature 'avx'" in text


def test_a_lesser_processor_can_look_at_a_library(machines: Machines, library: Library) -> None:
    facts = machines.inspected(library("x86-64-v3"), "Nehalem")
    assert facts.pop("refusal").startswith("model 'model' was compiled for target 'x86-64-v3', which needs the ")
    assert (facts["target"], facts["outputs"][0]["shape"], len(facts["regions"])) == ("x86-64-v3", [1, 20], 0)
    assert facts["kernels"]
    here = machines.inspected(library("x86-64-v3"), "")
    del here["refusal"]
    assert facts == here


@pytest.mark.parametrize(
    ("wanted", "picked"), [("v2", "x86-64-v2"), ("x86-64-v2", "x86-64-v2"), ("v4", ""), ("v3", ""), ("", "")]
)
def test_a_variable_lowers_the_level(machines: Machines, library: Library, wanted: str, picked: str) -> None:
    best = {"v3": "x86-64-v3", "v2": "x86-64-v2"}.get(wanted, "x86-64-v4")
    expected = picked or min(best, Target.host().name)
    answer = machines.from_c(library("x86-64-multi"), environ={"RELAYBUILD_CPU_LEVEL": wanted})
    assert answer == Answer(expected, 0, "right")


def test_a_level_below_all_of_a_library_is_refused(machines: Machines, library: Library) -> None:
    answer = machines.from_c(library("x86-64-multi"), environ={"RELAYBUILD_CPU_LEVEL": "v1"})
    assert answer.status == _UNSUPPORTED_CPU
    assert answer.text.startswith("RELAYBUILD_CPU_LEVEL allows x86-64 at most, but the least that model 'model' was ")


def test_what_is_no_level_is_refused(machines: Machines, library: Library) -> None:
    answer = machines.from_c(library("x86-64-multi"), environ={"RELAYBUILD_CPU_LEVEL": "avx2"})
    assert answer.text == "RELAYBUILD_CPU_LEVEL is 'avx2', expected v1, v2, v3 or v4"


def test_a_library_of_one_level_does_not_ask(machines: Machines, library: Library) -> None:
    answer = machines.from_c(library("x86-64-v2"), environ={"RELAYBUILD_CPU_LEVEL": "avx2"})
    assert answer == Answer("x86-64-v2", 0, "right")


@pytest.mark.usefixtures("own_warm_cache", "fixed_code")
def test_levels_are_made_of_the_kernels_of_single_ones() -> None:
    def compiled(target: str) -> driver.Artifact:
        return driver.compile(_module(), name="model", target=target)

    def symbols(artifact: driver.Artifact, target: str) -> list[object]:
        return [each["symbol"] for each in artifact.summary["kernels"] if each.get("target", target) == target]

    singles = {target: compiled(target) for target in ("x86-64-v2", "x86-64-v3")}
    several = compiled("x86-64-multi[v2,v3]")
    for target, single in singles.items():
        assert symbols(several, target) == symbols(single, target)
    # what is new: how the host's code is put together, three programs, the library
    executed = several.summary["executed"]
    assert {stage: executed[stage] for stage in ("codegen", "object", "link")} == {"codegen": 1, "object": 3, "link": 1}


def test_weights_that_levels_share_are_there_once(library: Library) -> None:
    model = load_module(library("x86-64-multi"))
    assert model.weight_bytes == load_module(library("x86-64-v2")).weight_bytes


def test_each_level_has_its_own_memory_and_is_described(library: Library) -> None:
    several = load_module(library("x86-64-multi"))
    levels = {level["target"]: level for level in several.metadata["levels"]}
    assert list(levels) == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    single = load_module(library("x86-64-v2"))
    description = single.describe()
    assert levels["x86-64-v2"]["arena_bytes"] == description["arena_bytes"]
    assert levels["x86-64-v2"]["cpu_features"] == description["cpu_features"]
    assert levels["x86-64-v2"]["kernels"] == len(single.metadata["kernels"])
    assert several.describe()["arena_bytes"] == levels[several.target]["arena_bytes"]


def test_programs_of_levels_are_c_without_warnings(tmp_path: Path) -> None:
    driver.compile(_module(), name="model", target="x86-64-multi[v1,v2,v3]", save_temps=tmp_path)
    sources = sorted((tmp_path / "build" / "src").glob("program*.c"))
    assert len(sources) == 4
    words = ("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{include_dir()}")
    subprocess.run([*words, *sources], check=True)


def test_regions_of_other_backends_serve_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = driver.compile(_module(), name="model", target="x86-64-multi", flags={"USE_CODEGENC": "ON"})
    values = np.random.default_rng(2).standard_normal(SHAPE, "float32")
    expected = interpret(_module(), values)
    for level in ("v2", "v4"):
        monkeypatch.setenv("RELAYBUILD_CPU_LEVEL", level)
        path = tmp_path / f"{level}.so"
        artifact.export_library(path)
        model = load_module(path)
        assert model.regions()
        assert [difference(*pair, 1e-5) for pair in zip(expected, model(values))] == ["", ""]
