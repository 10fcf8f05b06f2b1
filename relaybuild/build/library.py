"""Turns C and C++ sources and a blob of weights into one library; does not know what they compute.

A build directory can be used again (`workspace` says what is in it). With a cache, objects and libraries that were made
anywhere before are taken from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from relaybuild.build.cache.store import Cache
from relaybuild.build.cached_build import CachedBuild
from relaybuild.build.cxx import CxxCompiler
from relaybuild.build.files import check_writable, publish
from relaybuild.build.head_start import HeadStart
from relaybuild.build.library_spec import Compilers, unique_units
from relaybuild.build.library_spec import LibrarySpec as LibrarySpec
from relaybuild.build.library_spec import Unit as Unit
from relaybuild.build.library_spec import link_words as link_words
from relaybuild.build.ninja import FinishedEdge
from relaybuild.build.process import tool_environment
from relaybuild.build.relocatable import find_objcopy
from relaybuild.build.step_clock import StepClock
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.weights import WeightBlob as WeightBlob
from relaybuild.build.weights import check_weights
from relaybuild.build.workspace import LINK, OBJECT, OnProgress, Workspace, layer_of, shifted
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError


@dataclass(frozen=True)
class BuildReport:
    """What a build did: steps that ran, and steps whose results were there (in the cache, or up to date in the
    directory), by layer (`object`, `link`).

    `seconds` are wall-clock times of `write` (sources, and what is looked up), `weights`, `object`, `link` and
    `publish`; `size` is the library's, in bytes.
    """

    output: Path
    size: int
    executed: Mapping[str, int]
    cached: Mapping[str, int]
    seconds: Mapping[str, float]


def build_library(
    spec: LibrarySpec,
    toolchain: Toolchain,
    directory: Path,
    output: Path,
    *,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    keep: bool = False,
    cxx: CxxCompiler | None = None,
    cache: Cache | None = None,
    head: HeadStart | None = None,
) -> BuildReport:
    """Compile and link `spec` in `directory` and put the library at `output`, complete or not at all.

    Units in C++ need `cxx`, which then links, too.

    At most `jobs` compilers run at a time; `on_progress(finished, total)` is called after each step that had to run.
    With `keep` the directory stays as it is, for the next build or to be looked at; otherwise what the build put there
    is removed, and the directory too if it is then empty.

    What was begun early, in `head`, is not begun again: its units are among those of `spec`, and it has the same cache.

    With a `cache`, what it has is not made again, and what is made is kept there: objects by their text, headers, flags
    and compiler, libraries by their objects, weights, flags and linker, in whatever directory, for whomever. The bytes
    are those of a build without it. Its journal says what was looked up, and why it was not there. Weights are never
    kept. The caller closes the cache.

    Raises UserError where a file cannot be written (the output is tried first), ToolError with the compiler's output
    where a unit does not compile, UnsupportedError for more weights than a library can hold.
    """
    units = unique_units(spec.units)
    if cxx is None and any(unit.language == "c++" for unit in units):
        raise InternalError(f"library '{spec.name}' has units in C++, but no compiler for them was given")
    check_weights(spec.weights)
    check_writable(output)
    objcopy = find_objcopy(toolchain, tool_environment()) if spec.form.is_relocatable else None
    workspace = Workspace(directory, spec, units, Compilers(toolchain, cxx, objcopy))
    workspace.check_ours()
    begun = _checked(head, workspace)
    clock = StepClock()
    try:
        if cache is not None:
            edges = CachedBuild(cache, workspace, output, jobs, on_progress, keep, clock, begun).run()
        else:
            edges = _build(workspace, output, jobs, on_progress, keep, clock, begun)
    finally:
        if not keep:
            workspace.clean()
    executed = {layer: sum(layer_of(edge) == layer for edge in edges) for layer in (OBJECT, LINK)}
    cached = {layer: number - executed[layer] for layer, number in workspace.steps.items()}
    return BuildReport(output, output.stat().st_size, executed, cached, clock.seconds)


def _build(
    workspace: Workspace,
    output: Path,
    jobs: int | None,
    on_progress: OnProgress | None,
    keep: bool,
    clock: StepClock,
    head: HeadStart,
) -> tuple[FinishedEdge, ...]:
    workspace.write_sources(workspace.units)
    workspace.write_rules([unit for unit in workspace.units if not head.makes(unit)])
    workspace.remove_strangers()
    workspace.write_weights()
    clock.step("write")
    edges: tuple[FinishedEdge, ...] = ()
    if head.left:
        # Where the number of compilers is limited, two runs of ninja would be too many.
        edges = head.finish(workspace) if jobs is not None else ()
        edges += workspace.compile(jobs, shifted(on_progress, earlier=len(edges), later=head.left + 1))
        edges += head.finish(workspace)
        clock.step(OBJECT)
    linked = workspace.make(jobs, shifted(on_progress, earlier=len(edges)))
    clock.step(LINK)
    clock.split_last(LINK, OBJECT, _end_of_objects(linked))
    edges += linked
    workspace.put_in_weights(jobs)
    clock.step("weights")
    publish(workspace.library, output, keep_source=keep)
    clock.step("publish")
    return edges


def _checked(head: HeadStart | None, workspace: Workspace) -> HeadStart:
    """What was begun, nothing by default; raises InternalError where it is for another library."""
    if head is None:
        return HeadStart(workspace, ())
    others = [unit.name for unit in head.units if unit not in workspace.units]
    if others or head.workspace.spec.include_dirs != workspace.spec.include_dirs:
        raise InternalError(f"library '{workspace.spec.name}' has not the units that were begun for it: {others}")
    return head


def _end_of_objects(edges: Iterable[FinishedEdge]) -> float:
    """Objects take until the last of them is finished, the link the rest."""
    return max((edge.seconds for edge in edges if layer_of(edge) == OBJECT), default=0.0)
