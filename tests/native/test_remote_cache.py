"""Models compiled on machines that share a server: what one has made another one has, and nothing else ever runs."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from runners.command import MODEL, TIMEOUT, Runner, has_executed_nothing
from unit.build.cache.remote.faults import faulty_server
from unit.build.cache.remote.servers import Server, nginx, running

pytestmark = pytest.mark.usefixtures("own_cache")

OTHER = MODEL.replace("1f", "2f")
IMPORTED = """
import sys
from relaybuild.cli import main
try:
    main(sys.argv[1:], prog_name="relaybuild")
except SystemExit as end:
    assert not end.code, end.code
print([name for name in ("http", "ssl", "socket", "grpc", "obstore") if name in sys.modules])
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    with running(nginx(folder)) as started:
        yield started


@dataclass(frozen=True)
class Published:
    """What a server has after one machine compiled, and the library."""

    folder: Path
    library: bytes

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return folder

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {f"/{path.relative_to(self.folder).as_posix()}": path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def published(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("published")
    with running(nginx(folder)) as server:
        run = machine(package, folder, "cache", url(server))
        assert run.done()["executed"]["link"] == 1
        return Published(folder / "files", run.library())


def machine(package: Path, tmp_path: Path, name: str, url: str, **environ: str) -> Runner:
    """A machine with an empty cache, and a server at a URL."""
    (tmp_path / "model.relay").write_text(MODEL)
    (tmp_path / "other.relay").write_text(OTHER)
    return Runner(package, tmp_path, {"RELAYBUILD_REMOTE_CACHE": url, **environ}, name)


@pytest.fixture
def local(package: Path, tmp_path: Path, runtime_cache: Path) -> Callable[..., Runner]:
    """As `machine`, but that the objects of the runtime are in its cache."""

    def make(name: str, url: str, **environ: str) -> Runner:
        return machine(package, tmp_path, name, url, **environ).beginning_with(runtime_cache)

    return make


def files_of(server: Server) -> Path:
    return server.log.parent / "files"


def url(server: Server, path: str = "team") -> str:
    return f"http://127.0.0.1:{server.port}/{path}"


def cache_command(run: Runner, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relaybuild", "cache", "--cache-dir", str(run.folder / run.cache), *arguments]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(run.package), **run.environ}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT, cwd=run.folder, env=environ
    )


def loads(run: Runner, output: str = "out/model.so") -> bool:
    """Whether a library is one that can be loaded."""
    ctypes.CDLL(str(run.folder / output))
    return True


def test_another_machine_executes_nothing(package: Path, tmp_path: Path, server: Server, published: Published) -> None:
    published.copy(files_of(server))
    second = machine(package, tmp_path, "b", url(server))
    library = published.library
    assert has_executed_nothing(second.done(output="b/model.so"))
    assert second.library("b/model.so") == library
    facts = json.loads(cache_command(second, "stats", "--json").stdout)
    assert facts["remote"]["hits"] == 1
    assert facts["remote"]["bytes_read"] > len(library)
    assert facts["errors"] == {}
    # Once it is here, nobody is asked and nothing for asking is imported.
    server.stop()
    result = second(output="b/model.so", code=("-c", IMPORTED))
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "[]"), result.stderr


def test_what_models_have_in_common_travels(
    package: Path, tmp_path: Path, server: Server, published: Published
) -> None:
    published.copy(files_of(server))
    run = machine(package, tmp_path, "b", url(server))
    summary = run.done(model="other.relay", output="b/other.so")
    assert summary["cached"]["object"] >= 3, "the runtime is the same"
    assert summary["executed"]["object"] >= 1, "the kernel is not"
    assert loads(run, "b/other.so")


def test_a_pull_request_reads_what_main_has_and_writes_nothing(
    package: Path, tmp_path: Path, server: Server, published: Published
) -> None:
    published.copy(files_of(server))
    trusting = {"RELAYBUILD_CACHE_NAMESPACE": "pr/1", "RELAYBUILD_CACHE_TRUST": "main"}
    request = machine(package, tmp_path, "pr", url(server, "read-only/team"), **trusting)
    assert has_executed_nothing(request.done())
    result = request("--remote-mode", "readwrite", model="other.relay", output="pr/other.so")
    assert result.returncode == 0
    assert "remote-read-only" in result.stderr
    other = machine(package, tmp_path, "again", url(server), **trusting)
    assert other.done(model="other.relay", output="pr/other.so")["executed"]["link"] == 1


def test_a_pull_request_that_may_write_cannot_write_for_main(
    package: Path, tmp_path: Path, server: Server, local: Callable[..., Runner]
) -> None:
    request = machine(package, tmp_path, "pr", url(server), RELAYBUILD_CACHE_NAMESPACE="pr/1")
    request.done()
    assert local("main", url(server)).done()["executed"]["link"] == 1


def test_forged_results_are_misses(
    package: Path, tmp_path: Path, server: Server, published: Published, local: Callable[..., Runner]
) -> None:
    published.copy(files_of(server))
    main = local("main", url(server), RELAYBUILD_CACHE_SECRET="secret")
    summary = main.done()
    assert summary["executed"]["link"] == 1
    assert "trust" in {miss["reason"] for miss in summary["misses"]}
    other = machine(package, tmp_path, "other", url(server), RELAYBUILD_CACHE_SECRET="secret")
    assert has_executed_nothing(other.done())


@pytest.mark.parametrize("damage", ["exchanged", "lost"])
def test_poisoned_blobs_never_reach_a_library(
    package: Path, tmp_path: Path, server: Server, published: Published, local: Callable[..., Runner], damage: str
) -> None:
    folder = published.copy(files_of(server))
    blobs = sorted(folder.glob("team/cas/*"))
    contents = [path.read_bytes() for path in blobs]
    assert published.library in contents
    for place, path in enumerate(blobs):
        if damage == "lost":
            path.unlink()
        else:
            path.write_bytes(contents[place - 1])
    second = local("b", url(server))
    summary = second.done(output="b/model.so")
    assert summary["executed"]["link"] == 1
    assert second.library("b/model.so") == published.library
    assert {"integrity", "incomplete-remote"} & {miss["reason"] for miss in summary["misses"]}
    # What the second machine has made is there for all again.
    assert has_executed_nothing(machine(package, tmp_path, "c", url(server)).done(output="c/model.so"))


def test_a_server_that_cannot_be_reached(local: Callable[..., Runner]) -> None:
    run = local("a", "http://127.0.0.1:1/team")
    result = run()
    assert result.returncode == 0
    assert "remote-unavailable" in result.stderr
    assert "remote-connect" in result.stderr
    assert loads(run)
    facts = json.loads(cache_command(run, "stats", "--json").stdout)
    assert facts["errors"]["remote-connect"] >= 1
    assert facts["errors"]["remote-left-alone"] == 1


@pytest.mark.parametrize("word", ["reset", "altered"])
def test_a_server_that_goes_wrong(local: Callable[..., Runner], published: Published, word: str) -> None:
    with faulty_server() as server:
        server.files.update(published.files())
        server.fault = lambda method, path: word if method == "GET" else None
        second = local("b", server.url)
        summary = second.done(output="b/model.so")
    assert summary["executed"]["link"] == 1
    assert second.library("b/model.so") == published.library
    facts = json.loads(cache_command(second, "stats", "--json").stdout)
    assert any(name.startswith("remote-") for name in facts["errors"]), facts


def test_offline_nobody_is_asked(local: Callable[..., Runner]) -> None:
    with faulty_server() as server:
        run = local("a", server.url)
        run.done("--offline")
        assert server.requests == []


def test_a_project_names_the_server(local: Callable[..., Runner], tmp_path: Path) -> None:
    with faulty_server() as server:
        run = local("a", "")
        (tmp_path / "pyproject.toml").write_text(f'[tool.relaybuild]\nremote-cache = "{server.url}"\n')
        run.done()
        assert server.paths("ac")
    (tmp_path / "pyproject.toml").write_text('[tool.relaybuild]\nremote = "x"\n')
    result = run()
    assert result.returncode == 1
    assert "has no key 'remote'" in result.stderr


def test_everything_is_executed_again_and_compared(local: Callable[..., Runner], server: Server) -> None:
    run = local("a", url(server))
    made = run.done()
    again = run.done("--cache-mode", "verify")
    # What came up twice in one run was executed once.
    assert again["executed"] == {layer: count + made["cached"][layer] for layer, count in made["executed"].items()}
    assert {miss["reason"] for miss in again["misses"]} == {"bypassed"}
    facts = json.loads(cache_command(run, "stats", "--json", "--last").stdout)
    assert facts["storing"]["known"] >= 5
    assert not {"stored", "determinism-conflict"} & facts["storing"].keys()
    assert facts["conflicts"] == 0


def test_the_doctor(package: Path, tmp_path: Path, server: Server) -> None:
    good = cache_command(machine(package, tmp_path, "a", url(server)), "doctor")
    assert good.returncode == 0, good.stdout
    assert "remote server: nginx" in good.stdout
    assert "remote can write: True" in good.stdout
    refused = cache_command(machine(package, tmp_path, "a", url(server, "read-only/team")), "doctor")
    assert refused.returncode == 1
    assert "problem: remote cache: the server takes nothing" in refused.stdout
    nobody = cache_command(machine(package, tmp_path, "a", "http://127.0.0.1:1/"), "doctor", "--json")
    assert nobody.returncode == 1
    assert "connect" in json.loads(nobody.stdout)["problems"][0]


def test_options_that_exclude_each_other(package: Path, tmp_path: Path) -> None:
    run = machine(package, tmp_path, "a", "")
    for options in (("--no-cache", "--cache-mode", "read"), ("--require-hit", "--cache-mode", "write")):
        result = run(*options)
        assert result.returncode == 1
        assert "exclude each other" in result.stderr


def test_a_machine_without_a_local_cache(package: Path, tmp_path: Path, server: Server, published: Published) -> None:
    published.copy(files_of(server))
    passing = replace(machine(package, tmp_path, "b", url(server)), environ={"RELAYBUILD_REMOTE_CACHE": url(server)})
    assert has_executed_nothing(passing.done("--cache-mode", "off", output="b/model.so"))
    assert loads(passing, "b/model.so")
    assert not (tmp_path / "b" / "v1").exists()
