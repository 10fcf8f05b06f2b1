"""The remote-execution API: what servers are told and want, tokens, TLS, and every way in which they fail."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.server
import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.record import Output, Result
from relaybuild.build.cache.remote.reapi_failures import failure_of
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure, Site, Transport, connect
from relaybuild.build.cache.wire import bytes_field, varint_field
from relaybuild.digest import Digest, digest_bytes

from .servers import Grid, Server, grid, program, running

NAMESPACE = "main"
SECRET = "a secret of sixteen bytes or more, for HS256"
LARGE = 5 << 20

Handler = Callable[[bytes, "grpc.ServicerContext"], bytes]


def fresh_action(inputs: int = 1) -> Action:
    builder = ActionBuilder("pass", "Fold")
    for place in range(inputs):
        builder.input(f"in/{place:08d}", digest_bytes(b"%d" % place))
    return builder.build()


def record() -> bytes:
    return Result((Output("out", digest_bytes(b"content"), contents=b"content"),)).encode()


def opened(server: Server | int, scheme: str = "grpc", instance: str = "team/main", **site: Any) -> Any:
    port = server if isinstance(server, int) else server.port
    return contextlib.closing(connect(Site(f"{scheme}://127.0.0.1:{port}/{instance}", **site)))


def failing(call: Callable[[], object]) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        call()
    return caught.value


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """BuildGrid that lets everybody in."""
    with running(grid(tmp_path_factory.mktemp("grid"))) as started:
        yield started


@pytest.fixture
def transport(plain: Server) -> Iterator[Transport]:
    with opened(plain) as found:
        yield found


def test_all_that_an_action_names_is_there(transport: Transport) -> None:
    action = fresh_action(3)
    transport.put_record(action, NAMESPACE, record())
    needed = [action.message(NAMESPACE), action.command, *action.directories, b"content"]
    assert transport.missing([digest_bytes(each) for each in needed]) == set()


def test_a_directory_that_is_larger_than_a_message(transport: Transport) -> None:
    action = fresh_action(70_000)
    assert max(map(len, action.directories)) > LARGE
    assert transport.put_record(action, NAMESPACE, record())
    assert transport.get_record(action, NAMESPACE) == record()


def test_more_blobs_than_one_request_takes(transport: Transport) -> None:
    outputs = tuple(
        Output(f"out{place}", digest_bytes(content), contents=content)
        for place, content in enumerate(b"%06d" % place + b"x" * 100_000 for place in range(60))
    )
    result = Result(outputs).encode()
    with contextlib.closing(connect(Site(transport._site.url, max_record=16 << 20))) as wide:
        assert failing(lambda: wide.put_record(fresh_action(2), NAMESPACE, result)).reason in (
            Reason.TOO_LARGE,
            Reason.BUSY,
        )
    # The blobs went in several batches before the server refused so large a record.
    assert transport.missing([output.digest for output in outputs]) == set()


@pytest.mark.parametrize("size", [10, LARGE])
def test_content_that_does_not_match_is_refused(transport: Transport, tmp_path: Path, size: int) -> None:
    wrong, right = b"a" * size, b"b" * size
    digest = digest_bytes(right)
    file = tmp_path / "blob"
    for content in (wrong, right[:-1]):
        file.write_bytes(content)
        for source in (content, file):
            assert failing(lambda source=source: transport.write_blob(digest, source)).reason is Reason.WRONG_CONTENT
    assert transport.missing([digest]) == {digest}


@pytest.mark.parametrize("size", [10, LARGE, LARGE + 10])
def test_a_file_that_has_grown_does_no_harm(transport: Transport, tmp_path: Path, size: int) -> None:
    right = b"c" * size
    file = tmp_path / "blob"
    file.write_bytes(right + b"more")
    with contextlib.suppress(RemoteFailure):
        transport.write_blob(digest_bytes(right), file)
    into = io.BytesIO()
    assert not transport.read_blob(digest_bytes(right), into) or into.getvalue() == right


def test_many_threads_share_a_transport(transport: Transport) -> None:
    blobs = [bytes([place]) * (LARGE if place % 5 == 0 else 1000) for place in range(20)]

    def there_and_back(blob: bytes) -> bool:
        digest, into = digest_bytes(blob), io.BytesIO()
        transport.write_blob(digest, blob)
        return transport.read_blob(digest, into) and into.getvalue() == blob

    with futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, blobs))


def test_the_empty_blob_is_always_there(transport: Transport) -> None:
    empty, into = digest_bytes(b""), io.BytesIO()
    transport.write_blob(empty, b"")
    assert transport.missing([empty]) == set()
    assert transport.read_blob(empty, into)
    assert into.getvalue() == b""


def test_an_instance_that_is_not_there(plain: Server) -> None:
    with opened(plain, instance="another") as transport:
        (problem,) = transport.describe().problems
        assert "another" in problem
        assert failing(lambda: transport.get_record(fresh_action(), NAMESPACE)).reason is Reason.PROTOCOL


def test_a_description_names_the_limits(transport: Transport) -> None:
    found = transport.describe()
    assert found.checks_content
    assert found.facts == {"instance": "team/main", "API versions": "2.0 to 2.2", "bytes in a batch": "4193280"}


def test_a_server_that_takes_nothing(tmp_path: Path) -> None:
    with running(grid(tmp_path, Grid(is_read_only=True))) as server, opened(server) as transport:
        found = transport.describe()
        assert found.can_read
        assert found.can_write is False
        assert found.problems == ("the server takes no results",)
        assert transport.get_record(fresh_action(), NAMESPACE) is None
        assert failing(lambda: transport.put_record(fresh_action(), NAMESPACE, record())).reason is Reason.READ_ONLY
        assert failing(lambda: transport.write_blob(digest_bytes(b"x"), b"x")).reason is Reason.READ_ONLY


def token(secret: str) -> str:
    """A JSON web token that is good for a minute."""

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"exp": int(time.time()) + 60}
    signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{encoded(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"


def test_a_token_opens_the_server(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    how = Grid(authorization=f'method: jwt\n  secret: "{secret}"\n  algorithm: hs256')
    with running(grid(tmp_path, how)) as server:
        forged = token("another secret of sixteen bytes or more")
        for wrong in ("", forged):
            with opened(server, token=wrong) as transport:
                failure = failing(lambda transport=transport: transport.get_record(fresh_action(), NAMESPACE))
                assert failure.reason is Reason.REFUSED
                assert forged not in str(failure)
        with opened(server, token=token(SECRET)) as transport:
            assert transport.put_record(fresh_action(), NAMESPACE, record())
            transport.write_blob(digest_bytes(b"y" * LARGE), b"y" * LARGE)
            assert transport.read_blob(digest_bytes(b"y" * LARGE), io.BytesIO())


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [program("openssl", "Debian's openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    channel = f'credentials: {{tls-server-key: "{key}", tls-server-cert: "{certificate}"}}'
    with running(grid(tmp_path, Grid(channel=f"insecure-mode: false\n    {channel}"))) as server:
        for scheme in ("grpcs", "grpc"):
            with opened(server, scheme) as transport:
                failure = failing(lambda transport=transport: transport.get_record(fresh_action(), NAMESPACE))
                assert failure.reason is Reason.CONNECT
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with opened(server, "grpcs") as transport:
            assert transport.put_record(fresh_action(), NAMESPACE, record())
            assert transport.describe().problems == ()


def test_who_takes_connections_and_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        begin = time.monotonic()
        for scheme in ("grpc", "grpcs"):
            with opened(silent.getsockname()[1], scheme) as transport:
                failure = failing(lambda transport=transport: transport.get_record(fresh_action(), NAMESPACE))
                assert failure.reason is Reason.CONNECT
        assert time.monotonic() - begin < 10


class Page(http.server.BaseHTTPRequestHandler):
    """Answers as a server of pages does."""

    def log_message(self, *_arguments: object) -> None:
        pass


def test_a_server_of_another_protocol() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        with opened(pages.server_port) as transport:
            failure = failing(lambda: transport.get_record(fresh_action(), NAMESPACE))
        pages.shutdown()
    assert failure.reason is Reason.PROTOCOL


def test_nothing_is_printed(tmp_path: Path) -> None:
    text = (
        "from relaybuild.build.cache.remote.transport import Site, connect\n"
        "for url in ('grpc://127.0.0.1:1/x', 'grpcs://127.0.0.1:1/x'):\n"
        "    transport = connect(Site(url))\n"
        "    assert transport.describe().problems\n"
        "    transport.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")


# What follows is told by a server that is made here: no real one fails on demand.


class Liar(grpc.GenericRpcHandler):
    """Answers calls by the last part of their name; what has no answer is not implemented."""

    def __init__(self, answers: dict[str, Handler]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = handler_call_details.method.rpartition("/")[2]
        self.asked.append(name)
        answer = self.answers.get(name)
        if answer is None:
            return None
        if name == "Read":
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([answer(request, context)]))
        if name == "Write":
            return grpc.stream_unary_rpc_method_handler(lambda requests, context: answer(b"".join(requests), context))
        return grpc.unary_unary_rpc_method_handler(answer)


def answer(data: bytes) -> Handler:
    return lambda _request, _context: data


def capabilities(functions: bytes = b"\x01", low: int = 2, high: int = 2) -> bytes:
    caching = bytes_field(1, functions) + bytes_field(2, varint_field(1, 1))
    versions = bytes_field(4, varint_field(1, low)) + bytes_field(5, varint_field(1, high))
    return bytes_field(1, caching) + versions


@contextlib.contextmanager
def lying(answers: dict[str, Handler], **site: Any) -> Iterator[tuple[Transport, Liar]]:
    """A transport to a server that answers so."""
    liar = Liar({"GetCapabilities": answer(capabilities()), **answers})
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((liar,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with opened(port, **site) as transport:
            yield transport, liar
    finally:
        server.stop(None).wait(10)


def aborting(code: grpc.StatusCode, detail: str, retry: bytes = b"") -> Handler:
    def handler(_request: bytes, context: grpc.ServicerContext) -> bytes:
        if retry:
            context.set_trailing_metadata((("grpc-status-details-bin", retry),))
        context.abort(code, detail)
        raise AssertionError

    return handler


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNAUTHENTICATED", Reason.REFUSED),
        ("PERMISSION_DENIED", Reason.REFUSED),
        ("RESOURCE_EXHAUSTED", Reason.BUSY),
        ("DEADLINE_EXCEEDED", Reason.TIMEOUT),
        ("UNAVAILABLE", Reason.BROKEN),
        ("UNIMPLEMENTED", Reason.PROTOCOL),
        ("INVALID_ARGUMENT", Reason.PROTOCOL),
        ("INTERNAL", Reason.SERVER),
        ("UNKNOWN", Reason.SERVER),
    ],
)
def test_statuses_have_reasons(code: str, reason: Reason) -> None:
    with lying({"GetActionResult": aborting(grpc.StatusCode[code], "so it is")}) as (transport, _):
        failure = failing(lambda: transport.get_record(fresh_action(), NAMESPACE))
    assert failure.reason is reason
    assert "so it is" in failure.detail


@pytest.mark.parametrize("code", ["NOT_FOUND", "DATA_LOSS"])
def test_what_a_server_has_lost_is_not_there(code: str) -> None:
    lost = aborting(grpc.StatusCode[code], "no")
    with lying({"GetActionResult": lost, "Read": lost}) as (transport, _):
        assert transport.get_record(fresh_action(), NAMESPACE) is None
        assert not transport.read_blob(digest_bytes(b"x" * LARGE), io.BytesIO())


def test_a_busy_server_says_when_to_come_again() -> None:
    delay = bytes_field(1, varint_field(1, 7) + varint_field(2, 500_000_000))
    hint = bytes_field(1, "type.googleapis.com/google.rpc.RetryInfo") + bytes_field(2, delay)
    status = varint_field(1, 14) + bytes_field(2, "later") + bytes_field(3, hint)
    with lying({"FindMissingBlobs": aborting(grpc.StatusCode.UNAVAILABLE, "later", status)}) as (transport, _):
        failure = failing(lambda: transport.missing([digest_bytes(b"x")]))
    assert (failure.reason, failure.retry_after) == (Reason.BUSY, 7.5)


def test_a_slow_server_is_not_waited_for() -> None:
    released = threading.Event()

    def slow(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        released.wait(30)
        return b""

    begin = time.monotonic()
    with lying(dict.fromkeys(("GetActionResult", "Read", "Write"), slow), request_seconds=0.2) as (transport, _):
        digest = digest_bytes(b"x" * LARGE)
        for call in (
            lambda: transport.get_record(fresh_action(), NAMESPACE),
            lambda: transport.read_blob(digest, io.BytesIO()),
            lambda: transport.write_blob(digest, b"x" * LARGE),
        ):
            assert failing(call).reason is Reason.TIMEOUT
        assert time.monotonic() - begin < 10
        released.set()


@pytest.mark.parametrize(
    "said",
    [capabilities(b"\x02\x03"), capabilities(low=3, high=3), capabilities(low=1, high=1), b"<html>", b"\x0a\xff"],
    ids=["other digests", "a later version", "an earlier version", "a page", "cut"],
)
def test_a_server_that_cannot_be_used_is_asked_for_nothing(said: bytes) -> None:
    with lying({"GetCapabilities": answer(said)}) as (transport, liar):
        for _ in range(2):
            assert failing(lambda: transport.get_record(fresh_action(), NAMESPACE)).reason is Reason.PROTOCOL
        assert set(liar.asked) == {"GetCapabilities"}
        assert transport.describe().problems


def test_capabilities_are_asked_for_once_and_first() -> None:
    with lying({"GetActionResult": answer(record())}) as (transport, liar):
        for _ in range(3):
            assert transport.get_record(fresh_action(), NAMESPACE) == record()
    assert liar.asked == ["GetCapabilities"] + ["GetActionResult"] * 3


@pytest.mark.parametrize("name", ["FindMissingBlobs", "BatchReadBlobs", "BatchUpdateBlobs", "Read", "Write"])
@pytest.mark.parametrize("said", [b"<html>", b"\x0a\x05ab"])
def test_answers_that_are_none(name: str, said: bytes) -> None:
    digest, large = digest_bytes(b"x"), digest_bytes(b"x" * LARGE)
    calls: dict[str, Callable[[Transport], object]] = {
        "FindMissingBlobs": lambda transport: transport.missing([digest]),
        "BatchReadBlobs": lambda transport: transport.read_blob(digest, io.BytesIO()),
        "BatchUpdateBlobs": lambda transport: transport.write_blob(digest, b"x"),
        "Read": lambda transport: transport.read_blob(large, io.BytesIO()),
        "Write": lambda transport: transport.write_blob(large, b"x" * LARGE),
    }
    with lying({name: answer(said)}) as (transport, _):
        assert failing(lambda: calls[name](transport)).reason in (Reason.PROTOCOL, Reason.BROKEN)


def test_a_server_that_answers_for_another_blob_is_not_believed() -> None:
    asked, other = digest_bytes(b"asked"), digest_bytes(b"other")
    digest = bytes_field(1, bytes_field(1, other.hex) + varint_field(2, other.size))
    with lying({"BatchReadBlobs": answer(bytes_field(1, digest + bytes_field(2, b"other")))}) as (transport, _):
        into = io.BytesIO()
        assert failing(lambda: transport.read_blob(asked, into)).reason is Reason.PROTOCOL
        assert into.getvalue() == b""


@pytest.mark.parametrize("size", [5, LARGE])
def test_more_than_a_blob_is_not_read(size: int) -> None:
    digest = digest_bytes(b"x" * size)
    named = bytes_field(1, bytes_field(1, digest.hex) + varint_field(2, digest.size))
    answers = {
        "BatchReadBlobs": answer(bytes_field(1, named + bytes_field(2, b"y" * (size + 1)))),
        "Read": answer(bytes_field(10, b"y" * (size + 1))),
    }
    with lying(answers) as (transport, _):
        into = io.BytesIO()
        assert transport.read_blob(digest, into)
        assert into.getvalue() == b"y" * size


@pytest.mark.parametrize("code", ["INTERNAL", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED"])
def test_a_refusal_to_overwrite_is_told_by_what_is_there(code: str) -> None:
    """Servers that keep the first record have no word of their own for it."""
    kept: list[bytes] = []

    def kept_result(_request: bytes, context: grpc.ServicerContext) -> bytes:
        if not kept:
            context.abort(grpc.StatusCode.NOT_FOUND, "none")
        return kept[0]

    def refuse(_request: bytes, context: grpc.ServicerContext) -> bytes:
        if who_is_first:
            kept.append(record())
        context.abort(grpc.StatusCode[code], "no")
        raise AssertionError

    answers = {"GetActionResult": kept_result, "UpdateActionResult": refuse, "FindMissingBlobs": answer(b"")}
    with lying(answers) as (transport, _):
        who_is_first = False
        assert failing(lambda: transport.put_record(fresh_action(), NAMESPACE, record())).reason is Reason.SERVER
        who_is_first = True  # another client, between our look and our update
        assert not transport.put_record(fresh_action(), NAMESPACE, record())
        assert not transport.put_record(fresh_action(), NAMESPACE, record(), replace=True)


def test_what_the_library_says_itself() -> None:
    for detail, reason in (
        ("failed to connect to all addresses; last error: ...", Reason.CONNECT),
        ("Received message larger than max (9 vs. 8)", Reason.TOO_LARGE),
        ("Received http2 header with status: 503", Reason.BUSY),
        ("Received http2 header with status: 302", Reason.PROTOCOL),
        ("Received RST_STREAM with error code 2", Reason.BROKEN),
    ):
        assert failure_of("UNAVAILABLE", detail).reason is reason
    removed = "Stream removed (Deadline Exceeded)"
    assert failure_of("DEADLINE_EXCEEDED", removed).reason is Reason.TIMEOUT
    assert len(failure_of("INTERNAL", "x" * 10_000).detail) < 400
    assert failure_of("UNAVAILABLE", "", b"no status").retry_after is None


def test_a_digest_of_a_wrong_size_is_another_blob(transport: Transport) -> None:
    blob = b"a blob with a size"
    transport.write_blob(digest_bytes(blob), blob)
    into = io.BytesIO()
    wrong = Digest(digest_bytes(blob).hex, len(blob) - 1)
    with contextlib.suppress(RemoteFailure):
        transport.read_blob(wrong, into)
    assert len(into.getvalue()) <= wrong.size
