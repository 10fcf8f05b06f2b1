"""The cache's folder: its parts, who may use it, how files appear in it; does not know what is in the files.

v1/cas/ab/cdef…          blobs, named by their SHA-256
v1/cas/ab/cdef….parts    the blobs that such a blob is made of, in its place
v1/index/cache.db        the index, as a database
v1/ac/…                  the index, as files, where a database would not do
v1/tmp/HOST-PID-RANDOM   files that are not complete yet
v1/locks, v1/leases      files that processes hold locks on
v1/runs                  what each run did
v1/quarantine            what was found damaged
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

_VERSION = "v1"
_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n# What relaybuild need not do twice; may be deleted at any time.\n"
)
_MOUNTS = "/proc/self/mountinfo"
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs pvfs2 smb2 smb3 smbfs "
    "vboxsf virtiofs".split()
)


@dataclass(frozen=True)
class CacheFolder:
    """An opened folder. `is_shared`: others of the user's group use it too; `is_writable`: files can be made in it;
    `is_network`: it lies on a file system whose locks and shared memory are not to be relied on."""

    root: Path
    is_shared: bool
    is_writable: bool
    is_network: bool

    @property
    def cas(self) -> Path:
        return self.root / "cas"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def records(self) -> Path:
        return self.root / "ac"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    @property
    def leases(self) -> Path:
        return self.root / "leases"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def file_mode(self) -> int:
        """Permissions of files that are written again, whatever the user's umask is."""
        return 0o664 if self.is_shared else 0o600

    @property
    def blob_mode(self) -> int:
        """Permissions of files that never change."""
        return 0o444 if self.is_shared else 0o400

    def make(self, path: Path) -> None:
        """Make a folder below the root, and those above it, with the permissions of the cache; raises OSError."""
        with contextlib.suppress(FileExistsError):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                self.make(path.parent)
                os.mkdir(path)
            # The umask of the process that comes first must not stick to what others are to write.
            os.chmod(path, 0o2775 if self.is_shared else 0o700)

    def temporary(self) -> Path:
        """A new name in the folder for incomplete files; it never matches a name of anything complete."""
        return self.tmp / f"{host_name()}-{os.getpid()}-{os.urandom(8).hex()}"

    def write_new(self, data: bytes | memoryview, mode: int) -> Path:
        """A complete temporary file; raises OSError, and leaves nothing behind then."""
        path = self.temporary()
        with self.creating(path) as file:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.fchmod(file, mode)
        return path

    @contextlib.contextmanager
    def creating(self, path: Path) -> Iterator[int]:
        """A descriptor for a file that must not be there yet; it is removed again if the block fails."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.make(path.parent)
            file = os.open(path, flags, 0o600)
        try:
            try:
                yield file
            finally:
                os.close(file)
        except BaseException:
            remove(path)
            raise

    def publish(self, temporary: Path, path: Path, *, replace: bool) -> bool:
        """Give a complete file its final name; the temporary name is gone afterwards, in any case.

        Without `replace`, the first writer wins: False if there is such a file already. Raises OSError.
        """
        try:
            return self._published(temporary, path, replace)
        except FileNotFoundError:
            self.make(path.parent)
            return self._published(temporary, path, replace)
        finally:
            remove(temporary)

    @staticmethod
    def _published(temporary: Path, path: Path, replace: bool) -> bool:
        if replace:
            os.replace(temporary, path)
            return True
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except PermissionError:
            # File systems without hard links say so by EPERM.
            if path.exists():
                return False
            os.rename(temporary, path)
        return True

    def put_away(self, path: Path) -> bool:
        """Move what is damaged to where nobody reads it, or remove it; whether it is gone."""
        target = self.quarantine / f"{path.name[:64]}.{os.urandom(4).hex()}"
        try:
            try:
                os.rename(path, target)
            except FileNotFoundError:
                self.make(self.quarantine)
                os.rename(path, target)
        except OSError:
            return remove(path)
        return True


def open_folder(path: Path, *, is_shared: bool = False) -> CacheFolder:
    """Open the cache in the folder `path`, which is made if it is not there; never fails for want of rights or space:
    then the folder is one that cannot be written.

    Raises UserError for a folder of another user, or one that others may write, unless it is shared.
    """
    root = path / _VERSION
    folder = CacheFolder(root, is_shared, is_writable=True, is_network=is_network(path))
    try:
        path.mkdir(mode=0o2775 if is_shared else 0o700, parents=True, exist_ok=True)
        folder.make(root)
    except OSError:
        folder = _read_only(folder)
    for each in (path, root):
        _check_owner(each, is_shared)
    if not os.access(root, os.W_OK | os.X_OK):
        folder = _read_only(folder)
    if folder.is_writable and not (root / "CACHEDIR.TAG").exists():
        with contextlib.suppress(OSError):
            folder.publish(folder.write_new(_TAG, folder.file_mode), root / "CACHEDIR.TAG", replace=False)
    return folder


def has_cache(path: Path) -> bool:
    """Whether there is a cache in a folder; one that may not be looked into counts."""
    try:
        os.stat(path / _VERSION)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def remove(path: str | os.PathLike[str]) -> bool:
    """Remove a file if it is there and may be removed; whether it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def file_system(path: Path, mounts: str = _MOUNTS) -> str:
    """The type of the file system that a path lies on (`ext4`, `nfs4`), empty where the system does not tell."""
    try:
        real = os.path.realpath(path)
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            found = [_mount(line) for line in file]
    except OSError:
        return ""
    # Of mounts at one place the last one is seen.
    above = [(len(place), number, kind) for number, (place, kind) in enumerate(found) if _is_below(real, place)]
    return max(above, default=(0, 0, ""))[2]


def is_network(path: Path, mounts: str = _MOUNTS) -> bool:
    """Whether a path lies on a file system that several machines share, or may."""
    kind = file_system(path, mounts)
    return kind in _NETWORK or kind.startswith("fuse")


def _mount(line: str) -> tuple[str, str]:
    """Where a line of mountinfo mounts, and a file system of which type."""
    before, _, after = line.partition(" - ")
    place = before.split(" ")[4]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(code, character)
    return place, after.split(" ")[0]


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _read_only(folder: CacheFolder) -> CacheFolder:
    return CacheFolder(folder.root, folder.is_shared, False, folder.is_network)


def _check_owner(path: Path, is_shared: bool) -> None:
    try:
        found = path.stat()
    except OSError:
        return
    if is_shared or not hasattr(os, "getuid"):
        return
    if found.st_uid != os.getuid():
        raise UserError(
            f"the cache folder '{path}' belongs to user {found.st_uid}, expected user {os.getuid()}, who runs this: "
            "whoever may write there decides what is built; choose another folder, or mean it by --shared"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(
            f"the cache folder '{path}' can be written by others (mode {stat.S_IMODE(found.st_mode):o}): "
            f"whoever may write there decides what is built; run 'chmod 700 {path}', or mean it by --shared"
        )


def host_name() -> str:
    """This machine's name, as it stands in names of files."""
    name = os.uname().nodename if hasattr(os, "uname") else ""
    return "".join(character if character.isalnum() else "_" for character in name)[:32] or "host"
