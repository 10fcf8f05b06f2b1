"""Compiles modules that are text into libraries of packed functions; knows neither models nor backends."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from relaybuild.build.cxx import probe_cxx
from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.toolchain import probe
from relaybuild.runtime.csource import CSourceModule
from relaybuild.runtime.sources import cxx_sources, include_dir, packed_sources


def export_csource(
    module: CSourceModule,
    path: Path,
    *,
    cc: str | None = None,
    flags: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    link_files: Sequence[str] = (),
) -> None:
    """Put a library of a module's text and what packed functions need at `path`, complete or not at all.

    `flags` come behind those for kernels. Raises UserError where the file cannot be written, ToolError where the text
    does not compile or needs what no library has.
    """
    toolchain = probe(cc)
    own = Unit("module", module.code, (*toolchain.kernel_cflags, *flags), module.language, tuple(include_dirs))
    is_cxx = module.language == "c++"
    shared = [Unit(source.stem, source.read_text(encoding="utf-8")) for source in packed_sources()]
    if is_cxx:
        shared += [Unit(source.stem, source.read_text(encoding="utf-8"), language="c++") for source in cxx_sources()]
    spec = LibrarySpec(path.stem, (own, *shared), (include_dir(),), link_files=tuple(link_files))
    cxx = probe_cxx(toolchain) if is_cxx else None
    with tempfile.TemporaryDirectory(prefix="relaybuild-") as folder:
        build_library(spec, toolchain, Path(folder) / "build", path, cxx=cxx)
