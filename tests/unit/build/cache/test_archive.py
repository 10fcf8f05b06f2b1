"""Entries carried in a tar file arrive whole or are refused, and equal entries give equal files."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relaybuild.build.cache.archive import Transfer, export_entries, import_entries
from relaybuild.build.cache.hit import Hit
from relaybuild.build.cache.outcome import Parted
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.notes import Notes
from relaybuild.digest import digest_bytes
from relaybuild.errors import UserError

from .conftest import action

LARGE = bytes(range(256)) * 20
OUTPUTS = {"large": LARGE, "small": b"small"}


def exported(cache: Cache, target: Path, **options: object) -> Transfer:
    return export_entries(cache.records, cache.blobs, "main", target, **options)  # type: ignore[arg-type]


def imported(cache: Cache, source: Path, namespace: str = "main") -> Transfer:
    return import_entries(cache.records, cache.blobs, namespace, source)


@pytest.fixture
def archive(cache: Cache, tmp_path: Path) -> Path:
    for number in (b"1", b"2"):
        cache.store(action(x=number), OUTPUTS)
    exported(cache, tmp_path / "a.tar")
    return tmp_path / "a.tar"


@pytest.fixture
def other(tmp_path: Path) -> Cache:
    return open_cache(CacheSettings(tmp_path / "other"))


def test_entries_arrive(archive: Path, other: Cache) -> None:
    assert imported(other, archive) == Transfer(2, 1, 0, ())
    assert imported(other, archive) == Transfer(0, 1, 2, ())
    found = other.lookup(action(x=b"1"))
    assert isinstance(found, Hit)
    assert found.read_all() == OUTPUTS


def test_a_blob_in_parts_travels_as_one(cache: Cache, other: Cache, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"h" * 10 + b"s" * 1_000_000)
    cache.store(action(x=b"1"), {"out": Parted(file, (10,))})
    assert any(blob.parts for blob in cache.blobs.blobs())
    other.store(action(x=b"1"), {"out": file})
    assert not any(blob.parts for blob in other.blobs.blobs())
    exported(cache, tmp_path / "a.tar")
    third = open_cache(CacheSettings(tmp_path / "third"))
    assert imported(third, tmp_path / "a.tar") == Transfer(1, 1, 0, ())
    found = third.lookup(action(x=b"1"))
    assert isinstance(found, Hit)
    assert found.read("out") == file.read_bytes()


def test_equal_entries_give_equal_bytes(archive: Path, cache: Cache, other: Cache, tmp_path: Path) -> None:
    imported(other, archive)
    exported(other, tmp_path / "b.tar")
    assert (tmp_path / "b.tar").read_bytes() == archive.read_bytes()


def test_notes_that_travel_are_carried_and_stay_what_they_are(cache: Cache, other: Cache, tmp_path: Path) -> None:
    name = "ab" * 32
    for each, travels in ((cache, True), (cache, False), (other, False)):
        Notes(each).write("fact", name, b"travels" if travels else b"stays", travels=travels)
    exported(cache, tmp_path / "a.tar")
    assert imported(other, tmp_path / "a.tar").refused == ()
    assert Notes(other).read("fact", name, travels=True) == b"travels"
    assert Notes(other).read("fact", name) == b"stays"


@pytest.mark.parametrize("kind", ["slot", "headers", "note.fact", "note/../ac", "note/ac/main", "ac/main"])
def test_an_export_brings_no_other_records(other: Cache, tmp_path: Path, kind: str) -> None:
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as target:
        members = {"relaybuild-cache": b"3\n", f"{kind}/{'ab' * 32}": b"believe me", "relaybuild-cache-end": b""}
        for member, data in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            target.addfile(info, io.BytesIO(data))
    assert len(imported(other, evil).refused) == 1
    assert list(other.records.rows()) == []


def test_chosen_entries_are_carried(archive: Path, cache: Cache, tmp_path: Path) -> None:
    key = action(x=b"2").key("main")
    assert exported(cache, tmp_path / "b.tar", keys=[key]) == Transfer(1, 1, 0, ())
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getnames() == [
            "relaybuild-cache",
            f"cas/{digest_bytes(LARGE).hex}",
            f"ac/{key}",
            "relaybuild-cache-end",
        ]


def test_a_secret_is_not_carried(tmp_path: Path, other: Cache) -> None:
    with open_cache(CacheSettings(tmp_path / "sealed", secret=b"secret")) as sealed:
        sealed.store(action(x=b"1"), OUTPUTS)
        assert exported(sealed, tmp_path / "a.tar").entries == 1
    assert b"secret" not in (tmp_path / "a.tar").read_bytes()
    assert imported(other, tmp_path / "a.tar").entries == 1


def test_damaged_entries_are_left_out_and_told(cache: Cache, tmp_path: Path) -> None:
    cache.store(action(x=b"1"), OUTPUTS)
    cache.store(action(x=b"2"), {"small": b"small"})
    cache.blobs.path_of(digest_bytes(LARGE).hex).unlink()
    done = exported(cache, tmp_path / "a.tar")
    assert (done.entries, done.blobs, len(done.refused)) == (1, 0, 1)
    assert done.refused[0].endswith("is missing")


Change = Callable[[str, bytes], "tuple[str, bytes] | None"]
CHANGES: dict[str, tuple[Change, int]] = {
    "an altered blob": (lambda name, data: (name, data[:-1] + b"x") if name.startswith("cas") else (name, data), 3),
    "a cut blob": (lambda name, data: (name, data[:-1]) if name.startswith("cas") else (name, data), 3),
    "no blob": (lambda name, data: None if name.startswith("cas") else (name, data), 2),
    "an altered record": (lambda name, data: (name, data[:-1] + b"x") if name.startswith("ac") else (name, data), 2),
    "another key": (lambda name, data: (f"ac/{'0' * 64}", data) if name.startswith("ac") else (name, data), 2),
    "a path outside": (lambda name, data: ("../../evil", data) if name.startswith("ac") else (name, data), 2),
    "an absolute path": (lambda name, data: ("/tmp/evil", data) if name.startswith("ac") else (name, data), 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_on_the_way_is_refused(archive: Path, other: Cache, tmp_path: Path, name: str) -> None:
    change, refused = CHANGES[name]
    evil = tmp_path / "evil.tar"
    with tarfile.open(archive) as source, tarfile.open(evil, "w") as target:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            if (changed := change(member.name, content.read())) is not None:
                info = tarfile.TarInfo(changed[0])
                info.size = len(changed[1])
                target.addfile(info, io.BytesIO(changed[1]))
    done = imported(other, evil)
    assert (done.entries, len(done.refused)) == (0, refused)
    assert not isinstance(other.lookup(action(x=b"1")), Hit)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "cache", "evil.tar", "other"]


def test_links_and_folders_are_refused(archive: Path, other: Cache, tmp_path: Path) -> None:
    evil = tmp_path / "evil.tar"
    with tarfile.open(archive) as source, tarfile.open(evil, "w") as target:
        head = source.next()
        assert head is not None
        target.addfile(head, source.extractfile(head))
        for kind, name in ((tarfile.SYMTYPE, f"cas/{'1' * 64}"), (tarfile.DIRTYPE, f"ac/{'2' * 64}")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            target.addfile(member)
        target.addfile(tarfile.TarInfo("relaybuild-cache-end"))
    assert len(imported(other, evil).refused) == 2
    assert list(other.blobs.blobs()) == []


def test_entries_of_another_namespace_are_refused(archive: Path, settings: CacheSettings, tmp_path: Path) -> None:
    with open_cache(replace(settings, folder=tmp_path / "other", namespace="release")) as other:
        done = imported(other, archive, "release")
        assert (done.entries, len(done.refused)) == (0, 2)
        assert "namespace 'release'" in done.refused[0]


@pytest.mark.parametrize("content", [b"", b"not a tar file" * 100, bytes(10240)])
def test_what_is_no_export_is_the_users_mistake(other: Cache, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.tar: is no export of a cache"):
        imported(other, tmp_path / "x.tar")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        imported(other, tmp_path / "absent.tar")


def test_an_export_that_was_cut_is_told(archive: Path, other: Cache, tmp_path: Path) -> None:
    data = archive.read_bytes()
    with tarfile.open(archive) as tar:
        offsets = [member.offset for member in tar][1:]
    cuts = {cut for offset in offsets for cut in (offset, offset + 100)} | {offsets[0] + 600, offsets[1] + 512}
    for cut in sorted(cuts):
        (tmp_path / "cut.tar").write_bytes(data[:cut])
        with pytest.raises(UserError, match=r"cut\.tar: is incomplete, and what came before is imported: "):
            imported(other, tmp_path / "cut.tar")
        assert len(list(other.records.rows())) == sum(cut >= offset for offset in offsets[2:]), cut
    assert isinstance(other.lookup(action(x=b"1")), Hit)


def test_a_compressed_export_that_was_cut_is_told(archive: Path, other: Cache, tmp_path: Path) -> None:
    data = gzip.compress(archive.read_bytes())
    (tmp_path / "a.tar.gz").write_bytes(data)
    assert imported(other, tmp_path / "a.tar.gz").entries == 2
    (tmp_path / "a.tar.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="is incomplete, and what came before is imported"):
        imported(other, tmp_path / "a.tar.gz")


def test_an_export_of_another_release_is_told(other: Cache, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as target:
        info = tarfile.TarInfo("relaybuild-cache")
        info.size = 2
        target.addfile(info, io.BytesIO(b"2\n"))
    with pytest.raises(UserError, match="by another release of relaybuild: layout '2', expected '3'"):
        imported(other, tmp_path / "a.tar")


def test_an_export_appears_whole_or_not_at_all(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        exported(cache, tmp_path / "absent" / "a.tar")
    (tmp_path / "a.tar").write_text("old")
    assert exported(cache, tmp_path / "a.tar").entries == 0
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == ["relaybuild-cache", "relaybuild-cache-end"]
