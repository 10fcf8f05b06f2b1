"""Whole models with other backends on, compared with onnxruntime: from Python, and from a C++ program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from runners.cpp_program import run_from_cpp
from runners.whole_models import assert_close, model_file, random_inputs

import relaybuild
from relaybuild.backends.selection import select

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
    assert_close(dict(zip([name], run_from_cpp(library, [value], [wanted.shape]))), {name: wanted})
