"""Digests of folders of files that need not be read again while no file's state has changed; knows no file's meaning.

A folder is known by the names, sizes, inodes and times of its files. As with single files, nothing is remembered of a
folder in which something was written within the last seconds.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from pathlib import Path

from relaybuild.build.cache.memo import FileState, Inputs
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher, digest_file

Wanted = Callable[[str], bool]
"""Whether a file or folder of that relative name, with slashes, counts; what is below a folder that does not count does
not either."""

Read = Callable[[str], Digest]
"""What reads a file, where its digest is not remembered."""


@dataclass(frozen=True)
class TreeState:
    """The files of a folder, by relative name, as the file system describes them."""

    root: Path
    wanted: Wanted = field(repr=False, compare=False)
    files: tuple[tuple[str, FileState], ...]

    @classmethod
    def of(cls, root: Path, wanted: Wanted) -> TreeState:
        """The state now; raises OSError."""
        return cls(root, wanted, tuple(sorted(_files(root, wanted))))

    @property
    def changed_ns(self) -> int:
        """When the last change was made, in nanoseconds since the epoch: a time that nobody can set."""
        return max((state.changed_ns for _, state in self.files), default=0)

    def name(self) -> str:
        """What the folder's digest is remembered under."""
        # a name has no NUL, so that no two lists of files have one text
        text = "".join([f"{name}\0{a} {b} {c} {d} {e}\0" for name, (a, b, c, d, e) in self.files])
        return Hasher("tree-state.1").field("files", text).digest().hex

    def digest(self, read: Read = digest_file) -> Digest:
        """The digest of all names and contents, read now; raises OSError."""
        hasher = Hasher("tree.1")
        for name, _ in self.files:
            hasher.field(name, read(f"{self.root}{os.sep}{name}"))
        return hasher.digest()


class TreeInputs(Inputs):
    """The files and folders that a run reads: each is digested once, and can be asked whether it still is the same."""

    @functools.cached_property
    def _trees(self) -> dict[Path, tuple[TreeState, Digest]]:
        return {}

    def tree(self, root: Path, wanted: Wanted, read: Read = digest_file) -> tuple[Digest, TreeState]:
        """The digest of a folder, and the state in which it has it; raises OSError."""
        if root not in self._trees:
            state = TreeState.of(root, wanted)
            self._trees[root] = (state, self._digest(state, read))
        state, digest = self._trees[root]
        return digest, state

    def files(self) -> Iterator[Path]:
        """The files that were digested, each by itself or as one of a folder."""
        yield from map(Path, self)
        for state, _ in self._trees.values():
            yield from (state.root / name for name, _ in state.files)

    def folders(self) -> Iterator[Path]:
        """The folders that were looked into for files, of which there may be more later; raises OSError."""
        for state, _ in self._trees.values():
            yield from (state.root / prefix for prefix, _ in _visited(state.root, state.wanted))

    def changed(self, among: Iterable[str] | None = None) -> list[Path]:
        if among is not None:
            return super().changed(among)
        return [*super().changed(), *(root for root, (state, _) in self._trees.items() if not _is_now(state))]

    def _digest(self, state: TreeState, read: Read) -> Digest:
        now = self._clock()
        is_racy = any(each.is_racy(now) for _, each in state.files)
        memory = None if is_racy else self._memory
        if memory is not None and (known := memory.recall(state.name())) is not None:
            return known
        digest = state.digest(read)
        if memory is not None and _is_now(state):
            memory.remember(state.name(), digest)
        return digest


def _is_now(state: TreeState) -> bool:
    try:
        return TreeState.of(state.root, state.wanted).files == state.files
    except OSError:
        return False


def _files(root: Path, wanted: Wanted) -> Iterator[tuple[str, FileState]]:
    for prefix, entries in _visited(root, wanted):
        for entry in entries:
            if not entry.is_dir():
                found = entry.stat()
                yield (
                    prefix + entry.name,
                    FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns),
                )


def _visited(root: Path, wanted: Wanted) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """The folders of a tree, as what the names of their files begin with, and what is in each of them and counts."""
    prefixes = [""]
    while prefixes:
        prefix = prefixes.pop()
        with os.scandir(f"{root}{os.sep}{prefix}") as entries:
            counted = [entry for entry in entries if wanted(prefix + entry.name)]
        prefixes += [f"{prefix}{entry.name}/" for entry in counted if entry.is_dir()]
        yield prefix, counted
