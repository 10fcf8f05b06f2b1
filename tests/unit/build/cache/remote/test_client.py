"""A run with a remote cache: what another machine made is found, and whatever a server does, the result is right."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from build.cache.conftest import action
from relaybuild.build.cache.action import Action
from relaybuild.build.cache.explain import explain
from relaybuild.build.cache.hit import Hit, Miss
from relaybuild.build.cache.journal import MissReason, Storing
from relaybuild.build.cache.record import Result
from relaybuild.build.cache.remote import gate
from relaybuild.build.cache.remote.http import HttpTransport
from relaybuild.build.cache.settings import CacheSettings, Mode, RemoteSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.notes import Notes
from relaybuild.errors import UserError

from .faults import Faults, faulty_server
from .servers import nginx, running

ONE, TWO = "1" * 64, "2" * 64
OUTPUTS = {"code.c": b"int x;\n" * 1000, "code.h": b"extern int x;\n"}
SECRET = b"a secret that nobody else has"


@pytest.fixture
def server() -> Iterator[Faults]:
    with faulty_server() as started:
        yield started


@dataclass
class Machine:
    """A machine with a cache of its own, and a remote one at `url`."""

    folder: Path
    url: str
    settings: CacheSettings

    def open(self, mode: Mode = Mode.READ_WRITE, seconds: float = 30.0, **changes: object) -> Cache:
        """The machine's cache; a request may take so many seconds."""
        remote = RemoteSettings(self.url, mode, request_seconds=seconds)
        return open_cache(replace(self.settings, remote=remote, **changes))  # type: ignore[arg-type]


@pytest.fixture
def machines(tmp_path: Path, server: Faults) -> Machines:
    return Machines(tmp_path, server.url)


@dataclass
class Machines:
    """Machines by name, which share a server and nothing else."""

    folder: Path
    url: str

    def __call__(self, name: str, **settings: object) -> Machine:
        folder = self.folder / name
        return Machine(folder, self.url, CacheSettings(folder / "cache", **settings))  # type: ignore[arg-type]


def made(machine: Machine, what: Action | None = None, outputs: Mapping[str, bytes] = OUTPUTS, **how: object) -> Cache:
    """Run an action on a machine; the cache, closed, whose journal says what was done. The result is right always."""
    with machine.open(**how) as cache:  # type: ignore[arg-type]
        assert cache.run(what or action(a=b"1"), lambda: outputs) == outputs
    return cache


def _patience(word: str) -> float:
    """Seconds that a request may take where a server goes wrong in that way."""
    return 1.0 if word in ("slow", "dripping") else 30.0


def executed(cache: Cache) -> int:
    return len(cache.journal.executed)


def errors(cache: Cache) -> Mapping[str, int]:
    found: Mapping[str, int] = cache.journal.summary()["errors"]
    return found


def reason(cache: Cache) -> MissReason | None:
    return cache.journal.looked[-1].reason


def remote(cache: Cache) -> Mapping[str, int]:
    found: Mapping[str, int] = cache.journal.summary()["remote"]
    return found


def test_what_one_machine_made_another_one_has(machines: Machines) -> None:
    first, second = made(machines("a")), made(machines("b"))
    assert (executed(first), executed(second)) == (1, 0)
    assert remote(first)["stored"] == 1
    assert remote(second)["hits"] == 1
    assert remote(second)["bytes_read"] > len(OUTPUTS["code.c"])
    assert second.journal.looked[-1].is_remote
    assert errors(first) == errors(second) == {}


def test_what_was_brought_is_there_without_the_server(machines: Machines, server: Faults) -> None:
    made(machines("a"))
    made(machines("b"))
    server.requests.clear()
    assert executed(made(machines("b"))) == 0
    assert server.requests == []


def test_a_result_as_files(machines: Machines, tmp_path: Path) -> None:
    source = tmp_path / "made.o"
    source.write_bytes(OUTPUTS["code.c"])
    source.chmod(0o755)
    with machines("a").open() as cache:
        cache.store(action(), {"object": source})
    with machines("b").open() as cache:
        found = cache.lookup(action())
        assert isinstance(found, Hit)
        found.place({"object": tmp_path / "placed.o"})
    assert (tmp_path / "placed.o").read_bytes() == source.read_bytes()
    assert (tmp_path / "placed.o").stat().st_mode & 0o100


def test_nothing_is_sent_twice(machines: Machines, server: Faults) -> None:
    made(machines("a"))
    server.requests.clear()
    other = made(machines("b"), action("Other"))
    assert executed(other) == 1
    assert [path for method, path in server.requests if method == "PUT" and "/cas/" in path] == []


@pytest.mark.parametrize(
    ("word", "kind", "counted", "expected"),
    [
        ("500", "ac", "remote-server", MissReason.REMOTE_UNAVAILABLE),
        ("403", "ac", "remote-refused", MissReason.REMOTE_UNAVAILABLE),
        ("slow", "ac", "remote-timeout", MissReason.REMOTE_UNAVAILABLE),
        ("dripping", "ac", "remote-timeout", MissReason.REMOTE_UNAVAILABLE),
        ("reset", "ac", "remote-broken", MissReason.REMOTE_UNAVAILABLE),
        ("truncated", "ac", "remote-broken", MissReason.REMOTE_UNAVAILABLE),
        ("empty", "ac", "remote-protocol", MissReason.REMOTE_UNAVAILABLE),
        ("html", "ac", "remote-protocol", MissReason.REMOTE_UNAVAILABLE),
        ("redirect", "ac", "remote-protocol", MissReason.REMOTE_UNAVAILABLE),
        ("busy-for-long", "ac", "remote-busy", MissReason.REMOTE_UNAVAILABLE),
        ("page", "ac", "remote-record", MissReason.INTEGRITY),
        ("altered", "ac", "remote-record", MissReason.INTEGRITY),
        ("cut", "ac", "remote-record", MissReason.INTEGRITY),
        ("gone", "cas", "remote-missing-blob", MissReason.INCOMPLETE_REMOTE),
        ("altered", "cas", "remote-wrong-content", MissReason.INTEGRITY),
        ("cut", "cas", "remote-wrong-content", MissReason.INTEGRITY),
        ("longer", "cas", "remote-too-large", MissReason.REMOTE_UNAVAILABLE),
        ("empty", "cas", "remote-wrong-content", MissReason.INTEGRITY),
        ("page", "cas", "remote-wrong-content", MissReason.INTEGRITY),
        ("html", "cas", "remote-protocol", MissReason.REMOTE_UNAVAILABLE),
        ("500", "cas", "remote-server", MissReason.REMOTE_UNAVAILABLE),
        ("slow", "cas", "remote-timeout", MissReason.REMOTE_UNAVAILABLE),
        ("reset", "cas", "remote-broken", MissReason.REMOTE_UNAVAILABLE),
        ("truncated", "cas", "remote-broken", MissReason.REMOTE_UNAVAILABLE),
    ],
)
def test_a_server_that_goes_wrong_costs_time_and_nothing_else(
    machines: Machines, server: Faults, word: str, kind: str, counted: str, expected: MissReason
) -> None:
    made(machines("a"))
    server.does(word, "GET", kind)
    seconds = _patience(word)
    begin = time.monotonic()
    second = made(machines("b"), mode=Mode.READ, seconds=seconds)
    assert time.monotonic() - begin < seconds + 10
    assert executed(second) == 1
    assert errors(second) == {counted: 1}
    assert reason(second) is expected
    server.is_well()
    # What this machine made itself is what it takes from then on.
    assert executed(made(machines("b"))) == 0


@pytest.mark.parametrize("damage", ["lost", "altered", "cut"])
@pytest.mark.parametrize("kind", ["ac", "cas"])
def test_what_a_server_has_lost_or_damaged_is_healed(
    machines: Machines, server: Faults, damage: str, kind: str
) -> None:
    made(machines("a"))
    (path,) = server.paths(kind)
    content = server.files[path]
    if damage == "lost":
        del server.files[path]
    else:
        server.files[path] = content[:-1] + (b"" if damage == "cut" else bytes([content[-1] ^ 1]))
    assert executed(made(machines("b"))) == 1
    assert executed(made(machines("c"))) == 0


def test_a_busy_server_is_asked_again(machines: Machines, server: Faults) -> None:
    made(machines("a"))
    server.does("busy", "GET", "ac", times=2)
    second = made(machines("b"))
    assert (executed(second), errors(second)) == (0, {})


@pytest.mark.parametrize("word", ["busy", "500", "reset", "slow", "413", "507"])
@pytest.mark.parametrize("kind", ["ac", "cas"])
def test_what_cannot_be_sent_is_counted(machines: Machines, server: Faults, word: str, kind: str) -> None:
    server.does(word, "PUT", kind)
    first = made(machines("a"), seconds=_patience(word))
    assert remote(first)["not_sent"] == 1
    assert sum(errors(first).values()) == 1
    server.is_well()
    assert executed(made(machines("b"))) == 1
    assert executed(made(machines("c"))) == 0, "a server that was busy once is written to again"


def test_a_server_that_takes_nothing_is_read_from(machines: Machines, server: Faults) -> None:
    made(machines("a"))
    server.fault = lambda method, path: "405" if method == "PUT" else None
    with machines("b").open() as cache:
        for number in range(5):
            cache.run(action(str(number)), lambda: OUTPUTS)
        assert cache.run(action(a=b"1"), lambda: {}) == OUTPUTS
    # Those that were under way at the same time are refused too.
    assert 1 <= errors(cache)["remote-read-only"] <= 4
    assert remote(cache) | {"bytes_read": 0} == {
        "hits": 1,
        "misses": 5,
        "not_sent": 5,
        "bytes_read": 0,
        "bytes_written": 0,
    }


def test_a_server_that_fails_is_left_alone_for_the_rest_of_the_run(machines: Machines, server: Faults) -> None:
    server.fault = lambda method, path: "500"
    with machines("a").open() as cache:
        for number in range(20):
            cache.run(action(str(number)), lambda: OUTPUTS)
    # Requests that were under way at the same time fail too.
    assert gate.MAX_FAILURES <= len(server.requests) <= gate.MAX_FAILURES + 4
    assert errors(cache) == {"remote-server": len(server.requests), "remote-left-alone": 1}
    # what was asked for in vain, and once that the rest was not
    unavailable = [event for event in cache.journal.looked if event.reason is MissReason.REMOTE_UNAVAILABLE]
    assert 1 < len(unavailable) <= gate.MAX_FAILURES + 1
    assert ["left alone after" in event.detail for event in unavailable] == [False] * (len(unavailable) - 1) + [True]
    assert {event.reason for event in cache.journal.looked} == {MissReason.REMOTE_UNAVAILABLE, MissReason.NEVER_SEEN}
    assert remote(cache)["not_asked"] >= 20 - len(unavailable)
    assert f"left alone: {remote(cache)['not_asked']} not asked for" in cache.journal.line()
    assert explain(cache.journal).to_json()["remote"] == remote(cache)
    server.is_well()
    assert "stored" in remote(made(machines("b")))


@pytest.mark.parametrize("method", ["get_record", "missing", "put_record", "read_blob", "write_blob", "describe"])
def test_an_error_that_no_transport_foresees_is_the_servers(
    machines: Machines, server: Faults, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("unforeseen")

    if method == "read_blob":
        made(machines("first"))
    monkeypatch.setattr(HttpTransport, method, fails)
    if method == "describe":
        assert "unforeseen" in _problem(machines("one").open())
    else:
        assert errors(made(machines("one"))) == {"remote-protocol": 1}


def test_nobody_listens(tmp_path: Path) -> None:
    begin = time.monotonic()
    cache = made(Machines(tmp_path, "http://127.0.0.1:1")("a"))
    assert time.monotonic() - begin < 10
    assert errors(cache)["remote-connect"] >= 1
    assert reason(cache) is MissReason.REMOTE_UNAVAILABLE


def test_the_end_of_a_run_is_not_waited_for_longer_than_was_said(machines: Machines, server: Faults) -> None:
    server.fault = lambda method, path: "slow" if method != "GET" else None
    settings = machines("a").settings
    begin = time.monotonic()
    slow = RemoteSettings(server.url, request_seconds=30.0, flush_seconds=0.5)
    with open_cache(replace(settings, remote=slow)) as cache:
        for number in range(10):
            cache.run(action(str(number)), lambda: OUTPUTS)
    assert time.monotonic() - begin < 5
    assert remote(cache)["not_sent"] == 10
    assert errors(cache) == {"remote-not-sent": 1}


def test_who_interrupts_a_run_does_not_wait(machines: Machines, server: Faults) -> None:
    server.fault = lambda method, path: "slow" if method != "GET" else None
    begin = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt), machines("a").open() as cache:
        cache.run(action(), lambda: OUTPUTS)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 10
    assert remote(cache)["not_sent"] == 1


def test_modes(machines: Machines, server: Faults) -> None:
    assert "stored" in remote(made(machines("a"), mode=Mode.WRITE))
    assert remote(made(machines("b"), mode=Mode.WRITE)) == {"known": 1, "bytes_read": 0, "bytes_written": 0}
    assert executed(made(machines("c"), mode=Mode.READ)) == 0
    server.requests.clear()
    assert executed(made(machines("d"), mode=Mode.OFF)) == 1
    assert server.requests == []
    made(machines("e"), action("New"), mode=Mode.READ)
    assert [method for method, _ in server.requests if method != "GET"] == []


def test_results_are_compared_where_they_must_be_executed(machines: Machines) -> None:
    made(machines("a"))
    same = made(machines("b"), mode=Mode.VERIFY)
    assert (executed(same), remote(same)["known"]) == (1, 1)
    other = {**OUTPUTS, "code.h": b"extern long x;\n"}
    differing = made(machines("c"), outputs=other, mode=Mode.VERIFY)
    assert remote(differing)["conflicts"] == 1
    assert differing.journal.summary()["conflicts"] == [action(a=b"1").key("main")]
    assert "code.h" in differing.journal.executed[0].detail
    assert made(machines("d"), mode=Mode.READ).journal.executed == [], "the first result stays"


def test_a_local_result_is_executed_again_and_compared(machines: Machines) -> None:
    here = machines("a")
    made(here)
    with open_cache(replace(here.settings, mode=Mode.VERIFY)) as cache:
        assert cache.run(action(a=b"1"), lambda: OUTPUTS, slot="s") == OUTPUTS
    assert [each.storing for each in cache.journal.executed] == [Storing.KNOWN]
    with open_cache(replace(here.settings, mode=Mode.VERIFY)) as cache:
        cache.run(action(a=b"1"), lambda: {"code.c": b"other"}, slot="s")
    assert reason(cache) is MissReason.NONDETERMINISTIC
    assert cache.journal.executed[0].is_unstable


def test_recache_replaces_what_others_have(machines: Machines) -> None:
    other = {"code.c": b"new" * 1000}
    made(machines("a"))
    with replace(machines("c"), settings=replace(machines("c").settings, mode=Mode.RECACHE)).open() as cache:
        cache.run(action(a=b"1"), lambda: other)
    with machines("d").open() as cache:
        assert cache.run(action(a=b"1"), lambda: {}) == other


@pytest.mark.parametrize("mode", [Mode.READ, Mode.OFF])
def test_a_local_cache_that_is_not_written_does_not_matter(machines: Machines, tmp_path: Path, mode: Mode) -> None:
    first = machines("a", mode=mode)
    made(first)
    assert not list(first.folder.rglob("code*"))
    assert executed(made(machines("b", mode=mode))) == 0
    assert executed(made(machines("b", mode=mode))) == 0
    assert list((tmp_path / "b").rglob("cas/*/*")) == []


def test_notes_travel_only_where_they_say_so(machines: Machines) -> None:
    with machines("a").open() as cache:
        Notes(cache).write("headers", ONE, b"a list", travels=True)
        Notes(cache).write("headers", TWO, b"this machine's")
    with machines("b").open() as cache:
        notes = Notes(cache)
        assert notes.read("headers", ONE, travels=True) == b"a list"
        assert notes.read("headers", ONE, travels=True, may_ask=False) == b"a list", "it is here from then on"
        assert notes.read("headers", TWO, travels=True) is None


def test_one_namespace_cannot_write_for_another(machines: Machines) -> None:
    wrong = {"code.c": b"poison" * 1000}
    made(machines("pr", namespace="pr/1"), outputs=wrong)
    assert executed(made(machines("main"))) == 1
    assert executed(made(machines("other"))) == 0


def test_a_trusted_namespace_is_read_and_not_written(machines: Machines, server: Faults) -> None:
    made(machines("main"))
    before = dict(server.files)
    trusting = machines("pr", namespace="pr/1", trusted=("main",))
    assert executed(made(trusting)) == 0
    made(trusting, action("New"))
    assert {path: server.files[path] for path in before} == before
    assert executed(made(machines("again"), action("New"))) == 1


@pytest.mark.parametrize("forger", [b"", b"another secret"])
def test_what_was_not_sealed_with_the_secret_is_not_believed(machines: Machines, forger: bytes) -> None:
    made(machines("forger", secret=forger), outputs={"code.c": b"poison" * 1000})
    with machines("b", secret=SECRET).open() as cache:
        found = cache.lookup(action(a=b"1"))
        assert isinstance(found, Miss)
        assert found.reason is MissReason.TRUST
    assert errors(cache) == {"remote-untrusted": 1}
    # Who has the secret puts it right.
    made(machines("c", secret=SECRET))
    assert executed(made(machines("d", secret=SECRET))) == 0


def test_a_forged_record_that_nobody_looked_up_is_replaced(machines: Machines) -> None:
    made(machines("forger"), outputs={"code.c": b"poison" * 1000})
    made(machines("a", secret=SECRET), mode=Mode.WRITE)
    assert executed(made(machines("b", secret=SECRET))) == 0


def test_what_was_sealed_can_be_read_without_the_secret(machines: Machines) -> None:
    made(machines("a", secret=SECRET))
    assert executed(made(machines("b"))) == 0


def test_a_record_of_another_key_is_not_believed(machines: Machines, server: Faults) -> None:
    made(machines("a", secret=SECRET), action("Good"))
    made(machines("a", secret=SECRET), action("Evil"), {"code.c": b"poison" * 1000})
    good, evil = (f"/team/ac/{action(name).key('main')}" for name in ("Good", "Evil"))
    server.files[good] = server.files[evil]
    assert reason(made(machines("b", secret=SECRET), action("Good"))) is MissReason.TRUST


def test_what_this_disk_has_damaged_is_not_sent(machines: Machines, server: Faults) -> None:
    here = machines("a")
    with here.open() as cache:
        server.fault = lambda method, path: "busy" if method == "HEAD" and not damaged else None
        damaged: list[Path] = []
        cache.run(action(a=b"1"), lambda: OUTPUTS)
        (blob,) = here.folder.rglob("cas/*/*")
        blob.chmod(0o600)
        blob.write_bytes(b"x" * len(OUTPUTS["code.c"]))
        damaged.append(blob)
    assert remote(cache)["not_sent"] == 1
    assert server.files == {}


def test_the_token_is_sent_and_told_to_nobody(machines: Machines, server: Faults) -> None:
    server.does("403", "GET", "ac")
    settings = replace(machines("a").settings, remote=RemoteSettings(server.url, token="sesame"))
    with open_cache(settings) as cache:
        cache.run(action(), lambda: OUTPUTS)
    assert server.tokens == {"Bearer sesame"}
    told = f"{settings} {cache.journal} {cache.journal.line()}"
    assert "sesame" not in told
    assert not any(b"sesame" in path.read_bytes() for path in (machines("a").folder).rglob("*") if path.is_file())


def test_records_of_namespaces_lie_where_the_url_says(machines: Machines, server: Faults) -> None:
    for name, namespace in (("a", "main"), ("b", "pr/1")):
        here = machines(name, namespace=namespace)
        made(replace(here, url=f"{server.url}/{{namespace}}"))
    assert len([path for path in server.files if path.startswith("/team/main/ac/")]) == 1
    assert len([path for path in server.files if path.startswith("/team/pr%2F1/ac/")]) == 1
    assert len([path for path in server.files if path.startswith("/team/cas/")]) == 1


@pytest.mark.parametrize(
    "url", ["ftp://host/", "cache.example.org", "http://", "http://name:sesame@host/", "http://h:x"]
)
def test_a_url_that_is_none(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError) as caught:
        made(Machines(tmp_path, url)("a"))
    assert "sesame" not in str(caught.value)


def test_the_doctor_says_what_a_server_is_and_what_is_wrong(machines: Machines, server: Faults) -> None:
    with machines("a").open() as cache:
        found = cache.examine_remote()
        assert found is not None
        assert found["problems"] == []
        assert found["can_write"]
        server.fault = lambda method, path: "405" if method == "PUT" else None
        assert "takes nothing" in _problem(cache)
        server.fault = lambda method, path: "html" if method == "GET" else None
        assert "HTML" in _problem(cache)
        server.fault = lambda method, path: "403"
        assert "refused" in _problem(cache)


def test_the_doctor_says_that_a_server_drops_seals(machines: Machines, server: Faults) -> None:
    server.keep = lambda path, body: Result.decode(body).encode() if "/ac/" in path else body
    with machines("a", secret=SECRET).open() as cache:
        assert "without the seal" in _problem(cache)
    made(machines("b", secret=SECRET))
    assert reason(made(machines("c", secret=SECRET))) is MissReason.TRUST


def test_a_redirection_is_not_followed(machines: Machines, server: Faults) -> None:
    with faulty_server() as other:
        server.place = f"{other.url}/elsewhere"
        server.fault = lambda method, path: "redirect"
        settings = replace(machines("a").settings, remote=RemoteSettings(server.url, token="sesame"))
        with open_cache(settings) as cache:
            cache.run(action(), lambda: OUTPUTS)
        assert other.requests == []
    assert "remote-protocol" in errors(cache)


def _problem(cache: Cache) -> str:
    found = cache.examine_remote()
    assert found is not None
    (problem,) = found["problems"]
    return str(problem)


def test_results_that_will_be_asked_for_are_brought_together(machines: Machines, server: Faults) -> None:
    actions = [action(str(number)) for number in range(16)]
    with machines("a").open() as cache:
        for each in actions:
            cache.run(each, lambda: OUTPUTS)
        Notes(cache).write("headers", ONE, b"a list", travels=True)
    server.delay = 0.3
    with machines("b").open() as cache:
        begin = time.monotonic()
        notes = Notes(cache)
        notes.fetch("headers", [ONE, TWO])
        cache.fetch([*actions, action("unknown")])
        assert all(isinstance(cache.lookup(each), Hit) for each in actions)
        assert isinstance(cache.lookup(action("unknown")), Miss)
        assert notes.read("headers", ONE, travels=True) == b"a list"
        assert notes.read("headers", TWO, travels=True) is None
        # One after the other, these are at least seventeen.
        assert time.monotonic() - begin < 17 * server.delay
    assert (remote(cache)["hits"], remote(cache)["misses"]) == (16, 1)
    server.requests.clear()
    with machines("b").open() as cache:
        cache.fetch(actions)
        assert all(isinstance(cache.lookup(each), Hit) for each in actions)
    assert server.requests == []


def test_what_is_fetched_and_not_asked_for_is_not_waited_for(machines: Machines, server: Faults) -> None:
    server.fault = lambda method, path: "slow"
    settings = replace(machines("a").settings, remote=RemoteSettings(server.url, request_seconds=20.0))
    begin = time.monotonic()
    with open_cache(settings) as cache:
        cache.fetch([action(str(number)) for number in range(100)])
    assert time.monotonic() - begin < 10


def test_nginx(tmp_path: Path) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    with running(nginx(folder)) as server:
        machines = Machines(tmp_path, f"http://127.0.0.1:{server.port}/team")
        made(machines("a"))
        assert executed(made(machines("b"))) == 0
        # The same files at an address where nothing may be written, as for pull requests.
        readers = Machines(tmp_path, f"http://127.0.0.1:{server.port}/read-only/team")
        assert executed(made(readers("c"))) == 0
        refused = made(readers("c"), action("New"))
        assert errors(refused) == {"remote-read-only": 1}
        assert remote(refused)["not_sent"] == 1
        assert executed(made(machines("d"), action("New"))) == 1
