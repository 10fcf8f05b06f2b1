"""The answer to a lookup: a complete result, verified as it is read, or why there is none; looks nothing up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from relaybuild.build.cache.cas import BlobError, BlobStore
from relaybuild.build.cache.journal import Change, MissReason
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.record import Output, RecordError, Result, read_reference
from relaybuild.build.files import temporary_beside
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest


class DamagedResult(Exception):
    """What was a hit turned out to be damaged when it was read; it counts as a miss now, and its entry is gone."""


@dataclass(frozen=True)
class Miss:
    """There is no result of an action. `changes` say what differs from the last action in its slot."""

    key: str
    reason: MissReason
    detail: str = ""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Hit:
    """A complete result. Whatever is read of it is verified; what turns out damaged raises DamagedResult.

    `is_remote`: it was brought from another machine.
    """

    key: str
    namespace: str
    result: Result
    _blobs: BlobStore = field(repr=False, compare=False)
    _spoil: Callable[[Hit, Exception], DamagedResult] = field(repr=False, compare=False)
    is_remote: bool = False

    @property
    def outputs(self) -> Mapping[str, Digest]:
        """The digests of the outputs, by name."""
        return {output.name: output.digest for output in self.result.outputs}

    def read(self, name: str) -> bytes:
        """The bytes of an output; raises KeyError if there is none of that name, and DamagedResult."""
        output = self._output(name)
        if output.contents is not None:
            return output.contents
        try:
            return self._blobs.read(output.digest)
        except BlobError as error:
            raise self._spoil(self, error) from error

    def read_all(self) -> dict[str, bytes]:
        """The bytes of all outputs, by name; raises DamagedResult."""
        return {output.name: self.read(output.name) for output in self.result.outputs}

    def reference(self, name: str) -> Digest:
        """The digest that an output names; raises KeyError, and DamagedResult if it names none."""
        digest = read_reference(self.read(name))
        if digest is None:
            raise self._spoil(self, RecordError(f"'{name}' names no digest"))
        return digest

    def place(self, targets: Mapping[str, Path], known: Inputs | None = None) -> None:
        """Write outputs to files: all are copied and verified before the first appears under its name, by rename.

        A target that holds the output already, as `known` says (which remembers digests of files), is left alone.
        Raises DamagedResult, and OSError if a file cannot be written; then no target was touched.
        """
        copies: list[tuple[Path, Path]] = []
        try:
            for name, target in targets.items():
                output = self._output(name)
                if known is None or not _holds(known, target, output.digest):
                    copies.append((self._copied(output, target), target))
            while copies:
                temporary, target = copies[-1]
                os.replace(temporary, target)
                copies.pop()
        finally:
            for temporary, _ in copies:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _output(self, name: str) -> Output:
        for output in self.result.outputs:
            if output.name == name:
                return output
        raise KeyError(name)

    def _copied(self, output: Output, target: Path) -> Path:
        if output.contents is not None:
            return _written_beside(target, output.contents, output.is_executable)
        try:
            return self._blobs.copy_out(output.digest, target, is_executable=output.is_executable)
        except BlobError as error:
            raise self._spoil(self, error) from error


def _holds(known: Inputs, path: Path, digest: Digest) -> bool:
    try:
        return path.stat().st_size == digest.size and known.digest_now(path) == digest
    except OSError:
        return False


def _written_beside(target: Path, data: bytes, is_executable: bool) -> Path:
    temporary = temporary_beside(target)
    file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o777 if is_executable else 0o666)
    try:
        with open(file, "wb") as stream:
            stream.write(data)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary
