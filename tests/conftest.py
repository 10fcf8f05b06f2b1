"""Keeps what tests register from one another."""

from __future__ import annotations

import pytest

from relaybuild.passes import _base, _config


@pytest.fixture(autouse=True)
def _own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes and keys registered by a test are gone after it, those of relaybuild's own passes are not."""
    _base.builtin_passes()
    monkeypatch.setattr(_base, "_user_passes", dict(_base._user_passes))
    monkeypatch.setattr(_config, "_keys", dict(_config._keys))
