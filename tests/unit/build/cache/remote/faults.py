"""A server of a remote cache over HTTP that goes wrong where a test wants it to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_SECONDS = 30.0
"""Longer than any client under test waits."""


@dataclass
class Faults:
    """What a server has, by path, and how it answers.

    `fault` gives a word for a request, or None where all is well; `keep` makes of what is put what is kept. `requests`
    are those that came, and `tokens` what they were authorized by. Each waits for `delay` seconds; redirections lead to
    `place`, and `length` is what is said of a length that is none. `connections` is how many there were.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    fault: Callable[[str, str], str | None] = lambda method, path: None
    keep: Callable[[str, bytes], bytes] = lambda path, body: body
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    delay: float = 0.0
    retry_after: str = "0"
    length: str = ""
    place: str = "http://other.example/"
    scheme: str = "http"
    port: int = 0
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/team"

    def paths(self, kind: str) -> list[str]:
        """What it has of a kind, `ac` or `cas`."""
        return sorted(path for path in self.files if f"/{kind}/" in path)

    def does(self, word: str, method: str, kind: str, times: int = 1 << 30) -> None:
        """Go wrong in one way, for one method and kind, so many times; else all is well."""
        left = [times]

        def fault(asked: str, path: str) -> str | None:
            if asked != method or f"/{kind}/" not in path or not left[0]:
                return None
            left[0] -= 1
            return word

        self.fault = fault

    def is_well(self) -> None:
        self.fault = lambda method, path: None


@contextlib.contextmanager
def faulty_server(tls: ssl.SSLContext | None = None) -> Iterator[Faults]:
    """A server that answers while the block runs."""
    state = Faults(scheme="https" if tls else "http")

    class Handler(_Handler):
        faults = state

    server = _Server(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """With fewer, clients that come at the same time have to knock twice."""


class _Handler(BaseHTTPRequestHandler):
    faults: Faults
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_arguments: object) -> None:
        pass

    def handle(self) -> None:
        self.faults.connections += 1
        with contextlib.suppress(ConnectionError, ValueError, ssl.SSLError):
            super().handle()

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        word = self._begin()
        if word is None:
            self.faults.files[self.path] = self.faults.keep(self.path, body)
            self._answer(201, b"")
        else:
            self._go_wrong(word, body)

    def _serve(self, *, with_body: bool) -> None:
        word = self._begin()
        body = self.faults.files.get(self.path)
        if word is not None:
            self._go_wrong(word, body or b"")
        elif body is None:
            self._answer(404, b"not here")
        else:
            self._answer(200, body, with_body=with_body)

    def _begin(self) -> str | None:
        self.faults.requests.append((self.command, self.path))
        self.faults.tokens.add(self.headers.get("Authorization"))
        time.sleep(self.faults.delay)
        return self.faults.fault(self.command, self.path)

    def _answer(self, status: int, body: bytes, *, with_body: bool = True, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _go_wrong(self, word: str, body: bytes) -> None:
        if word.isdigit():
            self._answer(int(word), b"")
        elif word == "busy":
            self._answer(429, b"", **({"Retry_After": self.faults.retry_after} if self.faults.retry_after else {}))
        elif word == "busy-for-long":
            self._answer(503, b"", Retry_After="3600")
        elif word == "gone":
            self._answer(404, b"")
        elif word == "empty":
            self._answer(200, b"")
        elif word == "html":
            self._answer(200, b"<html>please log in</html>", Content_Type="text/html; charset=utf-8")
        elif word == "page":
            self._answer(200, b"<html>please log in</html>")
        elif word == "redirect":
            self._answer(302, b"", Location=self.faults.place)
        elif word == "altered":
            self._answer(200, bytes([*body[:-1], body[-1] ^ 1]))
        elif word == "cut":
            self._answer(200, body[: len(body) // 2])
        elif word == "longer":
            self._answer(200, body + b"x")
        elif word == "truncated":
            self._send_part(body)
            self.close_connection = True
        elif word == "reset":
            self._send_part(body)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            raise ConnectionResetError
        elif word == "odd-length":
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {self.faults.length}\r\n\r\n"
            self.wfile.write(head.encode("latin-1") + body)
            self.close_connection = True
        elif word == "slow":
            self.faults.ended.wait(SLOW_SECONDS)
            self.close_connection = True
        elif word == "dripping":
            self._drip()
        else:
            raise AssertionError(word)

    def _send_part(self, body: bytes) -> None:
        """Half of what is promised."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()

    def _drip(self) -> None:
        """An answer whose head never ends, though a byte comes now and then."""
        end = time.monotonic() + SLOW_SECONDS
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while time.monotonic() < end and not self.faults.ended.wait(0.05):
            self.wfile.write(b"x")
            self.wfile.flush()
        self.close_connection = True
