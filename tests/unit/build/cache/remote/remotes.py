"""Remote caches under test, of each kind that relaybuild speaks to: a server, its URL, and a way behind its back."""

from __future__ import annotations

import contextlib
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from relaybuild.build.cache.remote.transport import Site, Transport, connect
from relaybuild.digest import Digest

from .servers import Grid, Server, grid, moto, nginx, redis, running

KINDS = ("nginx", "grid", "grid-write-once", "s3")
"""`grid-write-once` keeps results on disk, `grid` and `s3` forget them when they end."""

_BUCKET = "results"
_DIGEST = re.compile("[0-9a-f]{64}$")


@dataclass
class Remote:
    """A server under test. `lose` removes a blob behind its back, `alter` changes one."""

    kind: str
    server: Server
    url: str
    folder: Path

    def connect(self, **site: float) -> contextlib.closing[Transport]:
        return contextlib.closing(connect(Site(self.url, **site)))

    def start(self) -> None:
        self.server.start()
        if self.kind == "s3":
            self._ask("PUT", _BUCKET)

    def restart(self) -> None:
        """End it and begin anew: what it keeps nowhere is lost."""
        if self.kind == "s3":
            # as a restart, which takes it a second
            self._ask("POST", "moto-api/reset")
            self._ask("PUT", _BUCKET)
        else:
            self.server.kill()
            self.start()

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}/{path}", method=method)
        urllib.request.urlopen(request, timeout=60).close()

    def lose(self, digest: Digest) -> None:
        if self.kind == "s3":
            obstore.delete(self._bucket(), f"team/cas/{digest.hex}")
        else:
            self._blob(digest).unlink()

    def alter(self, digest: Digest, content: bytes) -> None:
        if self.kind == "s3":
            obstore.put(self._bucket(), f"team/cas/{digest.hex}", content)
        else:
            self._blob(digest).write_bytes(content)

    def blobs(self) -> list[Digest]:
        """What the server has, with sizes."""
        if self.kind == "s3":
            found = [(Path(each["path"]), each["size"]) for batch in obstore.list(self._bucket()) for each in batch]
        else:
            found = []
            for path in self.folder.rglob("*"):
                # the server may be at work, and what it has not finished goes
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        found.append((path.relative_to(self.folder), path.stat().st_size))
        matches = [(_DIGEST.search(_joined(path)), size) for path, size in found if _is_blob(path)]
        return [Digest(match[0], size) for match, size in matches if match]

    def _blob(self, digest: Digest) -> Path:
        (found,) = [path for path in self.folder.rglob("*") if path.is_file() and digest.hex in _joined(path)]
        return found

    def _bucket(self) -> S3Store:
        address = f"http://127.0.0.1:{self.server.port}"
        return S3Store(_BUCKET, endpoint=address, region="us-east-1", client_options={"allow_http": True})


def _is_blob(path: Path) -> bool:
    return not {"ac", "tmp", "body"} & set(path.parts)


def _joined(path: Path) -> str:
    """The end of a path without its slashes: servers put the first digits of a digest into a folder's name."""
    return "".join(path.parts[-4:])


@contextlib.contextmanager
def serving(kind: str, folder: Path) -> Iterator[Remote]:
    """A server of a kind, with nothing in it."""
    with contextlib.ExitStack() as stack:
        if kind == "nginx":
            server, url = nginx(folder), "http://127.0.0.1:{port}"
        elif kind == "s3":
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "test")
            server, url = moto(folder), f"s3://{_BUCKET}/team?endpoint=http://127.0.0.1:{{port}}&region=us-east-1"
        else:
            how = Grid()
            if kind == "grid-write-once":
                how = Grid(redis=stack.enter_context(running(redis(folder))).port, is_write_once=True)
            server, url = grid(folder, how), "grpc://127.0.0.1:{port}/team/main"
        remote = Remote(kind, server, url.format(port=server.port), folder)
        stack.callback(server.stop)
        remote.start()
        yield remote
