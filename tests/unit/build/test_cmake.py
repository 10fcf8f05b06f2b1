"""Which cmake is taken, and what it is told of this Python."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from relaybuild.build import cmake
from relaybuild.errors import UserError


def program(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_path_comes_before_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path, packaged = program(tmp_path / "bin" / "cmake"), program(tmp_path / "package" / "cmake")
    environ = {"PATH": os.path.dirname(on_path)}
    monkeypatch.setattr(cmake, "_packaged_cmake", lambda: packaged)
    assert cmake.find_cmakes(environ) == (on_path, packaged)
    assert cmake.find_cmakes({"PATH": str(tmp_path)}) == (packaged,)
    monkeypatch.setattr(cmake, "_packaged_cmake", lambda: None)
    assert cmake.find_cmakes(environ) == (on_path,)
    with pytest.raises(UserError, match="run 'pip install cmake'"):
        cmake.find_cmakes({"PATH": str(tmp_path)})


def test_the_script_of_the_package_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, packaged = program(tmp_path / "bin" / "cmake"), program(tmp_path / "package" / "cmake")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(cmake, "_packaged_cmake", lambda: packaged)
    assert cmake.find_cmakes({"PATH": os.path.dirname(script)}) == (packaged,)


def test_packages_of_this_python_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    sysconfig.get_config_vars()  # which reads a module by the path of now
    monkeypatch.setattr(sys, "path", ["", "/a/lib/python3/site-packages", "/b/project", "/c/dist-packages"])
    told = cmake.python_environment()
    assert told["RELAYBUILD_PYTHON_SITES"] == ("/a/lib/python3/site-packages", "/c/dist-packages")
    assert told["RELAYBUILD_PYTHON_PREFIXES"] == (sys.prefix,)
