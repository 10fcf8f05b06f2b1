"""Whole models with other backends on, compared with onnxruntime: from Python, and from a C++ program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from runners.whole_models import assert_close, model_file, random_inputs

import relaybuild
from relaybuild.backends.selection import select
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.toolchain import probe
from relaybuild.runtime.sources import include_dir, module_sources, packed_sources

pytestmark = pytest.mark.slow
ort = pytest.importorskip("onnxruntime")


@dataclass(frozen=True)
class Case:
    """A model, the flags that are on, and the backends that then own regions of it."""

    model: str
    flags: tuple[str, ...]
    owners: frozenset[str]


CASES = (
    Case("resnet18", ("USE_DNNL",), frozenset({"dnnl"})),
    Case("resnet18", ("USE_CBLAS",), frozenset({"cblas"})),
    Case("mobilenet_v2", ("USE_CODEGENC", "USE_EXAMPLE_JSON"), frozenset({"codegen_c", "example_json"})),
)

# argv: library, input, bytes of the output, output
PROGRAM = r"""
#include "relaybuild/module.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  try {
    std::ifstream file(argv[2], std::ios::binary);
    std::string input{std::istreambuf_iterator<char>(file), {}};
    std::vector<char> output(static_cast<size_t>(std::atoll(argv[3])));
    relaybuild::Module module = relaybuild::LoadModule(argv[1]);
    relaybuild::PackedFunc main = module.GetFunction("main");
    int64_t in_shape[] = {IN_SHAPE}, out_shape[] = {OUT_SHAPE};
    DLTensor in{&input[0], {kDLCPU, 0}, sizeof in_shape / sizeof *in_shape, {kDLFloat, 32, 1}, in_shape, nullptr, 0};
    DLTensor out{output.data(), {kDLCPU, 0}, sizeof out_shape / sizeof *out_shape, {kDLFloat, 32, 1}, out_shape,
                 nullptr, 0};
    main(&in, &out);
    std::ofstream(argv[4], std::ios::binary).write(output.data(), static_cast<std::streamsize>(output.size()));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
"""


def run_cpp(library: Path, value: np.ndarray, shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """The only output of a model of one input, computed by a C++ program."""
    text = PROGRAM.replace("IN_SHAPE", ", ".join(map(str, value.shape))).replace(
        "OUT_SHAPE", ", ".join(map(str, shape))
    )
    source, program = folder / "program.cc", folder / "program"
    source.write_text(text, encoding="utf-8")
    toolchain = probe()
    objects = [folder / f"{path.stem}.o" for path in packed_sources()]
    for path, made in zip(packed_sources(), objects):
        command = [*toolchain.command, *toolchain.cflags, f"-I{include_dir()}", "-c", str(path), "-o", str(made)]
        subprocess.run(command, check=True, timeout=60)
    compiler = probe_cxx(toolchain).command
    sources = [str(source), *map(str, module_sources()), *map(str, objects)]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include_dir()}"]
    subprocess.run([*compiler, *flags, *sources, "-o", str(program), "-ldl", "-lpthread"], check=True, timeout=120)
    (folder / "in.bin").write_bytes(value.tobytes())
    size = 4 * int(np.prod(shape))
    subprocess.run(
        [str(program), str(library), str(folder / "in.bin"), str(size), str(folder / "out.bin")],
        check=True,
        timeout=60,
        env={"PATH": "/nowhere"},
    )
    return np.fromfile(folder / "out.bin", "float32").reshape(shape)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{'+'.join(sorted(case.owners))}")
def test_model_with_backends_agrees_with_onnxruntime(case: Case, tmp_path: Path) -> None:
    path = model_file(case.model)
    found = select(dict.fromkeys(case.flags, "AUTO" if case.flags[0] in ("USE_DNNL", "USE_CBLAS") else "ON"))
    if {backend.name for backend in found.backends} != case.owners:
        pytest.skip(f"the library for {case.flags} was not found on this machine")
    artifact = relaybuild.compile(path, config=dict.fromkeys(case.flags, "ON"))
    assert {region["backend"] for region in artifact.summary["regions"]} == case.owners
    library = tmp_path / "model.so"
    artifact.export_library(library)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for threads in (1, 2):
        module = relaybuild.load_model(library, threads=threads)
        inputs = random_inputs(module, threads)
        expected = dict(zip(names, session.run(None, inputs)))
        assert_close(module.run(inputs), expected)
    ((_, value),) = inputs.items()
    ((name, wanted),) = expected.items()
    assert_close({name: run_cpp(library, value, wanted.shape, tmp_path)}, {name: wanted})
