"""What the keys of all steps share, and why there may be none."""

from __future__ import annotations

from pathlib import Path

import pytest

import relaybuild
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import open_cache
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.known import Known
from relaybuild.compilation.slots import Weights
from relaybuild.ir.parser import parse
from relaybuild.partition.backend import register_supports

from .stepping import request_of

MODULE = parse("def @main(%x: float32) { %x }")


def known(folder: Path, mode: Mode = Mode.READ_WRITE) -> Known:
    with open_cache(CacheSettings(folder, mode)) as cache:
        return Known.of(request_of(MODULE), Actions(cache, Weights(), "model"))


def test_code_that_was_changed_is_an_objection(
    own_cache: None, fixed_code: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known(tmp_path).objection == ""
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", 0)
    assert "changed while this process ran" in known(tmp_path).objection


def test_what_is_registered_is_known(own_cache: None, fixed_code: None, tmp_path: Path) -> None:
    assert not [name for name in known(tmp_path).plugins.digests if name.startswith("supports/")]
    register_supports("own", "add")(lambda call: True)
    assert "supports/own/add" in known(tmp_path).plugins.digests


def test_what_cannot_be_told_apart_is_an_objection(own_cache: None, fixed_code: None, tmp_path: Path) -> None:
    lock = __import__("threading").Lock()
    register_supports("own", "add")(lambda call: lock.locked())
    assert known(tmp_path).plugins.objection.startswith("plugin-without-id: supports/own/add")
    assert known(tmp_path).objection == ""


def test_without_steps_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", 0)
    assert known(tmp_path, Mode.OFF).objection == ""
    assert known(tmp_path).objection == ""
