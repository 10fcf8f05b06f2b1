"""Buckets: where things lie in them, who is asked by which variables, and every way in which a store fails."""

from __future__ import annotations

import contextlib
import http.server
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure, Site, Transport, connect
from relaybuild.digest import digest_bytes
from relaybuild.errors import UserError

from .remotes import Remote, serving

RECORD = b"a record"
LARGE = 20 << 20


def some_action(name: str = "Fold") -> Action:
    return ActionBuilder("pass", name).build()


def failing(call: Callable[[], object]) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        call()
    return caught.value


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A store with a bucket."""
    with serving("s3", tmp_path_factory.mktemp("s3")) as started:
        yield started


def listed(remote: Remote) -> set[str]:
    address = f"http://127.0.0.1:{remote.server.port}"
    bucket = S3Store("results", endpoint=address, region="us-east-1", client_options={"allow_http": True})
    return {each["path"] for batch in obstore.list(bucket) for each in batch}


def test_where_things_lie(remote: Remote) -> None:
    action, digest = some_action(), digest_bytes(b"where")
    with remote.connect() as transport:
        transport.put_record(action, "pr/1 é", RECORD)
        transport.write_blob(digest, b"where")
    assert {f"team/ac/pr%2F1%20%C3%A9/{action.key('pr/1 é')}", f"team/cas/{digest.hex}"} <= listed(remote)


def test_without_a_prefix(remote: Remote) -> None:
    digest = digest_bytes(b"at the root")
    url = remote.url.replace("/team?", "?")
    with contextlib.closing(connect(Site(url))) as transport:
        transport.write_blob(digest, b"at the root")
        assert transport.missing([digest]) == set()
    assert f"cas/{digest.hex}" in listed(remote)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_variables_of_aws_say_where_it_is(remote: Remote, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{remote.server.port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with contextlib.closing(connect(Site("s3://results/team"))) as transport:
        assert transport.put_record(some_action(name), "main", RECORD)
        assert transport.describe().problems == ()


def test_one_of_many_writers_is_the_first(remote: Remote) -> None:
    """The store decides: nobody looks first."""
    action = some_action("Many")
    with remote.connect() as transport, futures.ThreadPoolExecutor(8) as pool:
        records = [b"record %d" % place for place in range(8)]
        were_first = list(pool.map(lambda record: transport.put_record(action, "main", record), records))
        assert sum(were_first) == 1
        assert transport.get_record(action, "main") == records[were_first.index(True)]


def test_large_blobs_go_in_parts(remote: Remote, tmp_path: Path) -> None:
    blob = bytes(range(256)) * (LARGE // 256) + b"rest"
    digest, file = digest_bytes(blob), tmp_path / "blob"
    file.write_bytes(blob)
    with remote.connect() as transport:
        transport.write_blob(digest, file)
        into = io.BytesIO()
        assert transport.read_blob(digest, into)
    assert into.getvalue() == blob


def test_a_bucket_that_is_not_there(remote: Remote) -> None:
    with contextlib.closing(connect(Site(remote.url.replace("results", "another")))) as transport:
        assert transport.describe().problems == ("server: there is no such bucket",)
        digest = digest_bytes(b"x")
        for call in (
            lambda: transport.get_record(some_action(), "main"),
            lambda: transport.put_record(some_action(), "main", RECORD),
            lambda: transport.read_blob(digest, io.BytesIO()),
            lambda: transport.write_blob(digest, b"x"),
        ):
            assert failing(call).reason is Reason.SERVER


@pytest.mark.parametrize("query", ["endpont=http://127.0.0.1", "endpoint=http://127.0.0.1&token=x"])
def test_unknown_options_of_the_url(query: str) -> None:
    with pytest.raises(UserError, match="expected endpoint and region at most"):
        connect(Site(f"s3://results/team?{query}"))


# What follows is told by a server that is made here: no real one fails on demand.


class Store(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status, the headers and the content given; 0 ends the connection instead."""

    status, headers_sent, content, length = 200, {}, b"", -1
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        if self.status == 0:
            return
        self.send_response(self.status)
        length = len(self.content) if self.length < 0 else self.length
        for name, value in {"Content-Length": str(length), "Connection": "close", **self.headers_sent}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.content)

    do_PUT = do_HEAD = do_GET

    def log_message(self, *_arguments: object) -> None:
        pass


@contextlib.contextmanager
def answering(
    status: int, content: bytes = b"", length: int = -1, headers: dict[str, str] | None = None
) -> Iterator[Transport]:
    """A transport to a server that answers so."""
    fields = {"status": status, "content": content, "length": length, "headers_sent": headers or {}}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (Store,), fields)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"s3://results/team?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1"
        try:
            with contextlib.closing(connect(Site(url))) as transport:
                yield transport
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, Reason.REFUSED),
        (403, Reason.REFUSED),
        (405, Reason.READ_ONLY),
        (413, Reason.TOO_LARGE),
        (429, Reason.BUSY),
        (500, Reason.SERVER),
        (503, Reason.BUSY),
        (400, Reason.PROTOCOL),
        (302, Reason.PROTOCOL),
        (0, Reason.BROKEN),
    ],
)
def test_statuses_have_reasons(status: int, reason: Reason) -> None:
    with answering(status) as transport:
        digest = digest_bytes(b"x")
        for call in (
            lambda: transport.get_record(some_action(), "main"),
            lambda: transport.put_record(some_action(), "main", RECORD),
            lambda: transport.missing([digest]),
            lambda: transport.read_blob(digest, io.BytesIO()),
            lambda: transport.write_blob(digest, b"x"),
        ):
            failure = failing(call)
            assert failure.reason is reason
            assert len(failure.detail) < 300
        assert transport.describe().problems


METADATA = {"ETag": '"x"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}


def test_an_answer_that_was_cut() -> None:
    with answering(200, b"half", 100, METADATA) as transport:
        assert failing(lambda: transport.get_record(some_action(), "main")).reason is Reason.BROKEN


def test_a_page_is_no_store() -> None:
    with answering(200, b"<html>", headers={"Content-Type": "text/html; charset=utf-8"}) as transport:
        assert failing(lambda: transport.get_record(some_action(), "main")).reason is Reason.PROTOCOL
        assert failing(lambda: transport.put_record(some_action(), "main", RECORD)).reason is Reason.PROTOCOL


def test_a_store_that_does_not_know_parts() -> None:
    """Who asks for a part and is given the whole has asked somebody else."""
    with answering(200, b"whole", headers=METADATA) as transport:
        into = io.BytesIO()
        assert failing(lambda: transport.read_blob(digest_bytes(b"who"), into)).reason is Reason.PROTOCOL
        assert into.getvalue() == b""


def test_who_takes_connections_and_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        url = f"s3://results?endpoint=http://127.0.0.1:{silent.getsockname()[1]}&region=us-east-1"
        begin = time.monotonic()
        with contextlib.closing(connect(Site(url, request_seconds=0.5))) as transport:
            assert failing(lambda: transport.get_record(some_action(), "main")).reason is Reason.TIMEOUT
        assert time.monotonic() - begin < 10


def test_credentials_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETSECRET")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TOKENTOKEN")
    for status in (403, 500, 0):
        with answering(status) as transport:
            text = str(failing(lambda transport=transport: transport.get_record(some_action(), "main")))
            assert "SECRETSECRET" not in text
            assert "TOKENTOKEN" not in text
            assert "SECRETSECRET" not in str(transport.describe())
