"""The server that docs/caching.md configures is one that takes results, and one from which they are read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from unit.build.cache.remote.servers import Server, free_port, program, running

from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.settings import CacheSettings, RemoteSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import digest_bytes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "caching.md").read_text(encoding="utf-8")

AROUND = """
daemon off;
master_process off;
pid "{folder}/nginx.pid";
{user}
events {{}}
http {{
access_log off;
client_body_temp_path "{folder}/body";
proxy_temp_path "{folder}/proxy";
fastcgi_temp_path "{folder}/fastcgi";
uwsgi_temp_path "{folder}/uwsgi";
scgi_temp_path "{folder}/scgi";
{servers}
}}
"""


def configured(folder: Path, ports: tuple[int, int]) -> Server:
    """nginx as the page has it, but for its ports and its folder."""
    (text,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    for named, port in zip((8080, 8081), ports):
        assert f"listen {named};" in text
        text = text.replace(f"listen {named};", f"listen 127.0.0.1:{port};")
    assert text.count("root /srv/relaybuild;") == 2
    (folder / "files").mkdir()
    text = text.replace("/srv/relaybuild", f'"{folder}/files"')
    file = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    file.write_text(AROUND.format(folder=folder, servers=text, user=user), encoding="utf-8")
    command = [program("nginx", "Debian's nginx-light"), "-e", "stderr", "-p", str(folder), "-c", str(file)]
    return Server(command, ports[0], folder / "nginx.log")


def run(folder: Path, port: int, name: str) -> Cache:
    remote = RemoteSettings(f"http://127.0.0.1:{port}")
    action = ActionBuilder("pass", name).input("in/module", digest_bytes(b"module")).build()
    with open_cache(CacheSettings(folder, remote=remote)) as cache:
        assert cache.run(action, lambda: {"out": b"made" * 1000}) == {"out": b"made" * 1000}
    return cache


def test_the_server_of_the_page(tmp_path: Path) -> None:
    ports = (free_port(), free_port())
    with running(configured(tmp_path, ports)):
        assert run(tmp_path / "a", ports[0], "one").journal.summary()["remote"]["stored"] == 1
        found = run(tmp_path / "b", ports[1], "one").journal
        assert found.executed == []
        refused = run(tmp_path / "b", ports[1], "two").journal.summary()
        assert refused["remote"]["not_sent"] == 1
        assert refused["errors"] == {"remote-read-only": 1}
