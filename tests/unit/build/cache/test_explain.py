"""What a run is told of its misses: one line for a cause, what follows from it folded into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.explain import Explanation, explain
from relaybuild.build.cache.hit import Hit
from relaybuild.build.cache.journal import Journal, Looked, MissReason
from relaybuild.build.cache.record import read_reference
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import Digest, digest_bytes


def step(cache: Cache, layer: str, name: str, slot: str, inputs: Mapping[str, Digest], made: bytes) -> Digest:
    """One action of a chain, whose output is a digest; what it makes is `made`, if it is executed."""
    builder = ActionBuilder(layer, name)
    for each, digest in inputs.items():
        builder.input(each, digest)
    outputs = cache.run(builder.build(), lambda: {"module": digest_bytes(made)}, slot=slot)
    digest = read_reference(outputs["module"])
    assert digest is not None
    return digest


def build(cache: Cache, model: bytes, fold: bytes = b"1", cc: bytes = b"1", folded: bytes | None = None) -> None:
    """Import, a pass, and a codegen and an object for each of two kernels."""
    module = step(cache, "import", "onnx", "m", {"in/model": digest_bytes(model)}, b"imported" + model)
    inputs = {"in/module": module, "impl/pass": digest_bytes(fold)}
    module = step(cache, "pass", "Fold", "m", inputs, b"folded" + model if folded is None else folded)
    for kernel in ("k1", "k2"):
        parts = {"in/function": module, "in/part": digest_bytes(kernel.encode())}
        source = step(cache, "codegen", "host", f"m/{kernel}", parts, module.hex.encode() + kernel.encode())
        objects = {"in/source": source, "toolchain/cc": digest_bytes(cc)}
        step(cache, "object", "cc", f"m/{kernel}", objects, source.hex.encode() + cc)


@pytest.fixture
def settings_of_a_built_model(settings: CacheSettings) -> CacheSettings:
    with open_cache(settings) as cache:
        build(cache, b"1")
    return settings


@pytest.fixture
def again(settings_of_a_built_model: CacheSettings) -> Iterator[Cache]:
    with open_cache(settings_of_a_built_model) as cache:
        yield cache


def lines(cache: Cache) -> list[str]:
    return explain(cache.journal).lines()


def short(content: bytes) -> str:
    return digest_bytes(content).hex[:8]


def test_a_second_build_has_hits_only(again: Cache) -> None:
    build(again, b"1")
    assert lines(again) == ["HIT  import: 1", "HIT  pass: 1", "HIT  codegen: 2", "HIT  object: 2"]


def test_what_follows_from_a_cause_is_folded_into_it(again: Cache) -> None:
    build(again, b"2")
    assert lines(again) == [
        f"MISS import/onnx#m: in/model changed ({short(b'1')} → {short(b'2')}); 1 pass, 2 codegen, 2 object follow"
    ]


def test_what_follows_a_pass_that_changes_nothing_is_folded_into_the_cause_of_that(settings: CacheSettings) -> None:
    """The pass and what comes before it have one output."""
    for model in (b"1", b"2"):
        with open_cache(settings) as cache:
            build(cache, model, folded=b"imported" + model)
    assert lines(cache) == [
        f"MISS import/onnx#m: in/model changed ({short(b'1')} → {short(b'2')}); 1 pass, 2 codegen, 2 object follow"
    ]


def test_a_pass_that_was_edited_is_the_cause_of_what_follows(again: Cache) -> None:
    build(again, b"1", fold=b"2", folded=b"other")
    assert lines(again) == [
        f"MISS pass/Fold#m: impl/pass changed ({short(b'1')} → {short(b'2')}); 2 codegen, 2 object follow",
        "HIT  import: 1",
    ]


def test_equal_outputs_keep_what_comes_after(again: Cache) -> None:
    build(again, b"1", fold=b"2")
    assert lines(again) == [
        f"MISS pass/Fold#m: impl/pass changed ({short(b'1')} → {short(b'2')})",
        "SAME pass/Fold#m: executed again, outputs identical",
        "HIT  import: 1",
        "HIT  codegen: 2",
        "HIT  object: 2",
    ]


def test_one_cause_of_many_misses_is_one_line(again: Cache) -> None:
    build(again, b"1", cc=b"2")
    assert lines(again)[0] == (f"MISS object/cc (2 times): toolchain/cc changed ({short(b'1')} → {short(b'2')})")
    found = explain(again.journal).to_json()
    assert found["causes"][0]["misses"] == ["object/cc#m/k1", "object/cc#m/k2"]
    assert found["causes"][0]["changes"] == [
        {"component": "toolchain/cc", "old": digest_bytes(b"1").hex, "new": digest_bytes(b"2").hex}
    ]
    assert found["hits"] == {"import": 1, "pass": 1, "codegen": 2}


def test_two_causes_are_both_told_and_what_follows_names_its_own(again: Cache) -> None:
    build(again, b"2", cc=b"2")
    first, second = lines(again)
    assert first.endswith("; 1 pass, 2 codegen follow")
    assert second == f"MISS object/cc (2 times): toolchain/cc changed ({short(b'1')} → {short(b'2')})"


def test_a_first_build_says_so(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        build(cache, b"1")
    assert lines(cache) == [
        "MISS import/onnx#m: never-seen",
        "MISS pass/Fold#m: never-seen",
        "MISS codegen/host (2 times): never-seen",
        "MISS object/cc (2 times): never-seen",
    ]


def test_what_was_evicted_and_comes_out_otherwise_is_not_deterministic(again: Cache) -> None:
    first = ActionBuilder("import", "onnx").input("in/model", digest_bytes(b"1")).build()
    again.records.forget("ac/main", [first.key("main")])
    module = step(again, "import", "onnx", "m", {"in/model": digest_bytes(b"1")}, b"by chance")
    step(again, "pass", "Fold", "m", {"in/module": module, "impl/pass": digest_bytes(b"1")}, b"folded")
    assert lines(again) == [
        "MISS import/onnx#m: evicted",
        "MISS pass/Fold#m: nondeterministic: an input has other content, made of equal inputs",
        "UNSTABLE import/onnx#m: equal inputs gave other outputs",
    ]


def test_new_and_gone_inputs_are_told(again: Cache) -> None:
    inputs = {"in/weights": digest_bytes(b"w")}
    step(again, "import", "onnx", "m", inputs, b"x")
    assert lines(again) == ["MISS import/onnx#m: in/model is gone, in/weights is new"]


def test_options_are_told_by_their_text(settings: CacheSettings) -> None:
    for index, level in enumerate((3, 0)):
        with open_cache(settings) as cache:
            made = ActionBuilder("pass", "Fold").option("level", level).option("flags", ["-O2" * 40 * (index + 1)])
            cache.run(made.environment("LANG", f"C{index}").build(), lambda: {"a": b"1"}, slot="m")
    line = lines(cache)[0]
    assert line.startswith('MISS pass/Fold#m: env.LANG changed (C0 → C1), option.flags changed (["-O2-O2')
    assert line.endswith("…), option.level changed (3 → 0)")
    assert len(line) < 250


@pytest.mark.parametrize("reason", [reason for reason in MissReason if reason is not MissReason.CHANGED])
def test_each_reason_is_said_by_its_name(reason: MissReason) -> None:
    journal = Journal([Looked("pass", "Fold", "m", "00", reason, "because")])
    found: Explanation = explain(journal)
    assert found.lines() == [f"MISS pass/Fold#m: {reason.value}: because"]
    assert found.to_json()["causes"][0]["reason"] == reason.value


def test_time_is_that_of_the_cause_and_all_that_follows(again: Cache) -> None:
    build(again, b"2")
    (cause,) = explain(again.journal).causes
    assert cause.seconds == pytest.approx(sum(event.seconds for event in again.journal.executed))


def test_an_explanation_is_given_without_a_slot_too(cache: Cache) -> None:
    made = ActionBuilder("pass", "Fold").build()
    cache.run(made, lambda: {"a": b"1"})
    assert isinstance(cache.lookup(made), Hit)
    assert lines(cache) == ["MISS pass/Fold: never-seen", "HIT  pass: 1"]
