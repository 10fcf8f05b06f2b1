"""One request in one run: how its artifact is looked up, made and kept; knows no stage."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.artifact.key import LAYER, NAME, Keyed, Unkeyed, artifact_key
from relaybuild.artifact.outcome import Steps, pack, unpack
from relaybuild.artifact.request import Request
from relaybuild.build.cache.action import Action
from relaybuild.build.cache.hit import DamagedResult, Hit
from relaybuild.build.cache.journal import Looked
from relaybuild.build.cache.outcome import Contents
from relaybuild.build.cache.settings import Mode
from relaybuild.build.cache.store import Cache
from relaybuild.build.files import make_folder
from relaybuild.build.toolchain import Toolchain
from relaybuild.dataclass import dataclass
from relaybuild.errors import RelayBuildError, UserError
from relaybuild.events import Event

if TYPE_CHECKING:
    from relaybuild.build.cxx import CxxCompiler
    from relaybuild.build.head_start import HeadStart
    from relaybuild.ir.module import IRModule
    from relaybuild.stages import Made, Workplace

_WAIT_SECONDS = 600.0
"""How long to wait for another process that makes the same artifact; the wait ends with that process."""


@dataclass(frozen=True)
class Content:
    """An artifact: where its library is, in the cache (`hit`) or at `path`, and what is known of it.

    `is_temporary`: nobody but the artifact needs the folder of `path`. `module` is there where the stages ran.
    """

    header: str
    facts: Mapping[str, Any]
    steps: Steps
    size: int
    hit: Hit | None = None
    path: Path | None = None
    is_temporary: bool = False
    module: IRModule | None = None


@dataclass(frozen=True)
class Job:
    """A request, the cache of its run, and how it is carried out, which does not change what becomes of it.

    `must_hit`: it may be found, but not made. `is_new`: the cache does not know the compiler, so it will hardly be
    found.
    """

    request: Request
    cache: Cache
    toolchain: Toolchain
    jobs: int | None = None
    save_temps: Path | None = None
    on_event: Callable[[Event], None] | None = None
    must_hit: bool = False
    is_new: bool = False

    def content(self) -> Content:
        """The artifact, from the cache or made now and kept there. Raises UserError if it must be there and is not."""
        before = len(self.cache.journal.looked)
        with self._begun() as begun:
            asked = slice(before, len(self.cache.journal.looked))
            key = self._key()
            if isinstance(key, Unkeyed):
                self.cache.bypass(LAYER, NAME, key.reason, slot=self.request.name)
                return self.make(begun)
            return self._found_or_made(key, begun, asked)

    def make(self, begun: HeadStart | None = None) -> Content:
        """Run the stages, and take over what was begun of their work."""
        self._check_may_make()
        from relaybuild import stages

        with _work_folder(self.save_temps) as folder:
            return self._made(stages.make(self.request, self._workplace(folder), begun))

    def program(self) -> IRModule:
        """The request's module after passes and partitioning."""
        from relaybuild import stages

        if not self.has_cache:
            return stages.program(self.request, None, self.configure_folder)
        try:
            return stages.program(self.request, self.cache, self.configure_folder)
        finally:
            self.cache.records.flush()

    @property
    def has_cache(self) -> bool:
        """Whether results are looked up or kept."""
        return self.cache.folder is not None and self.cache.settings.mode is not Mode.OFF

    @property
    def configure_folder(self) -> Path | None:
        """Where what CMake found is kept; None for the user's default folder."""
        return self.cache.settings.folder

    @contextlib.contextmanager
    def _begun(self) -> Iterator[HeadStart | None]:
        """Begin with what all libraries have, where there is no sense in asking the cache for the artifact first."""
        if not (self.is_new and self.has_cache and self.cache.is_written and self.save_temps is None):
            yield None
            return
        import tempfile

        from relaybuild import stages

        with (
            tempfile.TemporaryDirectory(prefix="relaybuild-") as folder,
            stages.begin(self.request, self._workplace(Path(folder))) as head,
        ):
            yield head

    def _workplace(self, folder: Path) -> Workplace:
        from relaybuild import stages

        cache, is_kept = self.cache if self.has_cache else None, self.save_temps is not None
        return stages.Workplace(self.toolchain, cache, folder, self.configure_folder, self.jobs, is_kept, self.on_event)

    def _found_or_made(self, key: Keyed, begun: HeadStart | None, asked: slice) -> Content:
        """The artifact; `asked` are the entries of the journal that come of what was begun."""
        with contextlib.ExitStack() as claims:
            if not claims.enter_context(self.cache.claim(key.action, 0.0)):
                if begun is not None and begun.making:
                    # Others may wait for what was begun.
                    begun.keep()
                    begun, asked = None, slice(0)
                # whoever else asks for the same waits, and then finds it
                claims.enter_context(self.cache.claim(key.action, _WAIT_SECONDS))
            # What another process has found out about the system's files is known only now.
            expected = key.expected(self.cache, self.request.name)
            if (found := self._find(expected)) is not None:
                del self.cache.journal.looked[asked]
                return found
            return self._make_and_keep(key, expected, begun)

    def _key(self) -> Keyed | Unkeyed:
        if not self.has_cache:
            return Unkeyed("no cache")
        if self.save_temps is not None:
            return Unkeyed("the sources are to be kept")
        meanwhile = () if self.must_hit else _early_imports()
        return artifact_key(self.request, self.toolchain, self._cxx, self.cache, self.configure_folder, meanwhile)

    def _cxx(self) -> CxxCompiler | None:
        """The C++ compiler; None if there is none, which is an error only where it is needed."""
        from relaybuild.build.cxx import probe_cxx

        try:
            return probe_cxx(self.toolchain, cache=self.cache)
        except RelayBuildError:
            return None

    def _find(self, action: Action) -> Content | None:
        found = self.cache.lookup(action, slot=self.request.name)
        if not isinstance(found, Hit):
            return None
        try:
            facts, steps = unpack(found.read("summary"))
            return Content(found.read("header").decode(), facts, steps, found.outputs["library"].size, hit=found)
        except DamagedResult:
            return None

    def _make_and_keep(self, key: Keyed, expected: Action, begun: HeadStart | None) -> Content:
        start, namespace = time.perf_counter(), self.cache.settings.namespace
        content = self.make(begun)
        assert content.path is not None
        outputs: dict[str, Contents] = {
            "header": content.header.encode(),
            "library": content.path,
            "summary": pack(content.facts, content.steps),
        }
        seconds = time.perf_counter() - start
        action = key.completed(self.cache, self.request.name)
        self._correct_key(expected.key(namespace), action.key(namespace))
        self.cache.store(action, outputs, slot=self.request.name, seconds=seconds, inputs=key.inputs)
        return content

    def _correct_key(self, looked_up: str, key: str) -> None:
        """Let the journal name the action that was executed, where the one that was looked up knew less of it."""
        looked = self.cache.journal.looked
        for place, event in enumerate(looked):
            if event.key == looked_up and event.reason is not None:
                looked[place] = replace(event, key=key)

    def _made(self, made: Made) -> Content:
        size = made.path.stat().st_size
        is_temporary = self.save_temps is None
        return Content(made.header, made.facts, made.steps, size, None, made.path, is_temporary, made.module)

    def _check_may_make(self) -> None:
        if self.must_hit:
            missed = "; ".join(_missed_text(event) for event in self.cache.journal.looked if event.reason is not None)
            raise UserError(f"not everything was in the cache: {missed}")


def import_stages() -> None:
    """Import what a library is made by, which takes longer than most else in the making of a small one."""
    from relaybuild import stages as stages


def _early_imports() -> Iterator[None]:
    """Import what a library is made by in pieces, between which one may stop: perhaps it is not needed."""
    for name in ("numpy", "onnx", "relaybuild.ir.module", "relaybuild.passes.pipelines", "relaybuild.stages"):
        importlib.import_module(name)
        yield


def _missed_text(event: Looked) -> str:
    reason = event.reason.value if event.reason is not None else ""
    details = [event.detail] if event.detail else [change.component for change in event.changes]
    return f"{event.layer}/{event.name}: {reason}" + (f" ({', '.join(details)})" if details else "")


@contextlib.contextmanager
def _work_folder(save_temps: Path | None) -> Iterator[Path]:
    """The folder given, or a temporary one that is removed where the block fails."""
    if save_temps is not None:
        make_folder(save_temps)
        yield save_temps
        return
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="relaybuild-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
