"""Keeps what tests register from one another."""

from __future__ import annotations

import pytest

from relaybuild import registry
from relaybuild.partition import backend, pattern_table
from relaybuild.passes import _base, _config


@pytest.fixture(autouse=True)
def _own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes, keys, functions and backends that a test registers are gone after it, relaybuild's own are not."""
    _base.builtin_passes()
    monkeypatch.setattr(_base, "_user_passes", dict(_base._user_passes))
    monkeypatch.setattr(_config, "_keys", dict(_config._keys))
    monkeypatch.setattr(registry, "_functions", dict(registry._functions))
    monkeypatch.setattr(backend, "_registered", dict(backend._registered))
    monkeypatch.setattr(backend, "_predicates", dict(backend._predicates))
    monkeypatch.setattr(pattern_table, "_tables", dict(pattern_table._tables))
