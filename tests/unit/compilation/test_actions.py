"""Steps: when one is found, when it is executed, and which weights' values decide that."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build.cache.remote.faults import Faults, faulty_server

from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.journal import Executed, MissReason, Storing
from relaybuild.build.cache.settings import CacheSettings, Mode, RemoteSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.notes import Notes
from relaybuild.compilation.actions import Actions, Outputs, Step
from relaybuild.compilation.slots import Given, Weights
from relaybuild.digest import digest_bytes
from relaybuild.ir.expr import Constant


@pytest.fixture(autouse=True)
def _with_steps(own_cache: None) -> None:
    """Let steps be looked up."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def values(*numbers: float) -> Weights:
    """Weights of three elements each, that are so many times 1, 2, 3."""

    def given(number: float) -> Given:
        return Given(lambda: np.arange(1, 4, dtype="float32") * number)

    return Weights([given(number) for number in numbers])


@dataclass
class Work:
    """A step that gives the sums of those weights that it asks for: `asks` says, by the sums so far, what comes next.

    `runs` is how often it was executed.
    """

    asks: Callable[[list[float]], int | None]
    salt: str = ""
    name: str = "sum"
    runs: int = 0
    inner: Work | None = None
    error: Exception | None = None
    described: list[ActionBuilder] = field(default_factory=list)

    def step(self, actions: Actions) -> Step[list[float]]:
        def describe(builder: ActionBuilder) -> None:
            builder.option("salt", self.salt)

        def execute() -> list[float]:
            self.runs += 1
            if self.error is not None:
                raise self.error
            found = [] if self.inner is None else actions.run(self.inner.step(actions))
            while (number := self.asks(found)) is not None:
                found.append(float(Constant(actions.weights.array(number)).data.sum()))
            return found

        def pack(made: list[float]) -> Mapping[str, bytes]:
            # more than is kept within a record
            return {"sums": json.dumps(made).encode().ljust(2000), "more": b"more" * 1000}

        def unpack(outputs: Outputs) -> list[float]:
            found: list[float] = json.loads(outputs.read("sums"))
            return found

        return Step("pass", self.name, self.name, describe, execute, pack, unpack)


def in_order(*numbers: int) -> Callable[[list[float]], int | None]:
    """Ask for these weights."""
    return lambda found: numbers[len(found)] if len(found) < len(numbers) else None


def run(work: Work, folder: Path, weights: Weights, mode: Mode = Mode.READ_WRITE, **options: Any) -> list[float]:
    """The sums of a step, by a new process, as it were."""
    with open_cache(CacheSettings(folder, mode)) as cache:
        actions = Actions(cache, weights, "model")
        return actions.run(work.step(actions), **options)


def test_what_was_made_is_found(folder: Path) -> None:
    work = Work(in_order())
    assert run(work, folder, values(1)) == run(work, folder, values(1)) == []
    assert work.runs == 1
    other = Work(in_order(), salt="other")
    run(other, folder, values(1))
    assert other.runs == 1


def test_a_value_that_was_asked_for_counts_and_another_does_not(folder: Path) -> None:
    work = Work(in_order(1))
    assert run(work, folder, values(1, 2, 3)) == [12.0]
    assert run(work, folder, values(7, 2, 8)) == [12.0]
    assert work.runs == 1
    assert run(work, folder, values(1, 5, 3)) == [30.0]
    assert run(work, folder, values(7, 5, 8)) == [30.0]
    assert run(work, folder, values(7, 2, 8)) == [12.0]
    assert work.runs == 2


def test_what_is_asked_for_may_depend_on_values(folder: Path) -> None:
    def asks(found: list[float]) -> int | None:
        if not found:
            return 0
        return (1 if found[0] > 6 else 2) if len(found) == 1 else None

    def fresh(*numbers: float) -> list[float]:
        first, second, third = (6 * number for number in numbers)
        return [first, second if first > 6 else third]

    work = Work(asks)
    random = np.random.default_rng(5)
    for numbers in random.integers(1, 3, (40, 3)).tolist():
        assert run(work, folder, values(*numbers)) == fresh(*numbers)
    assert work.runs < 40


@pytest.mark.parametrize("note", [b"[]", b"[0, 2]", b"[99]", b'["absent"]', b"{}", b"3", b"[[1]]", b"\xff", b"[1.5]"])
def test_a_wrong_note_costs_time_alone(folder: Path, note: bytes) -> None:
    work = Work(in_order(1))
    run(work, folder, values(1, 2, 3))
    with open_cache(CacheSettings(folder)) as cache:
        builder = ActionBuilder("pass", "sum").option("salt", "")
        key = builder.build().key("")
        notes = Notes(cache)
        assert notes.read("asked", key, travels=True) == b"[1]"
        notes.write("asked", key, note, travels=True)
    assert run(work, folder, values(1, 4, 3)) == [24.0]
    assert work.runs == 2
    # the note is right again
    assert run(work, folder, values(6, 4, 6)) == [24.0]
    assert run(work, folder, values(1, 2, 3)) == [12.0]
    assert work.runs == 2


def test_a_key_names_the_weights_that_were_asked_for(folder: Path) -> None:
    with open_cache(CacheSettings(folder)) as cache:
        weights = values(1, 2)
        actions = Actions(cache, weights, "model")
        work = Work(in_order(1))
        actions.run(work.step(actions))
        (looked,), (executed,) = cache.journal.looked, cache.journal.executed
        # the action that was looked up is that which was executed, although the note was not there
        assert looked.key == executed.key
        assert looked.reason is MissReason.NEVER_SEEN
        builder = ActionBuilder("pass", "sum").option("salt", "").input("in/weights/1", weights.digest(1))
        assert executed.key == builder.build().key(cache.settings.namespace)
    with open_cache(CacheSettings(folder)) as cache:
        actions = Actions(cache, values(1, 3), "model")
        actions.run(work.step(actions))
        (looked,) = cache.journal.looked
        assert [change.component for change in looked.changes] == ["in/weights/1"]
        assert looked.slot == "model/sum"


def test_a_constant_that_was_made_counts_by_its_content(folder: Path) -> None:
    def asking(actions: Actions, constant: Constant) -> Step[bytes]:
        def execute() -> bytes:
            runs.append(1)
            return constant.data.tobytes()

        def describe(builder: ActionBuilder) -> None:
            # as the text of a module does
            builder.option("constant", actions.weights.origin(constant))

        return Step("pass", "c", "c", describe, execute, lambda made: {"b": made}, lambda o: o.read("b"))

    runs: list[int] = []
    for value, executed in ((1, 1), (1, 1), (2, 2), (1, 2)):
        with open_cache(CacheSettings(folder)) as cache:
            actions = Actions(cache, Weights(), "model")
            constant = Constant(np.full(3, value, "float32"))
            assert actions.run(asking(actions, constant)) == constant.array.tobytes()
        assert len(runs) == executed


def test_what_a_step_within_asked_for_counts_for_the_step_around_it(folder: Path) -> None:
    inner = Work(in_order(0), name="inner")
    run(Work(in_order(), salt="1", inner=inner), folder, values(1))
    # now the step within is found, and asks for nothing
    outer = Work(in_order(), salt="2", inner=inner)
    assert run(outer, folder, values(1)) == [6.0]
    assert inner.runs == 1
    assert run(outer, folder, values(1)) == [6.0]
    assert outer.runs == 1
    assert run(outer, folder, values(2)) == [12.0]


def test_a_value_that_a_step_was_told_of_itself_does_not_count(folder: Path) -> None:
    def execute() -> bytes:
        runs.append(1)
        return bytes(Constant(np.arange(3, dtype="float32")).data.tobytes())

    runs: list[int] = []
    step = Step("pass", "own", "own", lambda builder: None, execute, lambda made: {"b": made}, lambda o: o.read("b"))
    for _ in range(2):
        with open_cache(CacheSettings(folder)) as cache:
            Actions(cache, Weights(), "model").run(step)
    assert runs == [1]


def blobs(folder: Path) -> Iterator[Path]:
    return (path for path in (folder / "v1" / "cas").rglob("*") if path.is_file())


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def altered(path: Path) -> None:
    path.write_bytes(bytes(255 - each for each in path.read_bytes()))


@pytest.mark.parametrize("damage", [emptied, altered, Path.unlink])
def test_a_damaged_output_is_made_again(folder: Path, damage: Callable[[Path], None]) -> None:
    work = Work(in_order(0))
    run(work, folder, values(3))
    assert list(blobs(folder))
    for path in blobs(folder):
        path.chmod(0o644)
        damage(path)
    assert run(work, folder, values(3)) == [18.0]
    assert work.runs == 2
    assert run(work, folder, values(3)) == [18.0]
    assert work.runs == 2


def test_an_output_that_is_found_damaged_when_it_is_read_late_is_made_again(folder: Path) -> None:
    def execute() -> str:
        runs.append(1)
        return str(Constant(weights.array(0)).data.sum())

    def unpack(outputs: Outputs) -> Callable[[], bytes]:
        return outputs.loader("text")

    runs: list[int] = []
    weights = values(2)
    step: Step[Any] = Step(
        "pass",
        "late",
        "late",
        lambda builder: None,
        execute,
        lambda made: {"text": made.encode().ljust(2000), "other": b"o" * 2000},
        unpack,
    )
    with open_cache(CacheSettings(folder)) as cache:
        Actions(cache, weights, "model").run(step)
    with open_cache(CacheSettings(folder)) as cache:
        read = Actions(cache, weights, "model").run(step)
        assert runs == [1]
        for path in blobs(folder):
            path.chmod(0o644)
            path.write_bytes(b"damaged")
        assert read().strip() == b"12.0"
        assert read().strip() == b"12.0"
        assert runs == [1, 1]
    assert run_again(step, folder, weights)().strip() == b"12.0"
    assert runs == [1, 1]


def run_again(step: Step[Any], folder: Path, weights: Weights) -> Any:
    with open_cache(CacheSettings(folder)) as cache:
        found = Actions(cache, weights, "model").run(step)
        data = found()
    return lambda: data


def test_a_failure_is_not_kept(folder: Path) -> None:
    work = Work(in_order(0), error=ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        run(work, folder, values(1))
    work.error = None
    assert run(work, folder, values(1)) == [6.0]
    assert work.runs == 2


def executed_of(cache: Cache) -> list[tuple[str, str, str, Storing, str]]:
    return [(each.layer, each.name, each.key, each.storing, each.detail) for each in cache.journal.executed]


def test_an_objection_is_said_and_nothing_is_looked_up(folder: Path) -> None:
    work = Work(in_order(0))
    for _ in range(2):
        with open_cache(CacheSettings(folder)) as cache:
            actions = Actions(cache, values(1), "model")
            assert actions.run(work.step(actions), objection="somebody watches") == [6.0]
            assert executed_of(cache) == [("pass", "sum", "", Storing.BYPASSED, "somebody watches")]
            (looked,) = cache.journal.looked
            assert (looked.reason, looked.detail) == (MissReason.BYPASSED, "somebody watches")
            assert looked.slot == "model/sum"
    assert work.runs == 2


@pytest.mark.parametrize("mode", [Mode.OFF, None])
def test_without_a_cache_steps_are_executed_and_logged_without_keys(folder: Path, mode: Mode | None) -> None:
    work = Work(in_order(0))
    with open_cache(CacheSettings(folder, mode or Mode.READ_WRITE)) as cache:
        actions = Actions(cache if mode is not None else None, values(1), "model")
        assert not actions.has_cache
        assert [actions.run(work.step(actions)) for _ in range(2)] == [[6.0]] * 2
        assert work.runs == 2
        first, _ = actions.journal.executed
        assert (first.key, first.slot, first.storing) == ("", "model/sum", Storing.BYPASSED)
        assert actions.counts() == ({"pass": 2}, {})


@pytest.mark.parametrize(
    ("mode", "executed"), [(Mode.READ, 1), (Mode.READ_WRITE, 1), (Mode.RECACHE, 2), (Mode.VERIFY, 2), (Mode.WRITE, 2)]
)
def test_modes(folder: Path, mode: Mode, executed: int) -> None:
    work = Work(in_order(0))
    run(work, folder, values(1))
    assert run(work, folder, values(1), mode) == [6.0]
    assert work.runs == executed


def test_counts_are_of_these_steps_alone(folder: Path) -> None:
    with open_cache(CacheSettings(folder)) as cache:
        cache.journal.executed.append(Executed("object", "before", "", "", 0.0, Storing.STORED))
        actions = Actions(cache, values(1), "model")
        work = Work(in_order(0))
        actions.run(work.step(actions))
        actions.run(work.step(actions))
        assert actions.counts() == ({"pass": 1}, {"pass": 1})


def test_other_projects_share_what_is_equal(folder: Path) -> None:
    work = Work(in_order(0))
    for project in ("one", "two"):
        with open_cache(CacheSettings(folder)) as cache:
            actions = Actions(cache, values(1), project)
            actions.run(work.step(actions))
            assert cache.journal.looked[0].slot == f"{project}/sum"
    assert work.runs == 1


@contextlib.contextmanager
def machine(folder: Path, server: Faults) -> Iterator[Cache]:
    """The cache of a machine that shares a server with others."""
    with open_cache(CacheSettings(folder, remote=RemoteSettings(server.url, Mode.READ_WRITE))) as cache:
        yield cache


def test_another_machine_knows_what_a_step_asked_for(tmp_path: Path) -> None:
    work = Work(in_order(1))
    with faulty_server() as server:
        for name in ("first", "second"):
            with machine(tmp_path / name, server) as cache:
                actions = Actions(cache, values(1, 2, 3), "model")
                assert actions.run(work.step(actions)) == [12.0]
                assert actions.counts() == (({"pass": 1}, {}) if name == "first" else ({}, {"pass": 1}))
                (looked,) = cache.journal.looked
                assert (looked.reason is None) == (name == "second")
        # the values count there, too
        with machine(tmp_path / "third", server) as cache:
            actions = Actions(cache, values(1, 5, 3), "model")
            assert actions.run(work.step(actions)) == [30.0]
    assert work.runs == 2


def test_what_a_step_asked_for_is_told_where_it_was_told_to_nobody_before(folder: Path, tmp_path: Path) -> None:
    """The server came later than the note."""
    work = Work(in_order(1))
    run(work, folder, values(1, 2, 3))
    with faulty_server() as server:
        for where in (folder, tmp_path / "second"):
            with machine(where, server) as cache:
                actions = Actions(cache, values(1, 5, 3), "model")
                assert actions.run(work.step(actions)) == [30.0]
    assert work.runs == 2


def test_of_a_step_that_never_asks_nobody_is_asked_what_it_asks_for(folder: Path) -> None:
    with faulty_server() as server:
        for may_ask, requests in ((True, 2), (False, 1)):
            work = Work(in_order(), salt=str(may_ask))
            with machine(folder, server) as cache:
                actions = Actions(cache, values(1), "model")
                before = len(server.requests)
                with machine(folder, server):
                    actions.run(dataclasses.replace(work.step(actions), may_ask=may_ask))
                asked = [method for method, _ in server.requests[before:] if method == "GET"]
            assert len(asked) == requests


def test_who_trusts_a_namespace_has_the_steps_that_asked_there(folder: Path) -> None:
    work = Work(in_order(1))
    for settings in (CacheSettings(folder), CacheSettings(folder, namespace="pr/1", trusted=("main",))):
        with open_cache(settings) as cache:
            actions = Actions(cache, values(1, 2), "model")
            assert actions.run(work.step(actions)) == [12.0]
    assert work.runs == 1


def test_who_comes_second_waits_for_who_is_at_it(folder: Path) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def asks(found: list[float]) -> int | None:
        has_begun.set()
        assert may_end.wait(30)
        return in_order(1)(found)

    work = Work(asks)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, work, folder, values(1, 2))
        assert has_begun.wait(30)
        second = pool.submit(run, work, folder, values(1, 2))
        # with other values it is another step, but which these are is not known before one has run
        time.sleep(0.2)
        assert not second.done()
        may_end.set()
        assert first.result() == second.result() == [12.0]
    assert work.runs == 1


def test_who_waited_in_vain_goes_ahead(folder: Path) -> None:
    """The first one fails, which keeps nobody out."""
    has_begun = threading.Event()
    failing, work = Work(in_order(1), error=ValueError("broken")), Work(in_order(1))

    def execute() -> list[float]:
        has_begun.set()
        time.sleep(0.2)
        raise ValueError("broken")

    def fail() -> None:
        with open_cache(CacheSettings(folder)) as cache:
            actions = Actions(cache, values(1, 2), "model")
            actions.run(dataclasses.replace(failing.step(actions), execute=execute))

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fail)
        assert has_begun.wait(30)
        assert run(work, folder, values(1, 2)) == [12.0]
        assert isinstance(first.exception(), ValueError)


def test_parts_of_steps_are_no_whole_ones(folder: Path) -> None:
    inner = Work(in_order(0), name="inner")
    for salt in ("executed", "executed", "its part alone is found"):
        with open_cache(CacheSettings(folder)) as cache:
            actions = Actions(cache, values(1), "model")
            actions.run(Work(in_order(), salt=salt, inner=inner).step(actions))
            actions.perform("import", "read", "read", partial(actions.run, inner.step(actions)), "always")
            assert actions.whole == {"pass": 1, "import": 1}


def test_digests_of_outputs_are_those_of_their_bytes(folder: Path) -> None:
    seen: list[str] = []

    def unpack(outputs: Outputs) -> None:
        seen.append(outputs.digests["a"].hex)

    step: Step[None] = Step("pass", "d", "d", lambda builder: None, lambda: None, lambda made: {"a": b"abc"}, unpack)
    for _ in range(2):
        with open_cache(CacheSettings(folder)) as cache:
            Actions(cache, Weights(), "model").run(step)
    assert seen == [digest_bytes(b"abc").hex]
