"""Keeps the files of a folder in one file, and makes a folder of them; does not know what is in them.

A folder that is made is complete or not there at all. One that was made before keeps the files that are as they should
be, and loses those that are no longer among them, by a list in the folder of what was put there; whatever else is in it
is nobody's business.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, TypeAlias

from relaybuild.build.files import make_folder, temporary_beside, write_atomically, write_if_changed, writing
from relaybuild.digest import digest_file
from relaybuild.errors import InternalError, UserError

LIST = ".relaybuild-files.json"
"""The list of the files in a folder, by the digests of their contents."""

File: TypeAlias = "bytes | Path"
"""The content of a file, or a file that has it."""


def pack(files: Mapping[str, File], path: Path) -> None:
    """Put files, by their names in a folder, into one; equal files give equal bytes. Raises UserError."""
    with writing(path), tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as bundle:
        for name, content in sorted(files.items()):
            _check_name(name)
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644
            entry.size = len(content) if isinstance(content, bytes) else content.stat().st_size
            with _opened(content) as source:
                bundle.addfile(entry, source)


def unpack(path: Path, folder: Path) -> int:
    """Make a folder of what was packed; the bytes in it. Raises UserError, also for a folder of somebody else's."""
    check_folder(folder)
    with writing(folder), tarfile.open(path, "r:") as bundle:
        members = bundle.getmembers()
        for member in members:
            _check_name(member.name)
        if folder.exists() and any(folder.iterdir()):
            _bring_up_to_date(bundle, members, folder)
        else:
            _make(bundle, members, folder)
    return sum(member.size for member in members)


def check_folder(folder: Path) -> None:
    """Raise UserError where no folder can be made of files, or where one is that somebody else made: before time is
    spent on the files."""
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"'{folder}' is a file, expected the name of a folder to make")
        if not folder.parent.is_dir():
            raise UserError(f"cannot write '{folder}': the folder '{folder.parent}' does not exist; create it")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / LIST).is_file():
            raise UserError(
                f"the folder '{folder}' has files that relaybuild did not put there; choose an empty or a new folder"
            )
        probe = temporary_beside(folder)
        probe.mkdir()
        probe.rmdir()


def _make(bundle: tarfile.TarFile, members: list[tarfile.TarInfo], folder: Path) -> None:
    temporary = temporary_beside(folder)
    try:
        temporary.mkdir()
        for member in members:
            _put(bundle, member, temporary)
        write_if_changed(temporary / LIST, _list_text(_digests(members, temporary)))
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _bring_up_to_date(bundle: tarfile.TarFile, members: list[tarfile.TarInfo], folder: Path) -> None:
    before = _listed(folder)
    # Until all is there, the list names what was and what will be.
    write_if_changed(folder / LIST, _list_text({**dict.fromkeys((member.name for member in members), ""), **before}))
    for member in members:
        _put(bundle, member, folder)
    now = _digests(members, folder)
    for name, digest in before.items():
        if name not in now:
            _remove(folder, name, digest)
    write_if_changed(folder / LIST, _list_text(now))


def _put(bundle: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file, unless it is there."""
    path = folder / member.name
    make_folder(path.parent)
    source = bundle.extractfile(member)
    assert source is not None
    if path.is_file() and path.stat().st_size == member.size and _is_equal(path, source):
        return
    source.seek(0)
    write_atomically(path, lambda file: shutil.copyfileobj(source, file, 1 << 20))


def _is_equal(path: Path, source: IO[bytes]) -> bool:
    with open(path, "rb") as file:
        while True:
            mine, theirs = file.read(1 << 20), source.read(1 << 20)
            if mine != theirs:
                return False
            if not mine:
                return True


def _remove(folder: Path, name: str, digest: str) -> None:
    """Remove a file that was put there, if it is as it was, and folders that are empty then."""
    path = folder / name
    with contextlib.suppress(OSError):
        if digest and digest_file(path).hex != digest:
            return
        path.unlink()
        for parent in PurePosixPath(name).parents:
            if parent.name:
                (folder / parent).rmdir()


def _listed(folder: Path) -> dict[str, str]:
    """The files that were put into a folder; none where the list is none."""
    try:
        found = json.loads((folder / LIST).read_text(encoding="utf-8"))["files"]
        files = {str(name): str(digest) for name, digest in found.items()}
        for name in files:
            _check_name(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InternalError):
        return {}
    return files


def _digests(members: list[tarfile.TarInfo], folder: Path) -> dict[str, str]:
    return {member.name: digest_file(folder / member.name).hex for member in members}


def _list_text(files: Mapping[str, str]) -> str:
    return json.dumps({"made by": "relaybuild", "files": dict(sorted(files.items()))}, indent=1) + "\n"


def _check_name(name: str) -> None:
    """Raise InternalError for a name that leads out of the folder, or is that of the list."""
    parts = name.split("/")
    if name == LIST or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise InternalError(f"'{name}' cannot be the name of a file in a folder")


@contextlib.contextmanager
def _opened(content: File) -> Iterator[BinaryIO]:
    with io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb") as file:
        yield file
