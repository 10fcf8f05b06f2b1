"""`relaybuild partition`: regions, shares, reasons, files, and what is said where no backend is on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaybuild.ir.expr import Call
from relaybuild.ir.pattern import is_op, wildcard
from relaybuild.partition.backend import Backend, register_backend

from .conftest import Invoke

PROGRAM = """
def @main(%x: Tensor[(2, 3), float32], %c: bool) {
  %0 = nn.relu(tanh(%x));
  %1 = exp(%0);
  %2 = exp(add(%1, full(fill_value=2.0, shape=[2, 3])));
  if (%c) { nn.relu(%2) } else { sqrt(%2) }
}
"""


def no_code(*args: Any) -> Any:
    raise AssertionError("no code is generated here")


def supports(call: Call) -> bool | str:
    return call.op_name == "nn.relu" or (call.op_name == "sqrt" and "'sqrt' is for matrices of integers")


@pytest.fixture(autouse=True)
def vendor() -> None:
    patterns = [("vendor.relu_tanh", is_op("nn.relu")(is_op("tanh")(wildcard())))]
    register_backend(
        Backend("vendor", "vendor", "USE_VENDOR", no_code, priority=5, supports=supports, patterns=patterns)
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.relay"
    path.write_text(PROGRAM)
    return path


def test_regions_shares_and_reasons_are_printed(invoke: Invoke, model: Path) -> None:
    result = invoke("partition", model, "-D", "USE_VENDOR=ON")
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "relaybuild_m_vendor_main_0 vendor 2 tanh, nn.relu" in lines
    assert "relaybuild_m_vendor_main_1 vendor 1 nn.relu" in lines
    assert "vendor 2 3 42.9 %" in lines
    assert "host 4 57.1 %" in lines
    assert any(line.startswith("exp 2 'vendor' does not take 'exp'") for line in lines)
    assert any(line.startswith("sqrt 1 'sqrt' is for matrices of integers") for line in lines)
    assert any("m.relay:4:8" in line for line in lines if line.startswith("exp"))


def test_every_call_is_listed_where_it_is_asked_for(invoke: Invoke, model: Path) -> None:
    lines = [line.split() for line in invoke("partition", model, "-DUSE_VENDOR=ON", "--verbose").stdout.splitlines()]
    calls = lines[lines.index(["calls:"]) + 2 :]
    assert [line[:2] for line in calls] == [
        ["vendor.relu_tanh", "relaybuild_m_vendor_main_0"],
        ["exp", "host"],
        ["add", "host"],
        ["exp", "host"],
        ["nn.relu", "relaybuild_m_vendor_main_1"],
        ["sqrt", "host"],
    ]


def test_without_backends_it_says_how_to_switch_one_on(invoke: Invoke, model: Path) -> None:
    result = invoke("partition", model)
    assert result.exit_code == 0, result.stderr
    assert "no backend is on, and the host has all calls: switch one on with -D USE_NAME=ON" in result.stdout
    assert "regions:" not in result.stdout
    assert "with the host:" not in result.stdout


def test_files_are_complete_and_the_same_twice(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    html, facts = tmp_path / "m.html", tmp_path / "m.json"
    texts = set()
    for _ in range(2):
        result = invoke("partition", model, "-DUSE_VENDOR=ON", "--html", html, "--json", facts)
        assert result.exit_code == 0, result.stderr
        texts.add((html.read_bytes(), facts.read_bytes()))
    assert len(texts) == 1
    found = json.loads(facts.read_text())
    assert found["backends"] == ["vendor"]
    assert [region["operators"] for region in found["regions"]] == [{"tanh": 1, "nn.relu": 1}, {"nn.relu": 1}]
    assert len(found["calls"]) == 6
    text = html.read_text()
    assert text.count('class="node b0"') == 2
    assert "host: &#x27;sqrt&#x27; is for matrices of integers" in text
    assert "vendor: 2 regions, 3 calls" in text


def test_a_file_that_cannot_be_written_is_found_first(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    result = invoke("partition", model, "--html", tmp_path / "absent" / "m.html")
    assert result.exit_code == 1
    assert "its folder does not exist" in result.stderr


def test_a_real_model(invoke: Invoke, digits_model: Path, tmp_path: Path) -> None:
    facts = tmp_path / "digits.json"
    result = invoke("partition", digits_model, "-DUSE_VENDOR=ON", "--json", facts)
    assert result.exit_code == 0, result.stderr
    found = json.loads(facts.read_text())
    assert [region["operators"] for region in found["regions"]] == [{"nn.relu": 1}] * 3
    assert "relaybuild_digits_vendor_main_0 and 2 like it" in result.stdout
    assert f"and {found['constants']} calls over constants alone" in result.stdout
