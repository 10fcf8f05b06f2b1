"""The BuildGrid that docs/caching.md configures starts, keeps first results, and has them when it starts again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from unit.build.cache.remote.servers import Server, free_port, program, running

from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.settings import CacheSettings, RemoteSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import digest_bytes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "caching.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### BuildGrid\n")[2].partition("\n### ")[0]


def redis_of_the_page(folder: Path, port: int) -> Server:
    """Redis as the page starts it, but for its port and its folder."""
    (line,) = re.findall(r"^redis-server (.*) &$", SECTION, re.MULTILINE)
    assert "--port 6380" in line
    arguments = shlex.split(line.replace("6380", str(port)))
    command = [program("redis-server", "Debian's redis-server"), *arguments, "--dir", str(folder)]
    return Server(command, port, folder / "redis.log")


def grid_of_the_page(folder: Path, redis_port: int) -> Server:
    """BuildGrid as the page configures and starts it, but for its port and its folder."""
    (text,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    port = free_port()
    for named, meant in (("50051", port), ("6380", redis_port), ("/srv/relaybuild", folder / "blobs")):
        assert text.count(named) == 1
        text = text.replace(named, str(meant))
    (folder / "grid.yml").write_text(text, encoding="utf-8")
    (arguments,) = re.findall(r"^grid/bin/bgd (.*)$", SECTION, re.MULTILINE)
    command = [program("bgd", "the package buildgrid"), *shlex.split(arguments)]
    return Server(command, port, folder / "grid.log")


def run(folder: Path, port: int, content: bytes) -> Cache:
    """What a machine with an empty cache does that makes this of one and the same action."""
    (address,) = re.findall(r"--remote-cache grpc://127.0.0.1:50051(\S*)$", SECTION, re.MULTILINE)
    remote = RemoteSettings(f"grpc://127.0.0.1:{port}{address}")
    action = ActionBuilder("pass", "Fold").input("in/module", digest_bytes(b"module")).build()
    with open_cache(CacheSettings(folder, remote=remote)) as cache:
        cache.run(action, lambda: {"out": content * 1000})
    return cache


def test_the_servers_of_the_page(tmp_path: Path) -> None:
    redis_port = free_port()
    with running(redis_of_the_page(tmp_path, redis_port)), running(grid_of_the_page(tmp_path, redis_port)) as server:
        assert run(tmp_path / "a", server.port, b"made").journal.summary()["remote"]["stored"] == 1
        server.stop()
        server.start()
        assert run(tmp_path / "b", server.port, b"not made").journal.executed == []
