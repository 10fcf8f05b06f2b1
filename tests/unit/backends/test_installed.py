"""Backends of installed packages: found by their entry points without being imported, and told apart by their code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relaybuild.backends.installed import UnknownCode, installed_backends
from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with a backend in it, which would fail if it were imported."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "users_npu_package").mkdir()
    (tmp_path / "users_npu_package" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "users_npu_package" / "runtime.c").write_text("int npu;\n")
    declare(tmp_path, "npu = users_npu_package:BACKEND")
    return tmp_path


def declare(site: Path, line: str, version: str = "1.0") -> None:
    folder = site / f"users_npu-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"[console_scripts]\nnpu-tool = users_npu_package.tool:main\n\n[relaybuild.backends]\n{line}\n"
    (folder / "entry_points.txt").write_text(text)


def found() -> dict[str, Digest]:
    return installed_backends(TreeInputs(None))


def test_the_code_counts(site: Path) -> None:
    first = found()
    assert list(first) == ["npu"]
    assert found() == first
    (site / "users_npu_package" / "runtime.c").write_text("int npu = 1;\n")
    assert found() != first


def test_what_python_made_of_it_does_not(site: Path) -> None:
    first = found()
    (site / "users_npu_package" / "__pycache__").mkdir()
    (site / "users_npu_package" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert found() == first


def test_other_packages_count(site: Path) -> None:
    first = found()
    (site / "users_library-2.0.dist-info").mkdir()
    assert found() != first


def test_without_a_backend_packages_do_not_count(site: Path) -> None:
    (site / "users_npu-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\na = b:c\n")
    assert found() == {}


def test_a_package_that_is_not_there(site: Path) -> None:
    declare(site, "npu = users_absent_package:BACKEND")
    with pytest.raises(UnknownCode, match="users_absent_package"):
        found()


def test_entry_points_that_cannot_be_read(site: Path) -> None:
    declare(site, "no delimiter here")
    with pytest.raises(UnknownCode, match="cannot be read"):
        found()
