"""When a server is asked again, and when it is left alone."""

from __future__ import annotations

import threading
import time

import pytest

from relaybuild.build.cache.remote.gate import MAX_FAILURES, Gate, LeftAlone
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure


class Server:
    """Answers after failures; counts how often it was asked."""

    def __init__(self, *failures: RemoteFailure) -> None:
        self.failures = list(failures)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


def failing(reason: Reason, retry_after: float | None = None) -> RemoteFailure:
    return RemoteFailure(reason, "why", retry_after)


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    server = Server(failing(Reason.BUSY, 0.1), failing(Reason.BUSY, 0.0))
    begin = time.monotonic()
    assert Gate().pass_through(server) == "answer"
    assert server.asked == 3
    assert time.monotonic() - begin >= 0.1


def test_nobody_waits_longer_than_he_has_patience_for() -> None:
    gate, server = Gate(patience=1.0), Server(failing(Reason.BUSY, 5.0))
    begin = time.monotonic()
    with pytest.raises(RemoteFailure):
        gate.pass_through(server)
    assert time.monotonic() - begin < 0.5
    assert gate.pass_through(server) == "answer"


def test_all_waits_together_are_limited() -> None:
    gate = Gate(patience=0.25)
    for _ in range(2):
        assert gate.pass_through(Server(failing(Reason.BUSY, 0.1))) == "answer"
    with pytest.raises(RemoteFailure):
        gate.pass_through(Server(failing(Reason.BUSY, 0.1)))
    # Who writes has waited for nothing yet.
    assert gate.pass_through(Server(failing(Reason.BUSY, 0.1)), is_write=True) == "answer"


def test_failures_in_a_row_end_it() -> None:
    gate, server = Gate(), Server(*[failing(Reason.SERVER)] * MAX_FAILURES)
    for _ in range(MAX_FAILURES):
        with pytest.raises(RemoteFailure):
            gate.pass_through(server)
    for is_write in (False, True):
        with pytest.raises(LeftAlone, match="3 failures"):
            gate.pass_through(server, is_write=is_write)
    assert (server.asked, gate.held_back) == (MAX_FAILURES, 2)


@pytest.mark.parametrize("reason", [Reason.WRONG_CONTENT, Reason.TOO_LARGE])
def test_what_is_wrong_with_a_blob_does_not_end_it(reason: Reason) -> None:
    gate, server = Gate(), Server(*[failing(reason)] * 10)
    for _ in range(10):
        with pytest.raises(RemoteFailure):
            gate.pass_through(server)
    assert gate.pass_through(server) == "answer"


def test_an_answer_forgives_failures() -> None:
    gate = Gate()
    for _ in range(5):
        server = Server(*[failing(Reason.BROKEN)] * (MAX_FAILURES - 1))
        for _ in range(MAX_FAILURES - 1):
            with pytest.raises(RemoteFailure):
                gate.pass_through(server)
        assert gate.pass_through(server) == "answer"


@pytest.mark.parametrize("reason", [Reason.READ_ONLY, Reason.REFUSED])
def test_a_server_that_takes_nothing_can_be_read(reason: Reason) -> None:
    gate = Gate()
    with pytest.raises(RemoteFailure):
        gate.pass_through(Server(failing(reason)), is_write=True)
    with pytest.raises(LeftAlone, match="takes nothing"):
        gate.pass_through(Server(), is_write=True)
    assert gate.pass_through(Server()) == "answer"


def test_the_end_ends_waits() -> None:
    gate = Gate(patience=60.0)
    threading.Timer(0.1, gate.end).start()
    begin = time.monotonic()
    with pytest.raises(RemoteFailure):
        gate.pass_through(Server(failing(Reason.BUSY, 30.0)))
    assert time.monotonic() - begin < 5
