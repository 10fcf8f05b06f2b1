"""Takes single steps of a compilation from the cache, or executes them and keeps what they made; knows no step.

A step is keyed by what goes into it, without the weights. Of these it may ask for some, and which they are is known
only when it was executed: a note remembers it, and the key holds their contents. If a note is wrong, the key is one
that nothing was ever stored under.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Generic, TypeVar

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.hit import DamagedResult, Hit, Miss
from relaybuild.build.cache.journal import Change, Executed, Journal, Storing
from relaybuild.build.cache.settings import Mode
from relaybuild.build.cache.store import Cache
from relaybuild.build.notes import Notes
from relaybuild.compilation.slots import Origin, Weights
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.ir.asking import asked_values, tell
from relaybuild.ir.expr import Constant

T = TypeVar("T")

_NOTE = "asked"
_WEIGHTS = "in/weights/"


class Outputs:
    """What a step made, by name: read when it is asked for."""

    def __init__(self, digests: Mapping[str, Digest], read: Callable[[str], bytes]) -> None:
        self.digests = digests
        self.read = read

    def loader(self, name: str) -> Callable[[], bytes]:
        """What reads one output."""
        return lambda: self.read(name)


@dataclass(frozen=True)
class Step(Generic[T]):
    """One step of a layer; `slot` says where in the project it comes up.

    `describe` adds to a key all that it depends on but weights, `execute` is the work, `pack` gives what it made as
    bytes, from which `unpack` makes it again without the work. Where a step never asks for weights, `may_ask` being
    false spares the question to another machine for which.
    """

    layer: str
    name: str
    slot: str
    describe: Callable[[ActionBuilder], None]
    execute: Callable[[], T]
    pack: Callable[[T], Mapping[str, bytes]]
    unpack: Callable[[Outputs], T]
    may_ask: bool = True


@dataclass
class Actions:
    """The steps of one compilation: looked up in a cache or, without one, executed. `project` begins their slots.

    `whole` counts steps by layer that are no parts of others: of a step that is found, nobody sees the parts.
    """

    cache: Cache | None
    weights: Weights
    project: str
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        if self.cache is not None:
            self.journal = self.cache.journal
        self._first_executed, self._first_looked = len(self.journal.executed), len(self.journal.looked)
        self._depth = 0
        self.whole: Counter[str] = Counter()

    @property
    def has_cache(self) -> bool:
        """Whether steps are looked up or kept."""
        return self.cache is not None and self.cache.folder is not None and self.cache.settings.mode is not Mode.OFF

    def run(self, step: Step[T], *, objection: str = "") -> T:
        """What a step makes; it is not looked up where there is an objection. Raises what the step raises."""
        if self.cache is None or objection or not self.has_cache:
            return self.perform(step.layer, step.name, step.slot, step.execute, objection)
        self._count(step.layer)
        return _Keyed(self, self.cache, step).result()

    def perform(self, layer: str, name: str, slot: str, execute: Callable[[], T], objection: str) -> T:
        """What a step makes that is not looked up, for a reason."""
        if self.cache is not None and self.has_cache:
            self.cache.bypass(layer, name, objection, slot=self.slot(slot))
        self._count(layer)
        begin = time.perf_counter()
        with self.within():
            made = execute()
        seconds = time.perf_counter() - begin
        self.journal.executed.append(
            Executed(layer, name, self.slot(slot), "", seconds, Storing.BYPASSED, objection or "no cache")
        )
        return made

    def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """How many steps were executed, and how many found, by layer, in what is logged since these were made."""
        executed = Counter(event.layer for event in self.journal.executed[self._first_executed :])
        found = Counter(event.layer for event in self.journal.looked[self._first_looked :] if event.reason is None)
        return executed, found

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """While the block runs, steps are parts of another one."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _count(self, layer: str) -> None:
        if not self._depth:
            self.whole[layer] += 1

    def slot(self, within: str) -> str:
        """The place of a step."""
        return f"{self.project}/{within}"


class _Keyed(Generic[T]):
    """A step that is looked up."""

    def __init__(self, actions: Actions, cache: Cache, step: Step[T]) -> None:
        self._actions = actions
        self._step = step
        self._cache = cache
        self._weights = actions.weights
        self._slot = actions.slot(step.slot)
        self._namespace = cache.settings.namespace
        self._notes = Notes(cache)
        self._built: dict[tuple[Origin, ...], Action] = {}
        self._base = self._action(())
        # who trusts another namespace looks up what that has under its own weights
        self._name = self._base.key("")

    def result(self) -> T:
        """What the step makes, found or made now and kept."""
        asked = self._noted(may_ask=False)
        found = self._cache.lookup(self._action(asked), slot=self._slot)
        if isinstance(found, Hit):
            return self._found(found, asked)
        if self._cache.settings.mode.must_execute:
            return self._made(asked)[0]
        # whoever else is at it is waited for, but not by who holds what it may need: parts are claimed within wholes
        with self._cache.claim(self._base):
            asked = self._noted(may_ask=self._step.may_ask)
            again = self._cache.look_again(self._action(asked), found, slot=self._slot)
            if isinstance(again, Miss):
                return self._made(asked)[0]
        return self._found(again, asked)

    def _found(self, found: Hit, asked: tuple[Origin, ...]) -> T:
        """What a hit holds; it is made again where that is damaged."""
        for origin in asked:
            # a step around this one depends on what it asked for, whether or not it is executed now
            tell(Constant(self._weights.array(origin)))
        try:
            return self._step.unpack(Outputs(found.outputs, _Reading(found, lambda: self._made(asked)[1])))
        except DamagedResult:
            return self._made(asked)[0]

    def _made(self, noted: tuple[Origin, ...]) -> tuple[T, Mapping[str, bytes]]:
        """Execute the step and keep what it made, under the weights that it asked for."""
        heard: set[Origin] = set()

        def hear(constant: Constant) -> None:
            # what the step itself made of other weights follows from these
            if (origin := self._weights.known(constant)) is not None:
                heard.add(origin)

        begin = time.perf_counter()
        with asked_values(hear), self._actions.within():
            made = self._step.execute()
        seconds = time.perf_counter() - begin
        asked = _sorted(heard)
        action = self._action(asked)
        if asked or noted:
            # also where it says what it said before: it may never have reached another machine
            self._notes.write(_NOTE, self._name, json.dumps(asked).encode(), travels=True)
        if asked != noted:
            self._correct(self._action(noted), action)
        packed = self._step.pack(made)
        self._cache.store(action, packed, slot=self._slot, seconds=seconds, inputs=self._weights.files)
        return made, packed

    def _action(self, asked: tuple[Origin, ...]) -> Action:
        """The action under some weights; nothing that it is built of changes while the step is executed."""
        if asked not in self._built:
            self._built[asked] = self._described(asked)
        return self._built[asked]

    def _described(self, asked: tuple[Origin, ...]) -> Action:
        builder = ActionBuilder(self._step.layer, self._step.name)
        self._step.describe(builder)
        for origin in asked:
            builder.input(f"{_WEIGHTS}{origin}", self._weights.digest(origin))
        return builder.build()

    def _noted(self, *, may_ask: bool) -> tuple[Origin, ...]:
        """The weights that the step asked for when it was last executed, here or, if nothing is known of that and we
        `may_ask`, on another machine; those that are not there are left out."""
        payload = self._notes.read(_NOTE, self._name, travels=True, may_ask=may_ask)
        try:
            found = json.loads(payload) if payload is not None else []
        except ValueError:
            return ()
        if not isinstance(found, list):
            return ()
        return _sorted({each for each in found if isinstance(each, (int, str)) and each in self._weights})

    def _correct(self, looked_up: Action, action: Action) -> None:
        """Let the journal name the action that was executed, where the one that was looked up had other weights."""
        looked, key = self._cache.journal.looked, looked_up.key(self._namespace)
        for place, event in enumerate(looked):
            if event.key == key and event.reason is not None:
                changes = tuple(_corrected(event.changes, action.components()))
                looked[place] = replace(event, key=action.key(self._namespace), changes=changes)


class _Reading:
    """Reads the outputs of a hit; where one turns out damaged, all are made again."""

    def __init__(self, hit: Hit, make: Callable[[], Mapping[str, bytes]]) -> None:
        self._hit = hit
        self._make = make
        self._made: Mapping[str, bytes] | None = None

    def __call__(self, name: str) -> bytes:
        if self._made is None:
            try:
                return self._hit.read(name)
            except DamagedResult:
                self._made = self._make()
        return self._made[name]


def _corrected(changes: Iterable[Change], components: Mapping[str, str]) -> Iterator[Change]:
    """What differs from the last action, for weights by what was asked for: without a note that was not known."""
    for change in changes:
        if not change.component.startswith(_WEIGHTS):
            yield change
        elif components.get(change.component) != change.old:
            yield change._replace(new=components.get(change.component))


def _sorted(origins: set[Origin]) -> tuple[Origin, ...]:
    numbers = sorted(each for each in origins if isinstance(each, int))
    return (*numbers, *sorted(each for each in origins if isinstance(each, str)))
