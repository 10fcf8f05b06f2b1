"""What the tests of the build share: the machine's compiler, and a tiny file system that fills up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaybuild.build.toolchain import Toolchain, probe


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return probe()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; skips where it cannot be mounted."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
        )
    except OSError:
        pytest.skip("there is no 'mount'")
    if mounted.returncode != 0:
        pytest.skip("mounting a file system needs rights that this user does not have")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
