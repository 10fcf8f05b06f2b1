"""Real servers for tests of remote caches: each on a free port of 127.0.0.1, and ended by its process id."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

START_SECONDS = 180
STOP_SECONDS = 20


def program(name: str, where: str) -> str:
    """The path of a program that a test needs; skips without it. `where` says what brings it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"there is no '{name}' ({where})")
    return found


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@dataclass
class Server:
    """A program that serves a port. `log` is what it prints."""

    command: Sequence[str]
    port: int
    log: Path
    is_ready: Callable[[], bool] = lambda: True
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.log.parent
            )
        end = time.monotonic() + START_SECONDS
        while not (is_listening(self.port) and self.is_ready()):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > end:
                self.stop()
                pytest.fail(f"{self.command[0]} {'ended' if ended else 'does not answer'}:\n{self.log.read_text()}")
            time.sleep(0.1)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it; by force if it takes its time."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sign)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server that runs while the block does."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def redis(folder: Path) -> Server:
    """Redis, which keeps what it has in the folder."""
    port = free_port()
    command = program("redis-server", "Debian's redis-server")
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes"]
    return Server([command, *options, "--appendfsync", "always"], port, folder / "redis.log")


def moto(folder: Path) -> Server:
    """An object store in the memory of its process."""
    port = free_port()
    command = program("moto_server", "the package moto with its extra 'server'")
    return Server([command, "-H", "127.0.0.1", "-p", str(port)], port, folder / "moto.log")


_PLAIN_CHANNEL = "insecure-mode: true"
_LRU = "!lru-action-cache {storage: *blobs, max-cached-refs: 1000, allow-updates: %s}"
_REDIS = "!redis-action-cache {storage: *blobs, redis: *redis, allow-updates: true}"
_CONFIGURATION = """
server:
  - !channel
    address: "127.0.0.1:%(port)d"
    %(channel)s
authorization:
  %(authorization)s
%(connections)s
storages:
  - !disk-storage &blobs
    path: "%(folder)s"
caches:
  - %(cache)s
instances:
  - name: "team/main"
    services:
      - !action-cache {cache: *results}
      - !cas {storage: *blobs, read-only: %(read_only)s}
      - !bytestream {storage: *blobs, read-only: %(read_only)s}
thread-pool-size: 20
"""


@dataclass(frozen=True)
class Grid:
    """How BuildGrid is to be configured; `redis` is the port at which results are kept, else they are in memory."""

    redis: int | None = None
    is_write_once: bool = False
    is_read_only: bool = False
    authorization: str = "method: none"
    channel: str = _PLAIN_CHANNEL

    def text(self, port: int, folder: Path) -> str:
        may_update = "false" if self.is_read_only else "true"
        inner = _REDIS if self.redis else _LRU % may_update
        kind, _, options = inner.partition(" ")
        if self.is_write_once:
            cache = f"{kind} &inner {options}\n  - !write-once-action-cache &results {{action-cache: *inner}}"
        else:
            cache = f"{kind} &results {options}"
        connection = f"connections:\n  - !redis-connection &redis {{host: 127.0.0.1, port: {self.redis}}}"
        return _CONFIGURATION % {
            "port": port,
            "channel": self.channel,
            "authorization": self.authorization,
            "connections": connection if self.redis else "",
            "folder": folder / "blobs",
            "cache": cache,
            "read_only": "true" if self.is_read_only else "false",
        }


def grid(folder: Path, how: Grid = Grid()) -> Server:
    """BuildGrid with the instance `team/main`, whose blobs are in `folder/blobs`."""
    command = program("bgd", "the package buildgrid")
    port = free_port()
    configuration = folder / "grid.yml"
    configuration.write_text(how.text(port, folder))
    return Server([command, "server", "start", str(configuration)], port, folder / "grid.log")


_NGINX = """
daemon off;
master_process off;
pid "%(folder)s/nginx.pid";
error_log stderr;
%(user)s
events {}
http {
  access_log off;
  client_body_temp_path "%(folder)s/body";
  proxy_temp_path "%(folder)s/proxy";
  fastcgi_temp_path "%(folder)s/fastcgi";
  uwsgi_temp_path "%(folder)s/uwsgi";
  scgi_temp_path "%(folder)s/scgi";
  client_max_body_size 0;
  server {
    listen 127.0.0.1:%(port)d;
    root "%(folder)s/files";
    location / {
      dav_methods PUT DELETE;
      create_full_put_path on;
    }
    location /read-only/ {
      alias "%(folder)s/files/";
    }
  }
}
"""


def nginx(folder: Path) -> Server:
    """nginx, which serves `folder/files` and lets clients write there; below `/read-only/` it does not."""
    command = (
        shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or program("nginx", "Debian's nginx-light")
    )
    port = free_port()
    (folder / "files").mkdir(exist_ok=True)
    configuration = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    configuration.write_text(_NGINX % {"folder": folder, "port": port, "user": user})
    return Server([command, "-e", "stderr", "-p", str(folder), "-c", str(configuration)], port, folder / "nginx.log")
