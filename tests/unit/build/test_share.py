"""Files that ship beside the package, from the checkout and from a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from environments import ROOT, copy_sources

from relaybuild.build import share
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import InternalError

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="there is no checkout to build from")


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [folder / "config.cmake", *(folder / "cmake").rglob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def test_a_checkout_is_its_own_share() -> None:
    assert share.share_dir() == ROOT
    modules = share.contrib_modules()
    assert list(modules) == sorted(modules)
    assert {"CBLAS", "CODEGENC", "DNNL", "EXAMPLE_JSON"} <= set(modules)
    assert all(path.name == f"{name}.cmake" and path.is_file() for name, path in modules.items())


def test_an_installation_without_the_files_is_our_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "_PACKAGE", tmp_path / "relaybuild")
    with pytest.raises(InternalError, match="the installation is incomplete"):
        share.share_dir()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """A copy of what a distribution is built from, so that nothing is written into the checkout."""
    pytest.importorskip("setuptools")
    return copy_sources(tmp_path_factory.mktemp("source"))


def built(source: Path, target: Path, kind: str) -> Path:
    """Build a distribution by the build backend that pyproject.toml names."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(target)], cwd=source, check=True, capture_output=True, timeout=300)
    (path,) = target.iterdir()
    return path


USE = """\
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
import relaybuild
assert Path(relaybuild.__file__).is_relative_to(sys.argv[1]), relaybuild.__file__
from relaybuild.build.configure import BackendModule, configure
from relaybuild.build.share import contrib_modules, share_dir
from relaybuild.cli import main
assert share_dir().is_relative_to(sys.argv[1]), share_dir()
try:
    main(["init", "project"])
except SystemExit as error:
    assert not error.code
modules = [BackendModule(name, f"USE_{name}", file) for name, file in contrib_modules().items()]
script = Path("project", "config.cmake")
found = configure(script, {"USE_CODEGENC": "ON"}, modules, cache_dir=Path("cache"))
print([flag for flag, settings in found.items() if settings.enabled])
"""


@pytest.mark.slow
def test_a_wheel_brings_the_files(source: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    wheel = built(source, tmp_path / "dist", "wheel")
    installed = tmp_path / "installed"
    shutil.unpack_archive(wheel, installed, "zip")
    assert files_of(installed / "relaybuild" / "_share") == files_of(ROOT)
    # Without `site`, so that the checkout's editable installation is out of reach; other packages are not.
    command = [sys.executable, "-I", "-S", "-c", USE, str(installed), sysconfig.get_path("purelib")]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "['USE_CODEGENC']"


def test_a_source_distribution_brings_the_files(source: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    archive = built(source, tmp_path / "dist", "sdist")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert set(files_of(ROOT)) | {"setup.py", "MANIFEST.in"} <= names
