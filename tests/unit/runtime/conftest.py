"""Model libraries, each compiled once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.runtime import Module, load_module

from .building import build_library


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="session")
def sample_library(libraries: Path) -> Path:
    """Two inputs, two outputs, several barriers."""
    return build_library(libraries / "sample.so")


@pytest.fixture(scope="session")
def probe_library(libraries: Path) -> Path:
    """Tells the address of its input, and how many calls are inside."""
    return build_library(libraries / "probe.so", "probe.c")


@pytest.fixture
def sample(sample_library: Path) -> Module:
    return load_module(sample_library, threads=2)


@pytest.fixture
def probe(probe_library: Path) -> Module:
    return load_module(probe_library)
