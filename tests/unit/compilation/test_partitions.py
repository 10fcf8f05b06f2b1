"""How a program is cut as a step, and which parts of it are which."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relaybuild.backends.selection import Selection
from relaybuild.build.cache.journal import MissReason
from relaybuild.compilation.code import CodeDigests
from relaybuild.compilation.known import Known
from relaybuild.compilation.partitions import HOST_PART, Cut, partition_step
from relaybuild.digest import Digest, digest_bytes
from relaybuild.ir.expr import Call
from relaybuild.ir.infer import infer_types
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.partition.backend import register_supports
from relaybuild.passes.infra import PassContext
from relaybuild.target import chosen

from .cutting import JSON, C, Cutting, network

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")


@pytest.fixture
def cutting(tmp_path: Path) -> Cutting:
    return Cutting(tmp_path / "cache")


def test_a_program_is_cut_once(cutting: Cutting) -> None:
    first = cutting(network())
    assert cutting.executed("partition") == [""]
    assert len(first.cut.regions) == 2
    text = print_module(first.cut.program.module)
    again = cutting(network())
    assert cutting.executed("partition") == []
    assert again.cut.parts == first.cut.parts
    assert again.cut.program.in_memory is None or print_module(again.cut.program.module) == text


def test_values_of_weights_do_not_count(cutting: Cutting) -> None:
    first = cutting(network(1, 2))
    second = cutting(network(3, 4))
    assert cutting.executed("partition") == []
    assert first.cut.parts == second.cut.parts


def test_parts_are_told_apart(cutting: Cutting) -> None:
    first, second = cutting(network()).cut, cutting(network(second="subtract")).cut
    one, two = (region.name for region in first.regions)
    assert first.parts.keys() == second.parts.keys() == {HOST_PART, one, two}
    assert [name for name in first.parts if first.parts[name] != second.parts[name]] == [two]
    third = cutting(network(middle="nn.log_softmax")).cut
    assert [name for name in first.parts if first.parts[name] != third.parts[name]] == [HOST_PART]
    other = cutting(network(shape=(2, 8))).cut
    assert not [name for name in first.parts if first.parts[name] == other.parts[name]]


def test_backends_and_their_order_count(cutting: Cutting) -> None:
    for backends, executed in (((C,), [""]), ((), [""]), ((JSON, C), [""]), ((C,), []), ((), []), ((JSON, C), [])):
        cutting(network(), backends)
        assert cutting.executed("partition") == executed, backends
    cutting(network(), (C, JSON))
    assert "option.backends" in cutting.site.changes("partition")


def test_where_no_backend_is_on_nothing_changes(cutting: Cutting) -> None:
    for _ in range(2):
        module = network()
        with cutting.site.run(module) as current:
            cut = Cut(Selection(), "model", chosen("c"), PassContext(3))
            found = partition_step(current.program, cut, current.actions, current.known)
            assert found.program is current.program
            assert found.regions == ()


@pytest.mark.parametrize(
    ("change", "component"),
    [
        ({"name": "other"}, "option.name"),
        ({"target": chosen("x86-64-v3")}, "option.target"),
        ({"context": PassContext(2)}, "option.opt_level"),
        ({"context": PassContext(3, disabled_pass=["MergeCompilerRegions"])}, "option.disabled"),
        ({"context": PassContext(3, required_pass=["MergeCompilerRegions"])}, "option.required"),
        ({"context": PassContext(3, fallback_device="gpu")}, "option.fallback_device"),
        ({"context": PassContext(3, config={"relaybuild.precise": True})}, "option.config.relaybuild.precise"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_partitioning_is_told_counts(cutting: Cutting, change: dict[str, object], component: str) -> None:
    cut = Cut(Selection(), "model", chosen("c"), PassContext(3))
    for each in (cut, replace(cut, **change)):  # type: ignore[arg-type]
        with cutting.site.run(network()) as current:
            partition_step(current.program, each, current.actions, current.known)
    assert component in cutting.site.changes("partition")
    assert cutting.executed("partition") == [""]


def test_who_takes_a_call_counts(cutting: Cutting) -> None:
    cutting(network())
    register_supports("ccompiler", "multiply")(lambda call: False)
    found = cutting(network())
    assert len(found.cut.regions) == 1
    assert cutting.site.changes("partition") == {"plugin/supports/ccompiler/multiply"}
    cutting(network())
    assert cutting.executed("partition") == []

    def takes(call: Call) -> bool:
        return True

    register_supports("ccompiler", "multiply")(takes)
    assert len(cutting(network()).cut.regions) == 2


@dataclass(frozen=True)
class Codes:
    """The code of modules, one of which was edited."""

    codes: CodeDigests
    edited: str

    def of(self, *modules: str) -> Digest:
        found = self.codes.of(*modules)
        return digest_bytes(found.hex.encode()) if self.edited in modules else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.codes, name)


@pytest.mark.parametrize(
    ("edited", "component"),
    [
        ("relaybuild.contrib.codegen_c", "impl/ccompiler"),
        ("relaybuild.partition.pipeline", "impl/partition"),
        ("relaybuild.contrib.example_json", None),
    ],
)
def test_the_code_of_backends_that_are_on_counts(cutting: Cutting, edited: str, component: str | None) -> None:
    cut = Cut(Selection((C,)), "model", chosen("c"), PassContext(3))
    for is_edited in (False, True):
        with cutting.site.run(network()) as current:
            codes: Any = Codes(current.known.codes, edited if is_edited else "")
            known = replace(current.known, codes=codes)
            partition_step(current.program, cut, current.actions, known)
    assert cutting.site.changes("partition") == ({component} if component else set())


def test_what_the_host_is_told_of_regions_counts_for_it(cutting: Cutting) -> None:
    """A region's symbol and which of its inputs are weights."""
    first = cutting(network(1, 2, shape=(32, 33))).cut
    assert [region.constants for region in first.regions] == [{1}, {1}]
    again = cutting(network(3, 4, shape=(32, 33))).cut
    assert cutting.executed("partition") == []
    assert again.regions == first.regions
    text = """
def @main(%x: Tensor[(4,), float32]) { @region(%x) }
def @region(%x: Tensor[(4,), float32], Compiler="ccompiler", global_symbol="SYMBOL") -> Tensor[(4,), float32] {
  abs(%x)
}
"""
    parts = [cutting(infer_types(parse(text.replace("SYMBOL", symbol)))).cut.parts for symbol in ("one", "two")]
    assert parts[0][HOST_PART] != parts[1][HOST_PART]


def test_observed_and_unidentified_partitioning_is_not_looked_up(cutting: Cutting) -> None:
    cut = Cut(Selection(), "model", chosen("c"), PassContext(3))
    for is_observed, objection in ((True, ""), (False, "no digest")):
        with cutting.site.run(network()) as current:
            known = replace(current.known, objection=objection)
            assert isinstance(known, Known)
            partition_step(current.program, replace(cut, is_observed=is_observed), current.actions, known)
        (looked,) = [event for event in cutting.site.journal.looked if event.layer == "partition"]
        assert looked.reason is MissReason.BYPASSED
        assert looked.detail == (objection or "the passes are observed")
