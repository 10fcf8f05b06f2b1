"""What identifies a model: its bytes, and how they are read."""

from __future__ import annotations

from pathlib import Path

from relaybuild.artifact.model import model_inputs
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache


def test_equal_bytes_that_are_read_in_another_way_are_another_model(tmp_path: Path) -> None:
    names = ("a.onnx", "b.onnx", "c.relay", "d.relay")
    for name in names:
        (tmp_path / name).write_bytes(b"equal")
    with open_cache(CacheSettings(tmp_path / "cache")) as cache:
        found = [model_inputs(tmp_path / name, cache, Inputs(None))["model"] for name in names]
    assert found[0] == found[1] != found[2] == found[3]
