"""Objects in the cache: finds them by source, headers, flags and compiler, and keeps new ones; compiles nothing.

Which headers a unit reads is known only after it was compiled. A note says which they were the last time; the key holds
their contents. If a note is wrong, the key is one that nothing was ever stored under.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.hit import Hit
from relaybuild.build.cache.journal import Executed, Storing
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.store import Cache
from relaybuild.build.cache.wire import WireError
from relaybuild.build.files import writing
from relaybuild.build.flags import objection_to_flags
from relaybuild.build.headers import Existence, HeaderList, SearchPath, asked_headers, folders_in, objection_to_text
from relaybuild.build.library_spec import Unit
from relaybuild.build.moment import Moment
from relaybuild.build.ninja import Durations, FinishedEdge
from relaybuild.build.notes import Notes
from relaybuild.build.variables import invalidating
from relaybuild.build.workspace import OBJECT, Workspace, unit_file_of
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher, digest_bytes, digest_file

OUTPUT = "object"
"""The name of the one output."""

_NOTE = "headers"


@dataclass
class KnownObject:
    """What is known of a unit's object: the action that makes it and its result, or why it was not even looked up."""

    unit: Unit
    action: Action | None = None
    hit: Hit | None = None
    objection: str = ""
    digest: Digest | None = None


@dataclass(frozen=True)
class _Read:
    """What a list of headers stands for now: digests by name, files in earlier places by name and by path,
    answers to what is asked."""

    digests: Mapping[str, Digest]
    shadows: tuple[str, ...]
    shadow_paths: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...]]


@dataclass
class ObjectLayer:
    """The objects of one build in a cache."""

    cache: Cache
    workspace: Workspace
    inputs: Inputs
    environ: Mapping[str, str]
    _exists: Existence = field(default_factory=Existence)
    _texts: dict[tuple[str, bool], tuple[str, frozenset[str]]] = field(default_factory=dict)
    _actions: dict[tuple[Unit, HeaderList], Action] = field(default_factory=dict)
    _read: dict[tuple[SearchPath, HeaderList], _Read] = field(default_factory=dict)
    _searches: dict[tuple[object, ...], SearchPath] = field(default_factory=dict)
    _digests: dict[str, Digest | None] = field(default_factory=dict)
    _objections: dict[Unit, str] = field(default_factory=dict)
    _note_names: dict[Unit, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._notes = Notes(self.cache)
        self._variables = invalidating(self.environ)

    def describe(self, units: Sequence[Unit]) -> list[KnownObject]:
        """Units with the actions that would make their objects; nothing is looked up yet."""
        self._notes.fetch(_NOTE, [self._note_name(unit) for unit in units if not self._objection(unit)])
        known = [self._described(unit) for unit in units]
        self.cache.fetch([each.action for each in known if each.action is not None])
        return known

    def look_up(self, known: KnownObject) -> None:
        """Ask the cache for an object."""
        unit = known.unit
        if known.action is None:
            self.cache.bypass(OBJECT, unit.file_name, known.objection, slot=self._slot(unit))
            return
        found = self.cache.lookup(known.action, slot=self._slot(unit))
        if isinstance(found, Hit):
            known.hit, known.digest = found, found.outputs[OUTPUT]

    def look_again(self, known: KnownObject) -> None:
        """Ask once more for an object that was missing: another process may have made it, and told what it read.

        The journal counts one answer, the last.
        """
        again = self._described(known.unit)
        if again.action is None or known.action is None or self.cache.settings.mode.must_execute:
            return
        self.look_up(again)
        looked, slot = self.cache.journal.looked, self._slot(known.unit)
        *_, first, last = (event for event in looked if event.layer == OBJECT and event.slot == slot)
        looked.remove(first if again.hit is not None else last)
        known.hit, known.digest = again.hit, again.digest

    def keeping(self, missing: Sequence[KnownObject], start: Moment) -> Keeping:
        """What stores these objects while they are compiled, from `start` on."""
        return Keeping(self, missing, start, frozenset(self.inputs))

    def keep(self, known: KnownObject, start: Moment, known_before: frozenset[str], seconds: float) -> None:
        """Store an object that was compiled since `start`, and note what the compiler read; it took so many seconds.

        Nothing is stored where a header was changed meanwhile, or the object depends on more than the headers.
        `known_before` are the headers whose digests were known at the start. Raises OSError where the object cannot be
        read.
        """
        unit, path = known.unit, self.workspace.object(known.unit)
        dependencies = self.workspace.dependencies(unit, start)
        search = self._search(unit)
        paths, objection = self._paths(unit, dependencies)
        headers = self._list(unit, search, paths, objection or self._objection(unit))
        action = self._action(unit, headers)
        if headers.objection:
            self._write_notes(unit, headers)
            self._count(known, seconds, Storing.BYPASSED, headers.objection)
        elif self._is_racy(search, headers, paths, start, known_before):
            self._count(known, seconds, Storing.RACY_INPUT, "a header was changed while it was in use")
        else:
            self._write_notes(unit, headers)
            self._correct_key(known, action)
            stored = self.cache.store(action, {OUTPUT: path}, slot=self._slot(unit), seconds=seconds)
            known.digest = stored.outputs[OUTPUT]
            return
        known.digest = digest_file(path)

    def _described(self, unit: Unit) -> KnownObject:
        headers = self._noted(unit)
        if objection := self._objection(unit) or headers.objection:
            return KnownObject(unit, objection=objection)
        return KnownObject(unit, self._action(unit, headers))

    def _objection(self, unit: Unit) -> str:
        """Why a unit's object cannot be looked up, whatever its headers are."""
        if unit not in self._objections:
            found = self.workspace.compilers.of(unit).objection or objection_to_text(unit.text)
            self._objections[unit] = found or objection_to_flags(self._arguments(unit))
        return self._objections[unit]

    def _action(self, unit: Unit, headers: HeaderList) -> Action:
        """The action that makes an object, if the compiler reads these headers; those that are gone are left out."""
        key = (unit, headers)
        if key not in self._actions:
            self._actions[key] = self._built(unit, headers)
        return self._actions[key]

    def _built(self, unit: Unit, headers: HeaderList) -> Action:
        read = self._read_now(self._search(unit), headers)
        builder = ActionBuilder(OBJECT, unit.file_name).output(OUTPUT)
        builder.input("in/source", digest_bytes(unit.text.encode()))
        builder.input("toolchain/compiler", self.workspace.compilers.of(unit).digest)
        builder.option("arguments", self._arguments(unit))
        for name, digest in read.digests.items():
            builder.input(name, digest)
        if read.shadows:
            builder.option("shadows", read.shadows)
        if read.answers:
            builder.option("asked", dict(read.answers))
        for name, value in self._variables.items():
            builder.environment(name, value)
        return builder.build()

    def _arguments(self, unit: Unit) -> tuple[str, ...]:
        compiler = self.workspace.compilers.of(unit)
        return (*compiler.compiler_command[1:], *compiler.cflags, *unit.flags)

    def _search(self, unit: Unit) -> SearchPath:
        """Where the unit's headers are looked for; most units share it."""
        key = (unit.language, unit.include_dirs, unit.flags)
        if key not in self._searches:
            compiler, spec = self.workspace.compilers.of(unit), self.workspace.spec
            others = (*folders_in(unit.flags, str(self.workspace.directory)), *compiler.include_dirs)
            self._searches[key] = SearchPath.of((*spec.include_dirs, *unit.include_dirs), others)
        return self._searches[key]

    def _read_now(self, search: SearchPath, headers: HeaderList) -> _Read:
        """What a list stands for; units with equal lists share it."""
        key = (search, headers)
        if key not in self._read:
            found = {name: path for name in headers.names if (path := search.path_of(name)) is not None}
            digests = {name: digest for name, path in found.items() if (digest := self._digest(path)) is not None}
            paths = [found[name] for name in digests]
            there = tuple(search.shadows(paths, self._exists))
            shadows = tuple(sorted(map(search.name_of, there)))
            self._read[key] = _Read(digests, shadows, there, search.answers(headers.asked, paths, self._exists))
        return self._read[key]

    def _digest(self, path: str) -> Digest | None:
        if path not in self._digests:
            try:
                self._digests[path] = self.inputs.digest(path)
            except OSError:
                self._digests[path] = None
        return self._digests[path]

    def _paths(self, unit: Unit, dependencies: Sequence[str]) -> tuple[list[str], str]:
        """The headers among what a compiler read, and what stands against keeping the object."""
        headers = [path for path in dependencies if path != f"src/{unit.file_name}"]
        if not dependencies:
            return [], "the compiler does not tell which headers it read"
        if any(not os.path.isabs(path) for path in headers):
            return [], "includes a file of the build directory"
        return list(dict.fromkeys(os.path.normpath(path) if "/../" not in path else path for path in headers)), ""

    def _list(self, unit: Unit, search: SearchPath, paths: Sequence[str], objection: str) -> HeaderList:
        names: set[str] = set()
        asked = asked_headers(unit.text)
        for path in paths:
            name = search.name_of(path)
            its_objection, its_asked = self._scanned(path, is_own=name.startswith("include/"))
            objection = objection or (its_objection and f"'{name}' {its_objection}")
            names.add(name)
            asked |= its_asked
        return HeaderList(tuple(sorted(names)), tuple(sorted(asked)), objection)

    def _scanned(self, path: str, *, is_own: bool) -> tuple[str, frozenset[str]]:
        """What stands against what includes a header, and which headers it asks for; each is read once.

        Nothing stands against what comes with the compiler: it asks by macros, and knows no time but in macros that
        nobody uses.
        """
        if (path, is_own) not in self._texts:
            try:
                with open(path, "rb", buffering=0) as file:
                    text = file.readall().decode(errors="replace")
                objection, asked = objection_to_text(text) if is_own else "", frozenset(asked_headers(text))
            except OSError as error:
                objection, asked = f"cannot be read: {error.strerror}" if is_own else "", frozenset()
            self._texts[path, is_own] = (objection, asked)
        return self._texts[path, is_own]

    def _is_racy(
        self,
        search: SearchPath,
        headers: HeaderList,
        paths: Sequence[str],
        start: Moment,
        known_before: frozenset[str],
    ) -> bool:
        """Whether the compiler may have seen other headers than those whose digests we have.

        A header that was digested before is compared with what it was; the others must not have been touched.
        """
        read = self._read_now(search, headers)
        if len(read.digests) != len(headers.names):
            return True
        late = [path for path in paths if path not in known_before]
        early = [path for path in paths if path in known_before]
        return any(map(start.is_before_change_of, (*late, *read.shadow_paths))) or bool(self.inputs.changed(early))

    def _noted(self, unit: Unit) -> HeaderList:
        """What the unit read when it was last compiled, or, if its text is new, what one in its place read."""
        # What a place is called says nothing on another machine.
        for name, travels in ((self._note_name(unit), True), (self._place_name(unit), False)):
            payload = self._notes.read(_NOTE, name, travels=travels)
            if payload is not None:
                try:
                    return HeaderList.decode(payload)
                except WireError:
                    continue
        return HeaderList()

    def _write_notes(self, unit: Unit, headers: HeaderList) -> None:
        payload = headers.encode()
        self._notes.write(_NOTE, self._note_name(unit), payload, travels=True)
        # What stands against this text need not stand against the next one.
        self._notes.write(_NOTE, self._place_name(unit), replace(headers, objection="").encode())

    def _note_name(self, unit: Unit) -> str:
        if unit not in self._note_names:
            hasher = Hasher("headers.1").field("source", digest_bytes(unit.text.encode()))
            hasher.field("arguments", self._arguments(unit)).field("compiler", self.workspace.compilers.of(unit).digest)
            self._note_names[unit] = hasher.digest().hex
        return self._note_names[unit]

    def _place_name(self, unit: Unit) -> str:
        return Hasher("headers-place.1").field("slot", self._slot(unit)).digest().hex

    def _slot(self, unit: Unit) -> str:
        return f"{self.workspace.spec.name}/{unit.name}"

    def _correct_key(self, known: KnownObject, action: Action) -> None:
        """Let the journal name the action that was executed, where the one that was looked up had other headers."""
        namespace = self.cache.settings.namespace
        if known.action is None or known.action == action:
            return
        looked, key = self.cache.journal.looked, known.action.key(namespace)
        for place, event in enumerate(looked):
            if event.key == key and event.reason is not None:
                looked[place] = replace(event, key=action.key(namespace))

    def _count(self, known: KnownObject, seconds: float, storing: Storing, why: str) -> None:
        """Write down that an object was made, of which nothing is kept."""
        key = known.action.key(self.cache.settings.namespace) if known.action else ""
        executed = Executed(OBJECT, known.unit.file_name, self._slot(known.unit), key, seconds, storing, why)
        self.cache.journal.executed.append(executed)


class Keeping:
    """Stores objects as steps end that make them."""

    def __init__(
        self, layer: ObjectLayer, missing: Sequence[KnownObject], start: Moment, known_before: frozenset[str]
    ) -> None:
        self._layer = layer
        self._missing = {known.unit.file_name: known for known in missing}
        self._start = start
        self._known_before = known_before
        self._durations = Durations(layer.workspace.directory)

    def keep(self, edge: FinishedEdge) -> None:
        """Store what a step has made that has ended; raises UserError where a file cannot be read or written."""
        if (known := self._missing.pop(unit_file_of(edge), None)) is None:
            return
        with writing(self._layer.workspace.directory):
            seconds = self._durations.of(f"obj/{known.unit.name}.o")
            self._layer.keep(known, self._start, self._known_before, seconds)

    def end(self) -> None:
        """Take up the rest when ninja has ended: it found them up to date by their times, which is not enough to share
        them. Raises UserError."""
        with writing(self._layer.workspace.directory):
            for known in self._missing.values():
                known.digest = digest_file(self._layer.workspace.object(known.unit))
        self._missing.clear()
