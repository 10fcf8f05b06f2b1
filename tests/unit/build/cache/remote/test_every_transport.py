"""What holds for each protocol, tried with real servers: what is put comes back, what fails says why, in time."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.record import Output, Result
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure, Site, Transport, connect
from relaybuild.digest import Digest, digest_bytes

from .remotes import KINDS, Remote, serving

NAMESPACE = "main"
GRID_BATCH = 4193280
SIZES = (1, 1000, GRID_BATCH - 256, GRID_BATCH - 255, GRID_BATCH, 9 << 20)
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def remote(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """One server of each kind for all tests that leave it as it was."""
    with serving(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """A server of each kind for one test, which may end it."""
    with serving(request.param, tmp_path) as started:
        yield started


@pytest.fixture
def transport(remote: Remote) -> Iterator[Transport]:
    with remote.connect() as opened:
        yield opened


def fresh_action() -> Action:
    """An action of which no server has heard."""
    content = os.urandom(8)
    return ActionBuilder("pass", f"Fold{next(_numbers)}").input("in/a/module", digest_bytes(content)).build()


def fresh_blob(size: int) -> bytes:
    return os.urandom(min(size, 1 << 16)).ljust(size, b"\0")


def result_of(*blobs: bytes) -> bytes:
    """A record whose outputs are blobs, but for one, which is inline."""
    outputs = [Output(f"blob{place}", digest_bytes(blob)) for place, blob in enumerate(blobs)]
    inline = os.urandom(10)
    return Result((*outputs, Output("inline", digest_bytes(inline), True, inline)), 5.5, 1.25, "here").encode()


def content_of(transport: Transport, digest: Digest) -> bytes | None:
    into = io.BytesIO()
    return into.getvalue() if transport.read_blob(digest, into) else None


def failing(call: Callable[[], object]) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        call()
    return caught.value


def test_what_is_not_there(transport: Transport) -> None:
    digest = digest_bytes(fresh_blob(100))
    large = digest_bytes(fresh_blob(5 << 20))
    assert transport.get_record(fresh_action(), NAMESPACE) is None
    assert transport.missing([digest, large]) == {digest, large}
    assert content_of(transport, digest) is None
    assert content_of(transport, large) is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_file", [False, True], ids=["bytes", "file"])
def test_a_blob_comes_back(transport: Transport, tmp_path: Path, size: int, is_file: bool) -> None:
    blob = fresh_blob(size)
    digest = digest_bytes(blob)
    file = tmp_path / "blob"
    file.write_bytes(blob)
    transport.write_blob(digest, file if is_file else blob)
    assert content_of(transport, digest) == blob
    assert transport.missing([digest]) == set()
    transport.write_blob(digest, blob)  # once more does no harm
    assert content_of(transport, digest) == blob


def test_missing_blobs_are_told_from_others(transport: Transport) -> None:
    blobs = [fresh_blob(20) for _ in range(12)]
    digests = [digest_bytes(blob) for blob in blobs]
    for digest, blob in list(zip(digests, blobs))[::3]:
        transport.write_blob(digest, blob)
    assert transport.missing(digests) == set(digests) - set(digests[::3])
    assert transport.missing([]) == set()


def test_a_file_that_is_not_there_is_the_callers_error(transport: Transport, tmp_path: Path) -> None:
    for size in (10, 9 << 20):
        with pytest.raises(OSError, match="nothing-here"):
            transport.write_blob(digest_bytes(fresh_blob(size)), tmp_path / "nothing-here")


def test_a_record_comes_back_as_it_was_put(transport: Transport) -> None:
    action, blob = fresh_action(), fresh_blob(5000)
    record = result_of(blob)
    transport.write_blob(digest_bytes(blob), blob)
    assert transport.put_record(action, NAMESPACE, record)
    assert transport.get_record(action, NAMESPACE) == record
    assert transport.get_record(action, "another") is None
    assert transport.get_record(fresh_action(), NAMESPACE) is None


def test_a_record_of_an_output_without_bytes_comes_back(transport: Transport) -> None:
    action, record = fresh_action(), Result((Output("empty", digest_bytes(b""), contents=b""),)).encode()
    assert transport.put_record(action, NAMESPACE, record)
    assert transport.get_record(action, NAMESPACE) == record


def test_the_first_record_stays(transport: Transport) -> None:
    action, first = fresh_action(), result_of()
    assert transport.put_record(action, NAMESPACE, first)
    for second in (first, result_of()):
        assert not transport.put_record(action, NAMESPACE, second)
        assert transport.get_record(action, NAMESPACE) == first


def test_a_record_is_replaced_where_the_server_allows_it(remote: Remote, transport: Transport) -> None:
    action, first, second = fresh_action(), result_of(), result_of()
    assert transport.put_record(action, NAMESPACE, first)
    is_replaced = transport.put_record(action, NAMESPACE, second, replace=True)
    assert is_replaced == (remote.kind != "grid-write-once")
    assert transport.get_record(action, NAMESPACE) == (second if is_replaced else first)


def test_a_record_that_is_too_large_is_not_read(remote: Remote, transport: Transport) -> None:
    action, record = fresh_action(), result_of()
    transport.put_record(action, NAMESPACE, record)
    with remote.connect(max_record=len(record) - 1) as narrow:
        assert failing(lambda: narrow.get_record(action, NAMESPACE)).reason is Reason.TOO_LARGE


def test_a_lost_blob_is_missed_and_can_be_put_again(remote: Remote, transport: Transport) -> None:
    action, blob = fresh_action(), fresh_blob(5000)
    digest, record = digest_bytes(blob), result_of(blob)
    transport.write_blob(digest, blob)
    transport.put_record(action, NAMESPACE, record)
    remote.lose(digest)
    # Whoever serves the remote-execution API tells of no result that is not complete.
    assert transport.get_record(action, NAMESPACE) == (None if remote.kind.startswith("grid") else record)
    assert transport.missing([digest]) == {digest}
    assert content_of(transport, digest) is None
    transport.write_blob(digest, blob)
    transport.put_record(action, NAMESPACE, record)
    assert transport.get_record(action, NAMESPACE) == record
    assert content_of(transport, digest) == blob


@pytest.mark.parametrize("size", [5000, 9 << 20])
def test_never_more_is_read_than_a_blob_has(remote: Remote, transport: Transport, size: int) -> None:
    blob = fresh_blob(size)
    digest = digest_bytes(blob)
    transport.write_blob(digest, blob)
    remote.alter(digest, blob + b"more")
    into = io.BytesIO()
    with contextlib.suppress(RemoteFailure):
        transport.read_blob(digest, into)
    assert len(into.getvalue()) <= size


@pytest.mark.parametrize("size", [5000, 9 << 20])
def test_a_blob_that_was_cut_is_not_taken_for_whole(remote: Remote, transport: Transport, size: int) -> None:
    blob = fresh_blob(size)
    digest = digest_bytes(blob)
    transport.write_blob(digest, blob)
    remote.alter(digest, blob[: size // 2])
    found = None
    with contextlib.suppress(RemoteFailure):
        found = content_of(transport, digest)
    assert found != blob


def test_a_server_describes_itself(transport: Transport) -> None:
    found = transport.describe()
    assert found.problems == ()
    assert found.can_read
    assert found.can_write is not False


def test_an_ended_server_is_told_at_once_and_found_again(own: Remote) -> None:
    action, blob = fresh_action(), fresh_blob(5000)
    digest, record = digest_bytes(blob), result_of(blob)
    with own.connect() as transport:
        transport.write_blob(digest, blob)
        transport.put_record(action, NAMESPACE, record)
        own.server.kill()
        begin = time.monotonic()
        for call in (
            lambda: transport.get_record(action, NAMESPACE),
            lambda: transport.put_record(fresh_action(), NAMESPACE, record),
            lambda: transport.missing([digest]),
            lambda: content_of(transport, digest),
            lambda: transport.write_blob(digest, blob),
        ):
            assert failing(call).reason in (Reason.CONNECT, Reason.BROKEN)
        assert transport.describe().problems
        assert not transport.describe().can_read
        assert time.monotonic() - begin < 10
        own.start()
        found = eventually(lambda: transport.get_record(action, NAMESPACE))
        # What it kept in memory is gone: a miss.
        assert found == (record if own.kind in ("nginx", "grid-write-once") else None)
        transport.write_blob(digest, blob)
        transport.put_record(action, NAMESPACE, record)
        assert transport.get_record(action, NAMESPACE) == record
        assert content_of(transport, digest) == blob


def test_a_server_that_dies_while_a_blob_is_read(own: Remote) -> None:
    blob = fresh_blob(64 << 20)
    digest = digest_bytes(blob)

    class Deadly(io.BytesIO):
        """Ends the server when the first bytes arrive."""

        def write(self, data: object) -> int:
            own.server.kill()
            return 0

    with own.connect() as transport:
        transport.write_blob(digest, blob)
        begin = time.monotonic()
        assert failing(lambda: transport.read_blob(digest, Deadly())).reason in (Reason.CONNECT, Reason.BROKEN)
        assert time.monotonic() - begin < 10


def test_nobody_at_the_address(remote: Remote) -> None:
    url = remote.url.replace(str(remote.server.port), "1")
    with contextlib.closing(connect(Site(url))) as transport:
        assert failing(lambda: transport.get_record(fresh_action(), NAMESPACE)).reason is Reason.CONNECT


def test_a_closed_transport_fails(remote: Remote) -> None:
    with remote.connect() as transport:
        transport.missing([digest_bytes(b"x")])
    failing(lambda: transport.get_record(fresh_action(), NAMESPACE))
    failing(lambda: transport.write_blob(digest_bytes(b"x"), b"x"))


def eventually(ask: Callable[[], bytes | None]) -> bytes | None:
    """What a server answers that was started again, once its clients notice."""
    end = time.monotonic() + 10
    while True:
        try:
            return ask()
        except RemoteFailure:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
