"""The folder: made with the right permissions, refused where others could write, and told apart by its file system."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.cache.folder import file_system, is_network, open_folder
from relaybuild.errors import UserError

from .conftest import TIMEOUT, mounted

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:25 / /home rw - nfs4 server:/home rw
31 30 0:26 / /home/me/fast rw - xfs /dev/nvme rw
32 21 0:27 / /mnt/with\\040space rw - fuse.sshfs host: rw
33 21 0:28 / /lustre rw - lustre pool rw
34 21 0:29 / /over rw - ext4 /dev/a rw
35 21 0:30 / /over rw - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/tmp/cache", "ext4", False),
        ("/home/me/.cache", "nfs4", True),
        ("/home/me/fast/cache", "xfs", False),
        ("/home/me/faster", "nfs4", True),
        ("/mnt/with space/x", "fuse.sshfs", True),
        ("/lustre", "lustre", True),
        ("/over/x", "cifs", True),
    ],
)
def test_the_file_system_of_a_path_is_found(tmp_path: Path, path: str, kind: str, network: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system(Path(path), str(mounts)) == kind
    assert is_network(Path(path), str(mounts)) == network


def test_a_system_that_does_not_tell_has_local_files(tmp_path: Path) -> None:
    assert file_system(tmp_path, str(tmp_path / "absent")) == ""
    assert not is_network(tmp_path, str(tmp_path / "absent"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_umask_of_the_first_user_does_not_stick_to_a_shared_cache(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = open_folder(tmp_path / "cache", is_shared=True)
        folder.make(folder.cas / "ab")
        blob = folder.write_new(b"x", folder.blob_mode)
        record = folder.write_new(b"x", folder.file_mode)
    finally:
        os.umask(before)
    for each in (folder.root, folder.cas, folder.cas / "ab", folder.tmp):
        assert mode_of(each) == 0o2775
    assert (mode_of(blob), mode_of(record)) == (0o444, 0o664)


def test_nobody_else_sees_what_is_not_shared(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = open_folder(tmp_path / "cache")
        blob = folder.write_new(b"x", folder.blob_mode)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "cache"), mode_of(folder.root), mode_of(folder.tmp), mode_of(blob)) == (
        *(0o700,) * 3,
        0o400,
    )


def test_a_folder_that_others_may_write_is_refused_unless_it_is_shared(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(UserError, match=r"can be written by others \(mode 777\)"):
        open_folder(tmp_path / "cache")
    assert open_folder(tmp_path / "cache", is_shared=True).is_writable


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused_unless_it_is_shared(tmp_path: Path) -> None:
    open_folder(tmp_path / "cache")
    os.chown(tmp_path / "cache", 12345, -1)
    with pytest.raises(UserError, match="belongs to user 12345, expected user 0"):
        open_folder(tmp_path / "cache")
    assert open_folder(tmp_path / "cache", is_shared=True).is_writable


def test_a_folder_that_cannot_be_made_is_one_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not open_folder(tmp_path / "file" / "cache").is_writable


def test_a_read_only_file_system_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    open_folder(source / "cache")
    for folder in mounted(tmp_path / "view", "--bind", source):
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, timeout=TIMEOUT)
        assert not open_folder(folder / "cache").is_writable
        assert not open_folder(folder / "other").is_writable


def test_a_path_with_odd_characters_is_one_like_any_other(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "a b" / "$HOME ~ é ☃ %20 ?mode=ro#")
    temporary = folder.write_new(b"data", 0o600)
    assert folder.publish(temporary, folder.runs / "x", replace=False)
    assert (folder.runs / "x").read_bytes() == b"data"


def test_the_first_of_two_writers_wins_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "cache")
    path = folder.root / "deep" / "er" / "file"
    assert folder.publish(folder.write_new(b"first", 0o600), path, replace=False)
    assert not folder.publish(folder.write_new(b"second", 0o600), path, replace=False)
    assert path.read_bytes() == b"first"
    assert folder.publish(folder.write_new(b"third", 0o600), path, replace=True)
    assert path.read_bytes() == b"third"
    assert list(folder.tmp.iterdir()) == []


def test_without_hard_links_files_are_still_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder = open_folder(tmp_path / "cache")
    assert folder.publish(folder.write_new(b"first", 0o600), folder.root / "x", replace=False)
    assert not folder.publish(folder.write_new(b"second", 0o600), folder.root / "x", replace=False)
    assert (folder.root / "x").read_bytes() == b"first"


def test_what_is_damaged_is_put_away(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "cache")
    folder.make(folder.index)
    assert folder.put_away(folder.index)
    assert not folder.index.exists()
    assert [path.name.split(".")[0] for path in folder.quarantine.iterdir()] == ["index"]
    assert folder.put_away(folder.root / "absent")


def test_backup_programs_are_told_to_leave_it_out(tmp_path: Path) -> None:
    tag = open_folder(tmp_path / "cache").root / "CACHEDIR.TAG"
    assert tag.read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
