"""Compiles some units of a library while the others are still being written; knows no key, and not what they compute.

The units are compiled in a directory of their own. A build of the library takes their objects over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from relaybuild.build.cache.store import Cache
from relaybuild.build.files import writing
from relaybuild.build.library_spec import Compilers, LibrarySpec, Unit, unique_units
from relaybuild.build.moment import Moment
from relaybuild.build.ninja import FinishedEdge, RunningNinja
from relaybuild.build.object_layer import Keeping, KnownObject, ObjectLayer
from relaybuild.build.process import tool_environment
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.workspace import Workspace
from relaybuild.dataclass import dataclass


@dataclass
class HeadStart:
    """Units that were begun early: those in `making` are being compiled.

    With a cache, `objects` says what is known of all of them; those that it has, and those that another process makes,
    are not compiled here.
    """

    workspace: Workspace
    making: Sequence[Unit]
    objects: Sequence[KnownObject] = ()
    _layer: ObjectLayer | None = None
    _running: RunningNinja | None = None
    _claims: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _keeping: Keeping | None = None

    @property
    def units(self) -> Sequence[Unit]:
        """All of them, in the order given."""
        return self.workspace.units

    @property
    def left(self) -> int:
        """How many are still to be taken over."""
        return len(self.making) if self._running is not None else 0

    def makes(self, unit: Unit) -> bool:
        """Whether the object of a unit comes from here."""
        return any(unit.name == made.name for made in self.making)

    def begin(self, jobs: int) -> None:
        """Start the compilers, at most `jobs` at a time; raises UserError where a file cannot be written."""
        if not self.making:
            return
        self.workspace.write_sources(self.workspace.units)
        self.workspace.write_rules(self.making)
        if self._layer is not None:
            with writing(self.workspace.directory):
                start = Moment.now(self.workspace.directory)
            self._keeping = self._layer.keeping([known for known in self.objects if self.makes(known.unit)], start)
        self._running = self.workspace.start_compiling(jobs)

    def advance(self) -> None:
        """Keep what the compilers have made by now; raises UserError."""
        if self._running is not None and self._keeping is not None:
            self._running.advance(self._keeping.keep)

    def keep(self) -> tuple[FinishedEdge, ...]:
        """Wait for the compilers and keep what they made, for whoever waits for that; the steps that ran.

        Raises UserError and ToolError as `build_library`.
        """
        if self._running is None:
            return ()
        running, self._running = self._running, None
        edges = self.workspace.finish(running, None, None if self._keeping is None else self._keeping.keep)
        if self._keeping is not None:
            self._keeping.end()
        self._claims.close()
        return edges

    def finish(self, into: Workspace) -> tuple[FinishedEdge, ...]:
        """`keep`, and move what was made to where the build `into` has its objects.

        Returns the steps that ran, none the second time. Raises as `keep`.
        """
        if self._running is None:
            return ()
        edges = self.keep()
        with writing(into.directory):
            for unit in self.making:
                os.replace(self.workspace.object(unit), into.object(unit))
        return edges

    def stop(self) -> None:
        """End what still runs, and remove the directory."""
        if self._running is not None:
            self._running.stop()
            self._running = None
        self._claims.close()
        self.workspace.clean()


@contextlib.contextmanager
def head_start(
    spec: LibrarySpec, toolchain: Toolchain, directory: Path, *, jobs: int | None = None, cache: Cache | None = None
) -> Iterator[HeadStart]:
    """Begin to compile the units of `spec`, all in C, in `directory`; what was not finished ends with the block.

    At most `jobs` compilers run (default: as many as there are processors, for in the end the caller waits for them).
    With a cache, what it has is not compiled. Raises UserError where a file cannot be written, ToolError where ninja
    does not start.
    """
    units = unique_units(spec.units)
    workspace = Workspace(directory, spec, units, Compilers(toolchain))
    workspace.check_ours()
    start = HeadStart(workspace, units) if cache is None else _looked_up(cache, workspace)
    try:
        start.begin(jobs or os.cpu_count() or 1)
        yield start
    finally:
        start.stop()


def _looked_up(cache: Cache, workspace: Workspace) -> HeadStart:
    """What the cache lacks and no other process is making is to be made, and claimed until it is."""
    layer = ObjectLayer(cache, workspace, cache.inputs(), tool_environment())
    objects, claims, making = layer.describe(workspace.units), contextlib.ExitStack(), []
    for known in objects:
        layer.look_up(known)
        if known.hit is None and (known.action is None or claims.enter_context(cache.claim(known.action, 0.0))):
            layer.look_again(known)
            if known.hit is None:
                making.append(known.unit)
    return HeadStart(workspace, making, objects, layer, _claims=claims)
