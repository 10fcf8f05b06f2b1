"""The lists of sources that are shipped: each file is there, and a CMake project compiles the same."""

from __future__ import annotations

import re

from relaybuild.build.share import share_dir
from relaybuild.runtime.sources import cxx_sources, model_sources, module_sources, packed_sources


def test_every_source_is_there() -> None:
    sources = (*model_sources(), *module_sources(), *cxx_sources())
    assert len(set(sources)) == len(sources)
    assert all(source.is_file() for source in sources)


def test_the_runtime_of_a_cmake_project_has_the_sources_of_modules() -> None:
    text = (share_dir() / "cmake" / "RelaybuildRuntime.cmake").read_text(encoding="utf-8")
    named = re.findall(r"\$\{_relaybuild_sources\}/([\w.]+)", text)
    assert sorted(named) == sorted(source.name for source in (*module_sources(), *packed_sources()))
