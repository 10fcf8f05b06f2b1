"""What an action made, as a result to be written down, and what became of that; stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.journal import Storing
from relaybuild.build.cache.record import MAX_INLINE, Output, Result, reference
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, digest_bytes, digest_file


@dataclass(frozen=True)
class Parted:
    """A file with parts that others may share, which begin at `cuts` (ascending)."""

    path: Path
    cuts: tuple[int, ...] = ()


Contents: TypeAlias = "bytes | Path | Parted | Digest"
"""What an action made: bytes, a file, or a digest that later actions name."""


@dataclass(frozen=True)
class Stored:
    """What became of a result; the digests of its outputs are there whether or not it was stored."""

    storing: Storing
    result: Result

    @property
    def outputs(self) -> Mapping[str, Digest]:
        """The digests of the outputs, by name."""
        return {output.name: output.digest for output in self.result.outputs}


def file_of(contents: Path | Parted) -> Parted:
    """A file that an action made, in one part unless it says more."""
    return Parted(contents) if isinstance(contents, Path) else contents


def describe(name: str, contents: Contents, read: Callable[[Parted], Digest] | None = None) -> Output:
    """One output of a result, `read` giving the digest of a file; raises OSError for one that cannot be read."""
    if isinstance(contents, (Path, Parted)):
        file = file_of(contents)
        digest = digest_file(file.path) if read is None else read(file)
        return Output(name, digest, bool(file.path.stat().st_mode & 0o100))
    data = reference(contents) if isinstance(contents, Digest) else contents
    return Output(name, digest_bytes(data), contents=data if len(data) <= MAX_INLINE else None)


def problem_of(action: Action, result: Result) -> str:
    """What keeps a result from being stored, in a sentence; empty if nothing does."""
    names = tuple(output.name for output in result.outputs)
    if action.outputs and names != action.outputs:
        return f"the outputs are {', '.join(names)}, declared are {', '.join(action.outputs)}"
    # bytes may be none; a file without any is what a tool leaves that failed without saying so
    empty = [output.name for output in result.outputs if output.digest.size == 0 and output.contents is None]
    return f"the file '{empty[0]}' is empty" if empty else ""


def conflict_of(first: Result, second: Result) -> str:
    """How two results of one action differ, in a sentence."""
    before = {output.name: output.digest for output in first.outputs}
    differing = [output.name for output in second.outputs if before.get(output.name) != output.digest]
    return f"equal inputs gave another '{differing[0]}'" if differing else "equal inputs gave fewer outputs"
