"""The weights of a library: what decides their digest, and when they are evaluated."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.trees import TreeInputs
from relaybuild.build.weights import WeightBlob
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.code import CodeDigests
from relaybuild.compilation.codegens import HostCode
from relaybuild.compilation.known import Known
from relaybuild.compilation.plugins import Plugins
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Weights
from relaybuild.compilation.weights import evaluate_weights, library_weights
from relaybuild.digest import digest_bytes
from relaybuild.ir.expr import Function, Tuple, const
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.partition.backend import GeneratedCode

VALUES = np.arange(12, dtype="float32").reshape(3, 4)


def code_of(values: np.ndarray = VALUES, operator: str = "exp", offset: int = 64) -> GeneratedCode:
    """Code with one weight behind `offset` zeros."""
    function = Function([], Tuple([call_op(operator, [const(values)])]))
    return GeneratedCode(weights=function, weight_offsets=(offset,), weight_bytes=offset + 64)


def host_of(code: GeneratedCode) -> HostCode:
    assert code.weights is not None
    program = Program(Weights(), module=IRModule({"weights": code.weights}))
    return HostCode(replace(code, weights=None), program, ())


def content(blob: WeightBlob | None) -> bytes:
    assert blob is not None
    stream = io.BytesIO()
    blob.write(stream)
    assert len(stream.getvalue()) == blob.size
    return stream.getvalue()


def wanted(operator: str = "exp", values: np.ndarray = VALUES) -> bytes:
    return bytes(64) + getattr(np, operator)(values).tobytes() + bytes(16)


def known(cache: Cache | None, objection: str = "") -> Known:
    return Known(CodeDigests(cache, TreeInputs(None)), Plugins(), objection)


@pytest.fixture
def cache(tmp_path: Path, own_cache: None, fixed_code: None) -> Cache:
    return open_cache(CacheSettings(tmp_path / "cache"))


def test_weights_that_are_evaluated_at_once_have_the_digest_of_their_bytes() -> None:
    blob = evaluate_weights(code_of())
    assert blob is not None
    assert content(blob) == wanted()
    assert blob.digest == digest_bytes(wanted()).hex
    assert evaluate_weights(GeneratedCode()) is None


def test_what_decides_the_bytes_decides_the_digest(cache: Cache) -> None:
    codes = [
        code_of(),
        code_of(VALUES + 1),
        code_of(operator="tanh"),
        code_of(offset=128),
        code_of(VALUES.reshape(4, 3)),
    ]
    with cache:
        actions = Actions(cache, Weights(), "demo")
        digests = [getattr(library_weights(host_of(code), actions, known(cache)), "digest", None) for code in codes]
        again = library_weights(host_of(code_of(VALUES.copy())), actions, known(cache))
    assert None not in digests
    assert len(set(digests)) == len(digests)
    assert again is not None
    assert again.digest == digests[0]
    assert content(again) == wanted()


def test_weights_are_evaluated_when_they_are_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCode, "with_weights", lambda self: pytest.fail("the weights were evaluated"))
    with cache:
        blob = library_weights(host_of(code_of()), Actions(cache, Weights(), "demo"), known(cache))
    assert blob is not None
    assert blob.size == 128
    monkeypatch.undo()
    assert content(blob) == wanted()


def test_code_that_is_not_what_runs_is_in_no_digest(cache: Cache) -> None:
    with cache:
        actions = Actions(cache, Weights(), "demo")
        blob = library_weights(host_of(code_of()), actions, known(cache, "the code was changed"))
    assert blob is not None
    assert blob.digest == digest_bytes(wanted()).hex


def test_without_a_cache_nothing_is_taken_for_equal() -> None:
    actions = Actions(None, Weights(), "demo")
    first, second = (library_weights(host_of(code_of()), actions, known(None)) for _ in range(2))
    assert content(first) == content(second) == wanted()
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


def test_how_weights_are_evaluated_is_in_their_digest_and_passes_are_not(fixed_code: None) -> None:
    codes = CodeDigests(None, TreeInputs(None))
    reached = codes._closure("relaybuild.compilation.evaluation")
    assert {"relaybuild.ir.ops.contrib_pack", "relaybuild.ir.ops.arithmetic", "relaybuild.ir.interpreter"} <= reached
    assert not [
        name for name in reached if name.startswith(("relaybuild.passes", "relaybuild.build", "relaybuild.lower"))
    ]


def test_code_without_weights(cache: Cache) -> None:
    with cache:
        assert (
            library_weights(HostCode(GeneratedCode(), None, ()), Actions(cache, Weights(), "demo"), known(cache))
            is None
        )
