"""HTTP as a protocol of remote caches: connections, tokens, TLS, and what each answer means."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from build.cache.conftest import action
from relaybuild.build.cache.remote.http import HttpTransport
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure, Site, is_overheard
from relaybuild.digest import Digest, digest_bytes

from .faults import Faults, faulty_server
from .servers import program

BLOB = b"blob" * 50_000
DIGEST = digest_bytes(BLOB)


@pytest.fixture
def server() -> Iterator[Faults]:
    with faulty_server() as started:
        yield started


@pytest.fixture
def transport(server: Faults) -> Iterator[HttpTransport]:
    with contextlib.closing(HttpTransport(Site(server.url))) as opened:
        yield opened


def content(transport: HttpTransport, digest: Digest = DIGEST) -> bytes | None:
    into = io.BytesIO()
    return into.getvalue() if transport.read_blob(digest, into) else None


def failure(transport: HttpTransport) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        transport.get_record(action(), "main")
    return caught.value


def test_a_connection_is_kept(server: Faults, transport: HttpTransport) -> None:
    transport.write_blob(DIGEST, BLOB)
    for _ in range(5):
        assert content(transport) == BLOB
        assert transport.missing([DIGEST, digest_bytes(b"x")]) == {digest_bytes(b"x")}
        assert transport.get_record(action(), "main") is None
    assert server.connections == 1


def test_each_thread_has_its_own_connection(server: Faults, transport: HttpTransport) -> None:
    transport.write_blob(DIGEST, BLOB)
    found: list[bytes | None] = []
    threads = [threading.Thread(target=lambda: found.append(content(transport))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [BLOB] * 8


def test_a_file_is_sent(tmp_path: Path, transport: HttpTransport) -> None:
    (tmp_path / "blob").write_bytes(BLOB)
    transport.write_blob(DIGEST, tmp_path / "blob")
    assert content(transport) == BLOB
    with pytest.raises(FileNotFoundError):
        transport.write_blob(DIGEST, tmp_path / "none")
    assert content(transport) == BLOB


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("401", Reason.REFUSED),
        ("403", Reason.REFUSED),
        ("405", Reason.READ_ONLY),
        ("413", Reason.TOO_LARGE),
        ("busy", Reason.BUSY),
        ("503", Reason.BUSY),
        ("500", Reason.SERVER),
        ("507", Reason.SERVER),
        ("418", Reason.PROTOCOL),
        ("204", Reason.PROTOCOL),
        ("redirect", Reason.PROTOCOL),
        ("html", Reason.PROTOCOL),
        ("empty", Reason.PROTOCOL),
    ],
)
def test_what_an_answer_means(server: Faults, transport: HttpTransport, word: str, reason: Reason) -> None:
    server.fault = lambda method, path: word
    assert failure(transport).reason is reason
    server.is_well()
    assert transport.get_record(action(), "main") is None, "the next request is as any other"


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 19, "\xb2", "1_0", "+5", "0x5", "-1", "five"])
def test_a_length_that_is_none(server: Faults, transport: HttpTransport, length: str) -> None:
    server.length = length
    server.fault = lambda method, path: "odd-length"
    assert failure(transport).reason is Reason.PROTOCOL
    assert transport.missing([DIGEST]) == set(), "it has something, and does not tell how much"


def test_what_is_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"220 mail.example ESMTP\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with contextlib.closing(HttpTransport(Site(f"http://127.0.0.1:{listener.getsockname()[1]}"))) as transport:
            assert failure(transport).reason in (Reason.PROTOCOL, Reason.BROKEN)
        thread.join(10)


@pytest.mark.parametrize("when", ["7", "", "soon", "date", "\xb2", "9" * 5000, "Mon, 1 Jan 99999999999 00:00:00 GMT"])
def test_when_to_come_again(server: Faults, transport: HttpTransport, when: str) -> None:
    server.retry_after = formatdate(time.time() + 100, usegmt=True) if when == "date" else when
    server.fault = lambda method, path: "busy"
    expected = {"7": 7.0, "date": pytest.approx(100.0, abs=20.0)}.get(when)
    assert failure(transport).retry_after == expected


def test_a_slow_server_is_not_waited_for(server: Faults) -> None:
    for word in ("slow", "dripping"):
        server.does(word, "GET", "ac")
        with contextlib.closing(HttpTransport(Site(server.url, request_seconds=0.5))) as transport:
            begin = time.monotonic()
            assert failure(transport).reason is Reason.TIMEOUT
            assert time.monotonic() - begin < 10


def test_closing_ends_what_is_under_way(server: Faults, transport: HttpTransport) -> None:
    server.fault = lambda method, path: "slow"
    threading.Timer(0.3, transport.close).start()
    begin = time.monotonic()
    failure(transport)
    assert time.monotonic() - begin < 10


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """A server with TLS whose certificate this process trusts."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [program("openssl", "Debian's openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with faulty_server(context) as started:
        yield started


def test_tls(certified: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Site(certified.url, "sesame", connect_seconds=20.0)
    with contextlib.closing(HttpTransport(patient)) as transport:
        transport.write_blob(DIGEST, BLOB)
        assert content(transport) == BLOB
        assert transport.describe().problems == ()
    assert certified.tokens == {"Bearer sesame"}
    monkeypatch.delenv("SSL_CERT_FILE")
    certified.requests.clear()
    with contextlib.closing(HttpTransport(patient)) as transport:
        assert failure(transport).reason is Reason.CONNECT
    assert certified.requests == [], "nothing is said to somebody who cannot show who he is"


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://host/", True), ("grpc://10.0.0.1", True), ("https://host/", False), ("http://127.0.0.1:8/", False)],
)
def test_whether_others_may_listen(url: str, expected: bool) -> None:
    assert is_overheard(url) is expected
