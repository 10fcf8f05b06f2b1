"""`relaybuild inspect` on a real library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import relaybuild
from cli.conftest import Invoke
from relaybuild.runtime import load_module
from relaybuild.target import Target


def test_facts_are_the_librarys(invoke: Invoke, digits_library: Path) -> None:
    module = load_module(digits_library)
    facts = json.loads(invoke("inspect", digits_library, "--json").stdout)
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 1, 8, 8]}]
    assert facts["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 10]}]
    assert facts["target"] == module.target
    assert facts["size"] == digits_library.stat().st_size
    assert (facts["arena_bytes"], facts["weight_bytes"]) == (module.arena_bytes, module.weight_bytes)
    assert facts["kernels"] == module.metadata["kernels"]
    assert facts["provenance"]["source"]["format"] == "onnx"
    assert facts["regions"] == []
    assert facts["refusal"] == ""
    assert any(name.startswith("libc.") for name in facts["needs"])


def test_text(invoke: Invoke, digits_library: Path) -> None:
    result = invoke("inspect", digits_library)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{digits_library}: model 'digits', ")
    assert lines[lines.index("inputs:") + 1] == "  image: float32 (1, 1, 8, 8)"
    assert lines[lines.index("outputs:") + 1] == "  scores: float32 (1, 10)"
    kernels = load_module(digits_library).metadata["kernels"]
    copies = sum(kernel["copies"] for kernel in kernels)
    start = lines.index(f"kernels: {len(kernels)}, of which {copies} only copy")
    end = lines.index("regions of other backends: none")
    assert [line.split()[0] for line in lines[start + 2 : end]] == [kernel["symbol"] for kernel in kernels]
    assert any(line.startswith("  source.opset: ") for line in lines[end:])


@pytest.mark.skipif(Target.host().vector_lanes < 8 or Target.host().arch != "x86-64", reason="needs an x86-64-v3")
def test_levels(invoke: Invoke, digits_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "levels.so"
    relaybuild.compile(digits_model, target="x86-64-multi[v2,v3]").export_library(library)
    monkeypatch.setenv("RELAYBUILD_CPU_LEVEL", "v3")
    facts = json.loads(invoke("inspect", library, "--json").stdout)
    assert (facts["target"], facts["picked"]) == ("x86-64-multi[v2,v3]", "x86-64-v3")
    assert [level["target"] for level in facts["levels"]] == ["x86-64-v2", "x86-64-v3"]
    assert facts["levels"][1]["kernels"] == len(facts["kernels"])
    lines = invoke("inspect", library).stdout.splitlines()
    assert lines[1].startswith("target: x86-64-multi[v2,v3], of which x86-64-v3 was picked (requires sse3 ")
    at = lines.index("levels:")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["target", "x86-64-v2", "x86-64-v3"]
    # where none of them may run, all is told as well, and why it may not
    monkeypatch.setenv("RELAYBUILD_CPU_LEVEL", "v1")
    result = invoke("inspect", library)
    assert result.exit_code == 0
    refused = result.stdout.splitlines()
    assert refused[1].startswith("target: x86-64-multi[v2,v3] (requires sse3 ")
    assert refused[2].startswith("cannot run here: RELAYBUILD_CPU_LEVEL allows x86-64 at most, but the least that ")
    assert refused[3] == "levels:"
    assert len(refused) == len(lines) + 1


def test_regions_of_other_backends(invoke: Invoke, tmp_path: Path) -> None:
    """MB03: what runs where can be read from the library."""
    x = relaybuild.relay.var("x", shape=(3,))
    module = relaybuild.IRModule.from_expr(relaybuild.relay.Function([x], relaybuild.relay.nn.softmax(x + x)))
    library = tmp_path / "two.so"
    relaybuild.compile(module, config={"USE_CODEGENC": "ON"}, name="two", target="c").export_library(library)
    loaded = load_module(library)
    (function,) = (name for name in loaded.function_names if name != "main")
    (region,) = json.loads(invoke("inspect", library, "--json").stdout)["regions"]
    assert region == {"function": function, "compiler": "ccompiler", "module": "c"}
    lines = invoke("inspect", library).stdout.splitlines()
    at = lines.index("regions of other backends: 1")
    assert lines[at + 1].split() == ["function", "compiler", "module"]
    assert lines[at + 2].split() == [function, "ccompiler", "c"]
    assert lines[at + 3].startswith("needs: lib")


def test_files_that_are_no_libraries(invoke: Invoke, tmp_path: Path, digits_model: Path) -> None:
    for path in (tmp_path / "none.so", tmp_path, digits_model):
        result = invoke("inspect", path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: ")
        assert str(path) in result.stderr
