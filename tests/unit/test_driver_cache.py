"""The driver and the cache: artifacts that are found, what they know, and what is never taken for something else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import relaybuild
from relaybuild import driver, job, stages
from relaybuild.build.cache.action import Action
from relaybuild.build.cache.locks import held
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.cache.upkeep import entries
from relaybuild.build.cache_config import CacheFlags, chosen_settings
from relaybuild.build.head_start import HeadStart
from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Function, Tuple, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.printer import print_module
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import register_supports
from relaybuild.passes.infra import PassContext
from relaybuild.passes.instruments import PassTimingInstrument
from relaybuild.runtime import load_module

pytestmark = pytest.mark.usefixtures("own_warm_cache", "fixed_code")


def module(factor: float = 1.0, name: str = "x") -> IRModule:
    x = var(name, TensorType((2, 3), "float32"))
    weight = const(np.arange(12, dtype="float32").reshape(4, 3) * np.float32(factor))
    y: Expr = call_op("nn.dense", [x, weight])
    return IRModule({"main": Function([x], Tuple([y, call_op("nn.relu", [x])]))})


def is_found(artifact: driver.Artifact) -> bool:
    summary = artifact.summary
    return summary["cached"]["link"] == 1 and not any(summary["executed"].values()) and not summary["misses"]


def miss(artifact: driver.Artifact) -> Mapping[str, Any]:
    (found,) = [each for each in artifact.summary["misses"] if each["layer"] == "artifact"]
    result: Mapping[str, Any] = found
    return result


def compiled(**options: Any) -> driver.Artifact:
    return driver.compile(options.pop("model", None) or module(), target="c", **options)


def test_an_artifact_that_is_found_is_as_one_that_is_made(tmp_path: Path) -> None:
    made = compiled()
    found = compiled()
    assert (is_found(made), is_found(found)) == (False, True)
    assert found.header == made.header
    assert found.path.read_bytes() == made.path.read_bytes()
    assert found.warnings == made.warnings
    for key in ("size", "kernels", "regions", "arena_bytes", "weight_bytes"):
        assert found.summary[key] == made.summary[key], key
    assert print_module(found.module) == print_module(made.module)
    found.export_library(tmp_path / "a.so")
    assert found.summary["artifact"] == str(tmp_path / "a.so")
    product, positive = load_module(tmp_path / "a.so")(np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(product, [[3, 12, 21, 30]] * 2)
    np.testing.assert_array_equal(positive, np.ones((2, 3)))


def forget_compilers() -> None:
    with open_cache(chosen_settings(CacheFlags())) as cache:
        cache.records.forget("tool", [row.name for row in cache.records.rows() if row.kind == "tool"])


def test_work_begins_before_a_cache_is_asked_that_does_not_know_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    begin, key = stages.begin, job.artifact_key
    monkeypatch.setattr(stages, "begin", lambda *given: order.append("begin") or begin(*given))
    monkeypatch.setattr(job, "artifact_key", lambda *given: order.append("key") or key(*given))
    compiled(model=module(2.0))
    assert order == ["key", "begin"]
    forget_compilers()
    order.clear()
    made = compiled(model=module(3.0))
    assert order == ["begin", "key"]
    assert made.summary["executed"]["link"] == 1
    assert load_module(made.path)(np.ones((2, 3), "float32"))[0][0][0] == 9


def test_what_was_begun_is_kept_where_another_process_makes_the_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may wait for it; and they would compile it again if it was given up."""
    kept: list[int] = []
    keep, claim = HeadStart.keep, Cache.claim

    @contextlib.contextmanager
    def refused(self: Cache, action: Action, timeout: float = 60.0) -> Iterator[bool]:
        if action.layer == "artifact" and not timeout:
            yield False
            return
        with claim(self, action, timeout) as is_ours:
            yield is_ours

    monkeypatch.setattr(Cache, "claim", refused)
    monkeypatch.setattr(HeadStart, "keep", lambda self: kept.append(len(self.making)) or keep(self))
    made = compiled(model=module(2.0), cache_dir=tmp_path / "new")
    assert kept[0] > 0
    assert load_module(made.path)(np.ones((2, 3), "float32"))[0][0][0] == 6
    with open_cache(chosen_settings(CacheFlags(tmp_path / "new"))) as cache:
        objects = [entry for entry in entries(cache) if entry.action.layer == "object"]
    assert made.summary["executed"]["object"] + made.summary["cached"]["object"] == len(objects)


def test_an_artifact_that_is_found_though_its_compiler_was_not_known() -> None:
    made = compiled()
    forget_compilers()
    found = compiled()
    assert is_found(found)
    assert found.path.read_bytes() == made.path.read_bytes()


def test_the_steps_of_what_is_found_count_as_cached() -> None:
    first = compiled().summary
    # a pass that comes up twice with nothing changed between is found the second time
    steps = {stage: first["executed"][stage] + first["cached"][stage] for stage in first["executed"]}
    # the kernels are parts of the host's code
    assert compiled().summary["cached"] == {**steps, "codegen": 1}


def test_an_artifact_that_was_evicted_is_put_together_from_the_same_parts() -> None:
    made = compiled()
    cache = made._job.cache
    with open_cache(cache.settings) as own:
        rows = [row for row in own.records.rows() if row.kind == "ac/main"]
        own.records.forget("ac/main", [row.name for row in rows if b"artifact" in row.row.value])
    again = compiled()
    assert {**again.summary["executed"], "import": 0} == dict.fromkeys(driver.STAGES, 0)
    journal = again._job.cache.journal
    assert [event.layer for event in journal.executed] == ["import", "artifact"]
    assert not any(event.is_unstable for event in journal.executed)
    assert is_found(compiled())


def test_the_program_of_what_is_found_is_looked_up(tmp_path: Path) -> None:
    """Also with a cache that no longer has a run, which nothing must remain of."""
    path = external_model(tmp_path, 1.0)
    made, found = (compiled(model=path) for _ in range(2))
    cache = found._job.cache
    assert is_found(found)
    assert print_module(found.module) == print_module(made.module)
    assert {event.layer for event in cache.journal.looked} == {"artifact", "import", "pass", "partition"}
    assert [event.layer for event in cache.journal.executed] == []
    assert cache.folder is not None
    assert held(cache.folder) == frozenset()


def test_the_program_of_what_was_made_without_a_cache_is_made_again() -> None:
    made = compiled(cache_dir=False)
    assert print_module(made._job.program()) == print_module(made.module)


def test_what_is_found_leaves_nothing_behind() -> None:
    compiled()
    found = compiled()
    folder = found.path.parent
    assert folder.exists()
    del found
    assert not folder.exists()


def test_without_a_cache_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBUILD_CACHE_DIR", str(tmp_path / "cache"))
    assert not is_found(compiled(cache_dir=False))
    assert not (tmp_path / "cache").exists()
    assert not is_found(compiled())
    assert (tmp_path / "cache").exists()


def test_a_folder_may_be_named(runtime_cache: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(runtime_cache, tmp_path / name)
    compiled(cache_dir=tmp_path / "one")
    assert is_found(compiled(cache_dir=tmp_path / "one"))
    assert not is_found(compiled(cache_dir=tmp_path / "other"))


@pytest.mark.parametrize("other", [module(2.0), module(name="y")], ids=["weights", "input name"])
def test_another_module(other: IRModule) -> None:
    compiled()
    artifact = compiled(model=other)
    assert miss(artifact)["changed"] == ["in/module"]
    assert is_found(compiled(model=other))


def external_model(folder: Path, value: float) -> Path:
    """A model whose weight lies in a file beside it."""
    weight = numpy_helper.from_array(np.full((3, 3), value, "float32"), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    kind = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    graph = helper.make_graph(
        [node], "g", [kind], [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path = folder / "model.onnx"
    for old in ("model.onnx", "weights.bin"):
        (folder / old).unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_weights_beside_a_model(tmp_path: Path) -> None:
    path = external_model(tmp_path, 1.0)
    model = path.read_bytes()
    compiled(model=path)
    assert is_found(compiled(model=path))
    external_model(tmp_path, 2.0)
    assert path.read_bytes() == model
    artifact = compiled(model=path)
    assert [name.partition("/")[0] for name in miss(artifact)["changed"]] == ["in"]
    result = load_module(artifact.path)(np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(result, np.full((2, 3), 6))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UserError, match=r"weights\.bin"):
        compiled(model=path)


@pytest.mark.parametrize("place", [0, 17, -1], ids=["first", "middle", "last"])
def test_one_bit_of_weights_beside_a_model(tmp_path: Path, place: int) -> None:
    path = external_model(tmp_path, 1.0)
    first = compiled(model=path)
    weights = bytearray((tmp_path / "weights.bin").read_bytes())
    weights[place] ^= 1
    (tmp_path / "weights.bin").write_bytes(weights)
    second = compiled(model=path)
    assert not is_found(second)
    expected = np.ones((2, 3), "float32") @ np.frombuffer(weights, "float32").reshape(3, 3)
    np.testing.assert_allclose(load_module(second.path)(np.ones((2, 3), "float32")), expected, rtol=1e-6)
    assert first.path.read_bytes() != second.path.read_bytes()


def test_a_model_in_memory() -> None:
    kind = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [kind], [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    compiled(model=proto)
    assert is_found(compiled(model=proto))
    proto.graph.node[0].op_type = "Abs"
    assert miss(compiled(model=proto))["changed"] == ["in/module"]


def test_who_observes_passes_sees_them_run() -> None:
    compiled()
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        artifact = compiled()
    assert timing.timings
    assert (miss(artifact)["reason"], miss(artifact)["detail"]) == ("bypassed", "the passes are observed")


def test_who_keeps_sources_gets_them(tmp_path: Path) -> None:
    compiled()
    artifact = compiled(save_temps=tmp_path / "kept")
    assert list((tmp_path / "kept").rglob("*.c"))
    assert miss(artifact)["reason"] == "bypassed"


def test_the_context_is_part_of_the_key() -> None:
    compiled()
    with PassContext(opt_level=3, disabled_pass=["SimplifyExpr"]):
        assert "option.passes.disabled" in miss(compiled())["changed"]
        assert is_found(compiled())
    with PassContext(opt_level=3, config={"relaybuild.precise": True}):
        assert "option.precise" in miss(compiled())["changed"]
    assert is_found(compiled())


def answering(limit: int) -> Callable[[object], bool]:
    return lambda _call: limit > 1


def test_what_is_registered_counts_by_what_it_does() -> None:
    compiled()
    register_supports("nobody", "add")(answering(2))
    # what it brings may be C++, whose compiler then counts, too
    assert "plugin/supports/nobody/add" in miss(compiled())["changed"]
    register_supports("nobody", "add")(answering(2))
    assert is_found(compiled())
    register_supports("nobody", "add")(answering(3))
    assert miss(compiled())["changed"] == ["plugin/supports/nobody/add"]


def test_what_cannot_be_identified_is_not_looked_up(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", encoding="utf-8") as file:
        register_supports("nobody", "add")(lambda _call: bool(file.closed))
        for _ in range(2):
            found = miss(compiled())
            assert found["reason"] == "bypassed"
            assert found["detail"].startswith("plugin-without-id: supports/nobody/add: it reaches a value of type")


def test_what_says_who_it_is_is_looked_up() -> None:
    class Answer:
        version = "1"

        def __call__(self, _call: object) -> bool:
            return False

        def cache_id(self) -> str:
            return self.version

    answer = Answer()
    register_supports("nobody", "add")(answer)
    compiled()
    assert is_found(compiled())
    answer.version = "2"
    assert miss(compiled())["changed"] == ["plugin/supports/nobody/add"]


def test_code_that_is_not_what_runs_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", 0)
    for _ in range(2):
        assert miss(compiled())["detail"] == "relaybuild's code was changed while this process ran"


def test_a_library_that_is_damaged_after_it_was_found_is_made_again(runtime_cache: Path, tmp_path: Path) -> None:
    shutil.copytree(runtime_cache, tmp_path / "cache")
    made = compiled(cache_dir=tmp_path / "cache")
    found = compiled(cache_dir=tmp_path / "cache")
    assert is_found(found)
    shutil.rmtree(tmp_path / "cache" / "v1" / "cas")
    found.export_library(tmp_path / "a.so")
    assert (tmp_path / "a.so").read_bytes() == made.path.read_bytes()
    assert found.summary["executed"]["link"] == 1
    assert is_found(compiled(cache_dir=tmp_path / "cache"))


def test_a_model_that_is_edited_while_it_is_compiled_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.relay"
    path.write_text(print_module(module()))

    def edit(event: driver.Event) -> None:
        if event.stage == "object":
            path.write_text(print_module(module(2.0)))

    compiled(model=path, on_event=edit)
    path.write_text(print_module(module()))
    assert not is_found(compiled(model=path))


OPTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from([module(), module(2.0), module(name="y")]),
        "threads": st.sampled_from([0, 2]),
        "opt_level": st.sampled_from([0, 3]),
        "precise": st.booleans(),
        "name": st.sampled_from(["one", "two"]),
        "flags": st.sampled_from([{}, {"USE_CODEGENC": "ON"}]),
    }
)


@pytest.fixture
def used_cache(runtime_cache: Path, tmp_path: Path) -> Path:
    """A cache that all examples of a test use."""
    return Path(shutil.copytree(runtime_cache, tmp_path / "cache"))


def check_cached_equals_clean(folder: Path, options: dict[str, Any]) -> None:
    cached = compiled(**options, cache_dir=folder)
    clean = compiled(**options, cache_dir=False)
    assert cached.path.read_bytes() == clean.path.read_bytes()
    assert cached.header == clean.header
    assert is_found(compiled(**options, cache_dir=folder))


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=OPTIONS)
def test_cached_equals_clean(used_cache: Path, options: dict[str, Any]) -> None:
    check_cached_equals_clean(used_cache, options)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=OPTIONS)
def test_cached_equals_clean_of_many(used_cache: Path, options: dict[str, Any]) -> None:
    check_cached_equals_clean(used_cache, options)
