"""Carries results from one cache to another in a tar file, and believes nothing in it; knows no layer.

    relaybuild-cache         the version of the layout
    cas/<sha256>             blobs
    ac/<key>                 records without seal (`record.Entry`), after all blobs
    note/<kind>/<name>       notes, of which headers a unit reads for one: they say where to look and are never believed
    relaybuild-cache-end     nothing: a file without it was cut, which a tar file does not tell where a member ends

Members are sorted and have no times and owners: equal entries give equal bytes.
"""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

from relaybuild.build.cache.cas import BlobError, BlobStore
from relaybuild.build.cache.index import MAX_VALUE, IndexFailure
from relaybuild.build.cache.record import TRAVELLING, Entry, RecordError
from relaybuild.build.cache.records import Records
from relaybuild.build.files import write_atomically
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import UserError

_HEAD = "relaybuild-cache"
_END = "relaybuild-cache-end"
_LAYOUT = b"3\n"
_MAX_LAYOUT = 16
_NOTE = "note/"
_MEMBER = re.compile(rf"(cas|ac|{_NOTE}[a-z]+)/([0-9a-f]{{64}})")


@dataclass(frozen=True)
class Transfer:
    """What was carried: entries and blobs, entries that were there already, and why what was refused."""

    entries: int = 0
    blobs: int = 0
    known: int = 0
    refused: tuple[str, ...] = ()


def export_entries(
    records: Records, blobs: BlobStore, namespace: str, target: Path, keys: Collection[str] | None = None
) -> Transfer:
    """Write the complete entries of a namespace, or those of some keys, to a tar file, which appears by rename.

    Notes go along where all entries do. Entries that are damaged are left out and told. Raises UserError if the file
    cannot be written.
    """
    kind = f"ac/{namespace}"
    entries: dict[str, Entry] = {}
    notes: dict[str, bytes] = {}
    needed: dict[str, Digest] = {}
    refused: list[str] = []
    for row in records.rows():
        if row.kind.startswith(TRAVELLING) and keys is None:
            with contextlib.suppress(RecordError):
                notes[f"{_NOTE}{row.kind.removeprefix(TRAVELLING)}/{row.name}"] = records.unsealed(row)
        if row.kind != kind or (keys is not None and row.name not in keys):
            continue
        try:
            entry = Entry.decode(records.unsealed(row))
            found = [output.digest for output in entry.result.outputs if output.contents is None]
            for digest in found:
                blobs.verify(digest)
        except (RecordError, BlobError) as error:
            refused.append(f"{row.name[:16]}: {error}")
            continue
        entries[row.name] = entry
        needed |= {digest.hex: digest for digest in found}
    write_atomically(target, lambda file: _write(file, entries, notes, needed, blobs))
    return Transfer(len(entries), len(needed), 0, tuple(refused))


def import_entries(records: Records, blobs: BlobStore, namespace: str, source: Path) -> Transfer:
    """Take the entries of a namespace from a tar file, each verified: blobs have the digests they claim, records the
    keys, and all blobs of a record are there. An entry that the cache has already stays as it is.

    Raises UserError for a file that cannot be read or is no export, and for one that was cut, once what came before was
    taken; OSError if the cache cannot be written.
    """
    if source.is_dir():
        raise UserError("it is a folder, expected a file that 'export' has written", where=str(source))
    try:
        with tarfile.open(source, "r|*") as tar:
            _check_head(tar, source)
            return _read(tar, records, blobs, namespace, source)
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"is no export of a cache: {error}", where=str(source)) from error
    except OSError as error:
        if error.filename == str(source):
            raise UserError(f"cannot be read: {error.strerror}", where=str(source)) from error
        raise


def _write(
    file: IO[bytes],
    entries: dict[str, Entry],
    notes: dict[str, bytes],
    needed: dict[str, Digest],
    blobs: BlobStore,
) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, _HEAD, io.BytesIO(_LAYOUT), len(_LAYOUT))
        for name in sorted(needed):
            with blobs.as_file(needed[name]) as path, open(path, "rb") as blob:
                _add(tar, f"cas/{name}", blob, needed[name].size)
        for name in sorted(entries):
            data = entries[name].encode()
            _add(tar, f"ac/{name}", io.BytesIO(data), len(data))
        for name in sorted(notes):
            _add(tar, name, io.BytesIO(notes[name]), len(notes[name]))
        _add(tar, _END, io.BytesIO(), 0)


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o444
    tar.addfile(member, content)


def _check_head(tar: tarfile.TarFile, source: Path) -> None:
    head = tar.next()
    content = tar.extractfile(head) if head is not None and head.isreg() and head.name == _HEAD else None
    if content is None:
        raise UserError("is no export of a cache", where=str(source))
    layout = content.read(_MAX_LAYOUT)
    if layout != _LAYOUT:
        raise UserError(
            f"is an export by another release of relaybuild: layout '{layout.decode(errors='replace').strip()}', "
            f"expected '{_LAYOUT.decode().strip()}'",
            where=str(source),
        )


def _read(tar: tarfile.TarFile, records: Records, blobs: BlobStore, namespace: str, source: Path) -> Transfer:
    try:
        return _take_all(tar, records, blobs, namespace)
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"is incomplete, and what came before is imported: {error}", where=str(source)) from error


def _take_all(tar: tarfile.TarFile, records: Records, blobs: BlobStore, namespace: str) -> Transfer:
    """Take all members up to the end. Raises tarfile.TarError and EOFError where there is none."""
    entries = kept = known = 0
    refused: list[str] = []
    while (member := tar.next()) is not None:
        if member.name == _END:
            return Transfer(entries, kept, known, tuple(refused))
        match = _MEMBER.fullmatch(member.name)
        content = tar.extractfile(member) if match is not None and member.isreg() else None
        if match is None or content is None:
            refused.append(f"'{member.name}' has no place in an export")
            continue
        kind, name = match.groups()
        try:
            if kind == "cas":
                blobs.put_stream(content, Digest(name, member.size))
                kept += 1
            elif kind.startswith(_NOTE):
                _take_note(content, member.size, TRAVELLING + kind.removeprefix(_NOTE), name, records)
            elif _take(content, member.size, name, records, blobs, namespace):
                entries += 1
            else:
                known += 1
        except (RecordError, BlobError) as error:
            refused.append(f"{name[:16]}: {error}")
    raise tarfile.ReadError("it has no end")


def _take_note(content: IO[bytes], size: int, kind: str, name: str, records: Records) -> None:
    """Keep a note where there is none. Raises RecordError."""
    if size > MAX_VALUE:
        raise RecordError(f"a note of {size} bytes")
    try:
        records.write(kind, name, content.read(size))
    except IndexFailure as failure:
        raise OSError(str(failure)) from failure


def _take(content: IO[bytes], size: int, key: str, records: Records, blobs: BlobStore, namespace: str) -> bool:
    """Keep a record if it is what it claims; False if there is one already. Raises RecordError and BlobError."""
    if size > MAX_VALUE:
        raise RecordError(f"a record of {size} bytes")
    entry = Entry.decode(content.read(size))
    if not entry.belongs_to(key, namespace):
        raise RecordError(f"not the record of that key in the namespace '{namespace}'")
    for output in entry.result.outputs:
        if output.contents is None and (fault := blobs.has(output.digest)) is not None:
            raise BlobError(output.digest, fault)
    try:
        return records.write(f"ac/{namespace}", key, entry.encode())
    except IndexFailure as failure:
        raise OSError(str(failure)) from failure
