"""`relaybuild passes`, and the options of `relaybuild compile` that concern passes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from cli.conftest import Invoke
from relaybuild.passes import _base
from relaybuild.passes.infra import builtin_passes
from relaybuild.runtime import load_module

pytestmark = pytest.mark.usefixtures("own_warm_cache")

PROGRAM = """
def @unused(%x: Tensor[(2, 3), float32]) {
  exp(%x)
}

def @main(%x: Tensor[(2, 3), float32]) {
  %0 = transpose(%x, axes=[1, 0]);
  %1 = transpose(%0, axes=[1, 0]);
  add(multiply(%1, 2f), multiply(%1, 2f))
}
"""


@pytest.fixture(autouse=True)
def _only_relaybuilds_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of other tests register passes when they are imported."""
    monkeypatch.setattr(_base, "_user_passes", {})


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.relay"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def compiled(invoke: Invoke, program: Path) -> Invoke:
    """Compiles the program with further options."""

    def run(*options: str | Path) -> object:
        return invoke("compile", program, "-o", program.with_suffix(".so"), "--target", "c", "--jobs", "1", *options)

    return run


def test_every_pass_is_listed_under_its_level(invoke: Invoke) -> None:
    lines = invoke("passes").stdout.splitlines()
    levels = [int(line.removeprefix("opt_level ")) for line in lines if not line.startswith(" ")]
    assert levels == sorted(set(levels))
    named = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("      ")]
    assert sorted(named) == sorted(builtin_passes())
    place = lines.index("  FoldConstant (function)")
    assert lines[place + 1].startswith("      what depends on constants alone is computed now")
    assert "      fold_weights: bool = True" in lines[place:]


def test_the_listing_as_json(invoke: Invoke) -> None:
    facts = {each["name"]: each for each in json.loads(invoke("passes", "--json").stdout)}
    assert facts["FoldConstant"]["opt_level"] == 2
    assert facts["FoldConstant"]["kind"] == "function"
    assert facts["FoldConstant"]["options"] == [{"name": "fold_weights", "type": "bool", "default": True}]
    assert facts["Legalize"]["required"] == ["InferType"]
    assert facts["FoldScaleAxis"]["kind"] == "sequential"
    assert all(each["doc"] for each in facts.values())


def test_print_after(compiled: Invoke) -> None:
    result = compiled("--print-after", "dead-code-elimination")
    assert result.exit_code == 0, result.stderr
    printed = result.stderr.partition("// after DeadCodeElimination\n")[2]
    assert "def @main" in printed
    assert "transpose" not in printed
    assert "exp" not in printed


def test_print_changed(compiled: Invoke) -> None:
    lines = compiled("--print-changed").stderr.splitlines()
    assert "--- before SimplifyExpr" in lines
    assert any(line.startswith("-") and "transpose" in line for line in lines)
    assert "--- before SimplifyInference" not in lines
    assert "--- before default" not in lines


def test_a_disabled_pass_does_not_run(compiled: Invoke) -> None:
    assert "exp" in compiled("--disable-pass", "DeadCodeElimination", "--print-after", "EliminateCommonSubexpr").stderr
    assert (
        "// after DeadCode"
        not in compiled("--disable-pass", "DeadCodeElimination", "--print-after", "DeadCodeElimination").stderr
    )


def test_a_required_pass_runs_below_its_level(compiled: Invoke) -> None:
    options = ("--opt-level", "0", "--print-after", "EliminateCommonSubexpr")
    assert "// after" not in compiled(*options).stderr
    assert "// after" in compiled(*options, "--require-pass", "eliminate-common-subexpr").stderr


def test_an_unknown_pass_is_refused(compiled: Invoke) -> None:
    result = compiled("--disable-pass", "FoldConstants")
    assert result.exit_code == 1
    assert result.stderr == "error: unknown pass 'FoldConstants'; the nearest are FoldConstant\n"


def test_timing_is_written(compiled: Invoke, tmp_path: Path) -> None:
    compiled("--pass-timing", tmp_path / "passes.json")
    (whole,) = json.loads((tmp_path / "passes.json").read_text())
    assert whole["name"] == "default"
    assert [child["name"] for child in whole["children"]][:2] == ["InferType", "SimplifyInference"]
    assert whole["seconds"] >= sum(child["seconds"] for child in whole["children"])


def last_line(result: Result) -> str:
    """What is said at the end, before what was found in the cache."""
    return [line for line in result.stderr.splitlines() if not line.startswith("cache: ")][-1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_rewrites_stop_after_some(compiled: Invoke, program: Path, count: int) -> None:
    result = compiled("--stop-after-rewrite", str(count), "--print-after", "SimplifyExpr", "--verify-each")
    assert result.exit_code == 0, result.stderr
    last = last_line(result)
    wanted = ("no rewrite", "rewrite 1, SimplifyExpr: transpose becomes Var", "rewrite 2, EliminateCommonSubexpr: ")
    assert last.startswith(f"stopped after {wanted[count]}")
    assert (f"{program}:8:" in last) is (count == 1)
    assert ("transpose(" in result.stderr.partition("// after SimplifyExpr")[2]) is (count == 0)


def test_a_limit_that_is_not_reached_tells_how_many_there_are(compiled: Invoke) -> None:
    last = last_line(compiled("--stop-after-rewrite", "1000"))
    assert last.startswith("all ")
    assert last.endswith(" rewrites were made, fewer than --stop-after-rewrite allows")


def test_without_any_rewrite_the_library_computes_the_same(compiled: Invoke, program: Path) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    compiled("--stop-after-rewrite", "0")
    np.testing.assert_array_equal(load_module(program.with_suffix(".so"))(x), 4 * x)
