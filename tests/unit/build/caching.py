"""What the tests of builds with a cache share: a small library with headers, and builds of it; also a program.

As a program it builds that library in its own process: `python caching.py CACHE FOLDER [--wait]` prints as JSON what
was executed and cached, and the digest of the library.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relaybuild.build.cache.journal import Journal, Looked
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import open_cache
from relaybuild.build.cxx import CxxCompiler
from relaybuild.build.head_start import head_start
from relaybuild.build.library import BuildReport, LibrarySpec, Unit, WeightBlob, build_library
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.digest import digest_bytes, digest_file

EXPORT = '__attribute__((visibility("default")))'
ADD = Unit("rb_add", '#include "add.h"\nint rb_add(int a, int b) { return a + b + BIAS; }\n', ("-O3",))
MUL = Unit("rb_mul", '#include <string.h>\n#include "mul.h"\nint rb_mul(int a, int b) { return SCALE * a * b; }\n')
MAIN = Unit(
    "main",
    "int rb_add(int a, int b);\nint rb_mul(int a, int b);\nextern const unsigned char rb_weights[];\n"
    f"{EXPORT} int compute(int a, int b) {{ return rb_add(rb_mul(a, b), rb_weights[1]); }}\n",
)
WEIGHTS = WeightBlob.from_bytes(bytes(range(100)), digest_bytes(bytes(range(100))).hex)


def write_headers(folder: Path) -> Path:
    """The headers of the small library: `common.h` is included by both, `add.h` and `mul.h` by one unit each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "common.h").write_text("#define ZERO 0\n", encoding="utf-8")
    (folder / "add.h").write_text('#include "common.h"\n#define BIAS ZERO\n', encoding="utf-8")
    (folder / "mul.h").write_text('#include "common.h"\n#define SCALE (ZERO + 1)\n', encoding="utf-8")
    return folder


@dataclass
class Site:
    """A place to build in: a cache, headers, and a compiler."""

    folder: Path
    toolchain: Toolchain
    cache: Path
    journal: Journal = field(default_factory=Journal)

    @property
    def include(self) -> Path:
        return self.folder / "include"

    def spec(self, *units: Unit, weights: WeightBlob | None = WEIGHTS) -> LibrarySpec:
        return LibrarySpec("demo", units or (ADD, MUL, MAIN), (self.include,), weights)

    def build(
        self,
        spec: LibrarySpec | None = None,
        *,
        name: str = "work",
        toolchain: Toolchain | None = None,
        cxx: CxxCompiler | None = None,
        mode: Mode = Mode.READ_WRITE,
        jobs: int | None = None,
        keep: bool = False,
        head: Sequence[Unit] = (),
    ) -> BuildReport:
        """Build in the folder `name`, to the library `<name>.so`; the journal is left in `journal`.

        The units in `head` are begun before the build.
        """
        spec = spec or self.spec()
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(open_cache(CacheSettings(self.cache, mode)))
            self.journal = cache.journal
            early = replace(spec, units=tuple(head), weights=None)
            folder = self.folder / f"{name}-head"
            begin = head_start(early, toolchain or self.toolchain, folder, jobs=jobs, cache=cache)
            return build_library(
                spec,
                toolchain or self.toolchain,
                self.folder / name,
                self.library(name),
                jobs=jobs,
                keep=keep,
                cxx=cxx,
                cache=cache,
                head=stack.enter_context(begin) if head else None,
            )

    def library(self, name: str = "work") -> Path:
        return self.folder / f"{name}.so"

    def executed(self) -> list[str]:
        """What the last build executed, by name."""
        return sorted(event.name for event in self.journal.executed)

    def misses(self) -> dict[str, Looked]:
        """What the last build missed, by name."""
        return {event.name: event for event in self.journal.looked if event.reason is not None}

    def changes(self, name: str) -> list[str]:
        """The components that made the last build miss something."""
        return [change.component for change in self.misses()[name].changes]


@contextlib.contextmanager
def no_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every start of a process fail."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a process was started")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        yield


def with_command(toolchain: Toolchain, *words: str) -> Toolchain:
    """The same compiler, called with more words; its digest stays."""
    return replace(toolchain, command=(*toolchain.command, *words))


def main(cache: str, folder: str, *options: str) -> None:
    site = Site(Path(folder), probe(), Path(cache))
    if "--wait" in options:
        print("ready", flush=True)
        sys.stdin.readline()
    report = site.build()
    library = digest_file(report.output).hex
    print(json.dumps({"executed": report.executed, "cached": report.cached, "library": library}))


if __name__ == "__main__":
    main(*sys.argv[1:])
