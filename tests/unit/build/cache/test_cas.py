"""Blobs: whatever happens to the files, what is read is what was kept, or is said not to be there."""

from __future__ import annotations

import errno
import io
import os
import re
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relaybuild.build.cache import cas
from relaybuild.build.cache.cas import BlobError, BlobStore, Fault
from relaybuild.build.cache.folder import CacheFolder, open_folder
from relaybuild.build.cache.parts import MOST_BYTES
from relaybuild.digest import Digest, digest_bytes, digest_file

DATA = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return open_folder(tmp_path / "cache")


@pytest.fixture
def blobs(folder: CacheFolder) -> BlobStore:
    return BlobStore(folder)


def rewrite(path: Path, data: bytes) -> None:
    """Change a file that is read-only, in place."""
    path.chmod(0o600)
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], set[Fault]]] = {
    "deleted": (lambda path: path.unlink(), {Fault.MISSING}),
    "truncated": (lambda path: rewrite(path, DATA[:1000]), {Fault.TRUNCATED}),
    "empty": (lambda path: rewrite(path, b""), {Fault.TRUNCATED}),
    "longer": (lambda path: rewrite(path, DATA + b"\0"), {Fault.TRUNCATED}),
    "first bit": (lambda path: rewrite(path, bytes([DATA[0] ^ 1]) + DATA[1:]), {Fault.ALTERED}),
    "last bit": (lambda path: rewrite(path, DATA[:-1] + bytes([DATA[-1] ^ 128])), {Fault.ALTERED}),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), {Fault.UNREADABLE, Fault.TRUNCATED}),
}


def test_bytes_and_files_are_kept_under_their_digest(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    assert blobs.put_bytes(DATA) == blobs.put_file(tmp_path / "file") == digest_bytes(DATA)
    assert blobs.read(digest_bytes(DATA)) == DATA
    assert [blob.hex for blob in blobs.blobs()] == [digest_bytes(DATA).hex]


def test_a_file_whose_blob_is_there_is_not_read(blobs: BlobStore, tmp_path: Path) -> None:
    digest = digest_bytes(DATA)
    with pytest.raises(FileNotFoundError):
        blobs.put_file(tmp_path / "absent", digest)
    blobs.put_bytes(DATA)
    assert blobs.put_file(tmp_path / "absent", digest) == digest


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("use", ["read", "verify", "copy_out"])
def test_a_damaged_blob_is_never_used_and_can_be_kept_again(
    blobs: BlobStore, folder: CacheFolder, tmp_path: Path, name: str, use: str
) -> None:
    damage, faults = DAMAGES[name]
    digest = blobs.put_bytes(DATA)
    damage(blobs.path_of(digest.hex))
    with pytest.raises(BlobError) as caught:
        getattr(blobs, use)(digest, *([tmp_path / "out"] if use == "copy_out" else []))
    assert caught.value.fault in faults
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert not blobs.path_of(digest.hex).exists()
    assert blobs.put_bytes(DATA) == digest
    assert blobs.read(digest) == DATA
    assert folder.quarantine.exists() == (name != "deleted")


def test_a_cut_blob_is_replaced_when_it_is_kept_again(blobs: BlobStore) -> None:
    digest = blobs.put_bytes(DATA)
    rewrite(blobs.path_of(digest.hex), b"")
    assert blobs.has(digest) is Fault.TRUNCATED
    blobs.put_bytes(DATA)
    assert blobs.has(digest) is None
    assert blobs.read(digest) == DATA


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize("place", ["blob", "list"])
def test_what_is_no_file_is_no_blob_and_gives_way(
    blobs: BlobStore, tmp_path: Path, make: Callable[[Path], None], place: str
) -> None:
    digest = digest_bytes(DATA)
    path = blobs.path_of(digest.hex)
    path.parent.mkdir(parents=True)
    make(path if place == "blob" else path.with_name(f"{path.name}.parts"))
    assert blobs.has(digest) is (Fault.TRUNCATED if place == "blob" else Fault.MISSING)
    with pytest.raises(BlobError):
        blobs.read(digest)
    if not path.exists():
        make(path)
    assert blobs.put_bytes(DATA) == digest
    assert blobs.read(digest) == DATA


def test_where_one_blob_was_damaged_others_are_looked_at_before_they_are_kept(blobs: BlobStore) -> None:
    first, second = blobs.put_bytes(DATA), blobs.put_bytes(DATA[::-1])
    for digest in (first, second):
        rewrite(blobs.path_of(digest.hex), bytes(len(DATA)))
    with pytest.raises(BlobError):
        blobs.read(first)
    assert blobs.put_bytes(DATA[::-1]) == second
    assert blobs.read(second) == DATA[::-1]


def test_the_size_in_a_digest_counts(blobs: BlobStore) -> None:
    digest = blobs.put_bytes(DATA)
    with pytest.raises(BlobError):
        blobs.read(Digest(digest.hex, digest.size + 1))


def test_files_of_other_processes_are_no_blobs(blobs: BlobStore, folder: CacheFolder) -> None:
    digest = blobs.put_bytes(DATA)
    temporary = folder.write_new(b"half", 0o600)
    for name in (temporary.name, "x", f"{digest.hex[2:]}.tmp", digest.hex[2:10]):
        (folder.cas / digest.hex[:2] / name).write_bytes(b"")
    (folder.cas / "stray").write_bytes(b"")
    assert [blob.hex for blob in blobs.blobs()] == [digest.hex]
    for part in temporary.name.split("-"):
        assert temporary.name != part
    assert not re.fullmatch(cas._BLOB_NAME, temporary.name)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["open", "write", "fchmod", "link"])
def test_a_failing_write_leaves_no_part_of_a_blob(
    blobs: BlobStore, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        if call == "link" and code == errno.EACCES:
            # A file system without hard links: renamed instead.
            assert blobs.put_bytes(DATA) == digest_bytes(DATA)
        else:
            with pytest.raises(OSError, match=os.strerror(code)):
                blobs.put_bytes(DATA)
            assert list(blobs.blobs()) == []
    assert [path for path in folder.tmp.iterdir() if path.is_file()] == []


def test_a_full_disk_leaves_no_part_of_a_blob(tiny_disk: Path) -> None:
    blobs = BlobStore(open_folder(tiny_disk / "cache"))
    kept = blobs.put_bytes(b"first" * 1000)
    with pytest.raises(OSError, match="No space left"):
        blobs.put_bytes(os.urandom(2 << 20))
    assert [blob.hex for blob in blobs.blobs()] == [kept.hex]
    assert blobs.read(kept) == b"first" * 1000
    assert list((tiny_disk / "cache" / "v1" / "tmp").iterdir()) == []


def test_copies_are_files_of_their_own_with_the_users_permissions(blobs: BlobStore, tmp_path: Path) -> None:
    digest = blobs.put_bytes(DATA)
    before = os.umask(0o027)
    try:
        plain, program = (blobs.copy_out(digest, tmp_path / "out", is_executable=each) for each in (False, True))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (plain, program)] == [0o640, 0o750]
    plain.write_bytes(b"stripped")
    assert blobs.read(digest) == DATA
    assert plain.stat().st_ino != blobs.path_of(digest.hex).stat().st_ino


def test_where_files_cannot_be_cloned_they_are_copied(
    blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "file").write_bytes(DATA)
    assert blobs.copy_out(blobs.put_file(tmp_path / "file"), tmp_path / "out").read_bytes() == DATA


def test_a_stream_is_kept_only_if_it_has_the_digest(blobs: BlobStore, folder: CacheFolder) -> None:
    blobs.put_stream(io.BytesIO(DATA), digest_bytes(DATA))
    assert blobs.read(digest_bytes(DATA)) == DATA
    for wrong in (digest_bytes(b"other"), Digest(digest_bytes(DATA).hex, 3)):
        with pytest.raises(BlobError):
            blobs.put_stream(io.BytesIO(DATA), wrong)
    assert len(list(blobs.blobs())) == 1
    assert list(folder.tmp.iterdir()) == []


def test_threads_that_keep_the_same_blobs_agree(blobs: BlobStore, folder: CacheFolder) -> None:
    def keep() -> None:
        for number in range(40):
            blobs.put_bytes(b"%d" % number * 500)

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(blobs.blobs())) == 40
    for number in range(40):
        assert blobs.read(digest_bytes(b"%d" % number * 500)) == b"%d" % number * 500
    assert list(folder.tmp.iterdir()) == []


def test_a_blob_that_is_kept_again_counts_as_new(blobs: BlobStore) -> None:
    digest = blobs.put_bytes(DATA)
    os.utime(blobs.path_of(digest.hex), (1, 1))
    blobs.put_bytes(DATA)
    assert next(iter(blobs.blobs())).modified > 1


SECOND, THIRD = MOST_BYTES + 5_000_000, MOST_BYTES + 8_000_000
CUTS = (1000, SECOND, THIRD)


def parted(path: Path, seed: int = 0, head: bytes = b"h" * 1000) -> Path:
    """A file with a head, what is larger than a part may be, and two more pieces, the last by a seed."""
    rest = b"".join(bytes([each]) * size for each, size in ((1, SECOND - 1000), (2, THIRD - SECOND), (seed, 3_000_000)))
    path.write_bytes(head + rest)
    return path


def names_of(blobs: BlobStore, digest: Digest) -> tuple[str, ...]:
    """The parts of a blob."""
    (listed,) = [blob for blob in blobs.blobs() if blob.hex == digest.hex]
    return listed.parts


def test_a_file_in_parts_is_one_blob(blobs: BlobStore, tmp_path: Path) -> None:
    source = parted(tmp_path / "file")
    digest = blobs.put_file(source, cuts=CUTS)
    assert digest == digest_file(source)
    assert len(names_of(blobs, digest)) == 5
    assert not blobs.path_of(digest.hex).exists()
    assert blobs.has(digest) is None
    assert blobs.read(digest) == source.read_bytes()
    blobs.verify(digest)
    assert blobs.copy_out(digest, tmp_path / "out").read_bytes() == source.read_bytes()
    with blobs.as_file(digest) as path:
        assert path.read_bytes() == source.read_bytes()
    assert not path.exists()
    assert blobs.put_file(tmp_path / "absent", digest) == digest
    assert blobs.put_bytes(source.read_bytes()) == digest
    assert not blobs.path_of(digest.hex).exists()


def test_files_share_parts(blobs: BlobStore, tmp_path: Path) -> None:
    first, second = (names_of(blobs, blobs.put_file(parted(tmp_path / "file", seed), cuts=CUTS)) for seed in (5, 6))
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]
    moved = (2000, SECOND + 1000, THIRD + 1000)
    other = names_of(blobs, blobs.put_file(parted(tmp_path / "file", 5, b"H" * 2000), cuts=moved))
    assert other[1:] == first[1:]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        pytest.param(use, name, marks=() if use == "read" or name in ("truncated", "first bit") else pytest.mark.slow)
        for use in ("read", "verify", "copy_out")
        for name in DAMAGES
    ],
)
def test_a_damaged_part_is_never_used_and_can_be_kept_again(
    blobs: BlobStore, tmp_path: Path, name: str, use: str
) -> None:
    damage, faults = DAMAGES[name]
    source = parted(tmp_path / "file")
    digest = blobs.put_file(source, cuts=CUTS)
    part = blobs.path_of(names_of(blobs, digest)[3])
    if name in ("first bit", "last bit"):
        rewrite(part, b"\2" * 2_999_999 + b"\3")
    else:
        damage(part)
    with pytest.raises(BlobError) as caught:
        getattr(blobs, use)(digest, *([tmp_path / "out"] if use == "copy_out" else []))
    assert caught.value.fault in faults
    assert caught.value.digest == digest
    assert not part.exists()
    assert blobs.has(digest) is Fault.MISSING
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "file"]
    assert blobs.put_file(source, cuts=CUTS) == digest
    assert blobs.read(digest) == source.read_bytes()


@pytest.mark.parametrize("use", ["read", "verify"])
def test_a_blob_that_cannot_be_read_is_no_error_of_the_build(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    digest = blobs.put_bytes(DATA)

    def broken(*_arguments: object) -> int:
        raise OSError(errno.EIO, "broken disk")

    with monkeypatch.context() as patch:
        patch.setattr(cas, "_read_all", broken)
        patch.setattr(os, "readv", broken)
        with pytest.raises(BlobError) as caught:
            getattr(blobs, use)(digest)
    assert caught.value.fault is Fault.UNREADABLE


def test_a_blob_is_not_put_away_by_who_has_too_many_files_open(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = blobs.put_bytes(DATA)

    def full(*_arguments: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(BlobError):
            blobs.read(digest)
    assert blobs.read(digest) == DATA


def test_of_a_blob_in_many_parts_few_files_are_open(blobs: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(os.urandom(1_000_000) * 30)
    digest = blobs.put_file(source, cuts=range(1000, 30_000_000, 300_000))
    assert len(names_of(blobs, digest)) > 50
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, before[1]))
    try:
        assert blobs.copy_out(digest, tmp_path / "out").read_bytes() == source.read_bytes()
        blobs.verify(digest)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("text", [b"", b"no list", b"0" * 64 + b" 12\n", b"0" * 64 + b" 12"])
def test_a_damaged_list_of_parts_is_no_blob(blobs: BlobStore, tmp_path: Path, text: bytes) -> None:
    source = parted(tmp_path / "file")
    digest = blobs.put_file(source, cuts=CUTS)
    (listed,) = [blob for blob in blobs.blobs() if blob.parts]
    rewrite(Path(listed.path), text)
    assert blobs.has(digest) in (Fault.MISSING, Fault.TRUNCATED)
    with pytest.raises(BlobError):
        blobs.read(digest)
    assert blobs.put_file(source, cuts=CUTS) == digest
    assert blobs.read(digest) == source.read_bytes()


def test_a_file_that_grows_while_it_is_stored_is_not_kept(
    blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parted(tmp_path / "file")

    def grown(path: Path) -> Digest:
        with open(path, "ab") as file:
            file.write(b"more")
        return digest_file(path)

    monkeypatch.setattr(cas, "digest_file", grown)
    with pytest.raises(OSError, match="was changed while it was stored"):
        blobs.put_file(source, cuts=CUTS)
    assert not [blob for blob in blobs.blobs() if blob.parts]
