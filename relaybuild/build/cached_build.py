"""Builds a library with a cache: looks first, compiles and links what is missing, keeps it; knows no key.

The link is looked up as soon as the digests of all objects are known. If the library is there, no object is placed and
ninja is not started. Objects that are there are plain inputs of the link. Of processes that miss one object, one makes
it, whatever else their libraries have.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.hit import DamagedResult
from relaybuild.build.cache.store import Cache
from relaybuild.build.early_weights import EarlyWeights
from relaybuild.build.files import publish, writing
from relaybuild.build.head_start import HeadStart
from relaybuild.build.library_spec import Unit
from relaybuild.build.link_layer import LinkLayer
from relaybuild.build.moment import Moment
from relaybuild.build.ninja import Durations, FinishedEdge
from relaybuild.build.object_layer import OUTPUT, KnownObject, ObjectLayer
from relaybuild.build.process import tool_environment
from relaybuild.build.step_clock import StepClock
from relaybuild.build.workspace import LIBRARY, OBJECT, OnProgress, Workspace, shifted
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher

_WAIT_SECONDS = 600.0
"""How long to wait for another process that builds the same library; the wait ends with that process."""


@dataclass
class CachedBuild:
    """One build of a library at `output`, with a cache; `head` is what was begun before, and `jobs`, `on_progress` and
    `keep` are as for `build_library`."""

    cache: Cache
    workspace: Workspace
    output: Path
    jobs: int | None
    on_progress: OnProgress | None
    keep: bool
    clock: StepClock
    head: HeadStart

    def __post_init__(self) -> None:
        environ, inputs = tool_environment(), self.cache.inputs()
        self._objects = ObjectLayer(self.cache, self.workspace, inputs, environ)
        self._link = LinkLayer(self.cache, self.workspace, inputs, environ)

    def run(self) -> tuple[FinishedEdge, ...]:
        """Put the library at the output; the steps that ran. Raises UserError and ToolError as `build_library`."""
        with contextlib.ExitStack() as claims:
            begun: tuple[FinishedEdge, ...] = ()
            if not claims.enter_context(self.cache.claim(self._claim(), 0.0)):
                # Others may wait for what was begun, so it does not wait for them.
                begun = self._finish_head()
                claims.enter_context(self.cache.claim(self._claim(), _WAIT_SECONDS))
            # Weights would be one more to work than there may be.
            place = self._link.expected_place() if self.jobs is None else None
            early = claims.enter_context(self.workspace.early_weights(place))
            # What another process has found out about headers is known only now.
            objects = self._look_up()
            self.clock.step("write")
            if self._is_found(objects):
                self._finish_steps(begun)
                return begun
            compiled = begun + self._compile_missing(objects)
            if compiled and self._is_found(objects):
                self._finish_steps(compiled)
                return compiled
            linked = self._link_library(objects, compiled, early)
        return (*compiled, *linked)

    def _look_up(self) -> list[KnownObject]:
        """What is known of all units, in their order."""
        before = {known.unit.name: known for known in self.head.objects}
        rest = self._objects.describe([unit for unit in self.workspace.units if unit.name not in before])
        for known in rest:
            self._objects.look_up(known)
        known_by_name = before | {known.unit.name: known for known in rest}
        return [known_by_name[unit.name] for unit in self.workspace.units]

    def _finish_head(self) -> tuple[FinishedEdge, ...]:
        """Take over what was begun; the steps that ran."""
        if not self.head.making:
            return ()
        self.workspace.write_sources(())
        return self.head.finish(self.workspace)

    def _claim(self) -> Action:
        """What only one process should do at a time: these units with this compiler, whatever their headers are."""
        hasher = Hasher("build.1").field("compilers", self.workspace.compilers.stamp)
        for unit in self.workspace.units:
            hasher.field(unit.file_name, (unit.text, *unit.flags))
        return ActionBuilder(OBJECT, "build").input("units", hasher.digest()).build()

    def _is_found(self, objects: Sequence[KnownObject]) -> bool:
        """Whether all objects are known and the cache had the library, which is at the output then."""
        digests = _digests(objects)
        if len(digests) != len(objects) or not self._link.fetch(digests, self.output):
            return False
        if self.keep:
            self.workspace.write_sources(self.workspace.units)
            self.workspace.remove_strangers()
        return True

    def _compile_missing(self, objects: Sequence[KnownObject]) -> tuple[FinishedEdge, ...]:
        """Make the objects that the cache does not have, and keep them; the steps that ran."""
        workspace = self.workspace
        # All of them: one may include another.
        workspace.write_sources(workspace.units)
        workspace.remove_strangers()
        if self.cache.settings.mode.must_execute and not self.head.making:
            workspace.remove_products()
        self._place(objects)
        self.clock.step("write")
        # They would be more compilers together than there may be.
        edges = self._finish_head() if self.jobs is not None else ()
        begun: list[Unit] = []
        missing = [known for known in objects if known.hit is None and not self.head.makes(known.unit)]
        end = time.monotonic() + _WAIT_SECONDS
        while missing:
            with contextlib.ExitStack() as claims:
                ours = [known for known in missing if self._has_claimed(known, claims)]
                # Another process may have made it between the look and the claim.
                absent = [known for known in ours if not self._is_there_now(known)]
                edges += self._compile(absent, begun, len(edges), len(missing) - len(ours) + self.head.left)
            # Waited for while nothing is claimed here, so that no two processes wait for each other.
            edges += self._finish_head()
            late = [known for known in missing if known not in ours and not self._comes_from_others(known, end)]
            if len(late) == len(missing):
                edges += self._compile(late, begun, len(edges), 0)
                break
            missing = late
        workspace.write_rules(begun)
        return edges + self._finish_head()

    def _has_claimed(self, known: KnownObject, claims: contextlib.ExitStack) -> bool:
        """Whether this process is to make an object: no other one is at it."""
        return known.action is None or claims.enter_context(self.cache.claim(known.action, 0.0))

    def _comes_from_others(self, known: KnownObject, end: float) -> bool:
        """Wait for the process that makes an object, until the clock says `end`; whether it is in its place then."""
        assert known.action is not None
        with self.cache.claim(known.action, max(end - time.monotonic(), 0.0)):
            return self._is_there_now(known)

    def _is_there_now(self, known: KnownObject) -> bool:
        """Whether an object that was missing is in the cache meanwhile, and in its place then."""
        self._objects.look_again(known)
        self._place([known])
        return known.hit is not None

    def _compile(
        self, missing: Sequence[KnownObject], begun: list[Unit], earlier: int, later: int
    ) -> tuple[FinishedEdge, ...]:
        """Compile objects and keep them; `begun` gathers the units that were, `earlier` and `later` count steps."""
        if not missing:
            return ()
        workspace = self.workspace
        begun += [known.unit for known in missing]
        workspace.write_rules(begun)
        with writing(workspace.directory):
            start = Moment.now(workspace.directory)
        keeping = self._objects.keeping(missing, start)

        def keep(edge: FinishedEdge) -> None:
            keeping.keep(edge)
            self.head.advance()

        edges = workspace.compile(self.jobs, shifted(self.on_progress, earlier=earlier, later=later + 1), keep)
        keeping.end()
        return edges

    def _place(self, objects: Sequence[KnownObject]) -> None:
        """Put the objects that were found where the link reads them; damaged ones count as not found."""
        with writing(self.workspace.directory):
            for known in objects:
                if known.hit is not None:
                    try:
                        known.hit.place({OUTPUT: self.workspace.object(known.unit)}, self._objects.inputs)
                    except DamagedResult:
                        known.hit = known.digest = None

    def _link_library(
        self, objects: Sequence[KnownObject], compiled: Sequence[FinishedEdge], early: EarlyWeights | None
    ) -> tuple[FinishedEdge, ...]:
        workspace = self.workspace
        self.clock.step(OBJECT)
        workspace.write_weights()
        edges = workspace.make(self.jobs, shifted(self.on_progress, earlier=len(compiled)))
        self.clock.step("link")
        cuts = workspace.put_in_weights(self.jobs, early)
        self.clock.step("weights")
        if edges:
            with writing(workspace.directory):
                seconds = Durations(workspace.directory).of(LIBRARY)
                self._link.keep(_digests(objects), seconds, cuts)
        publish(workspace.library, self.output, keep_source=self.keep)
        self.clock.step("publish")
        return edges

    def _finish_steps(self, compiled: Sequence[FinishedEdge]) -> None:
        """Where the cache had the library, putting it in its place is all there was to do after the objects."""
        self.clock.step(OBJECT if compiled else "publish")


def _digests(objects: Sequence[KnownObject]) -> Mapping[str, Digest]:
    return {known.unit.name: known.digest for known in objects if known.digest is not None}
