"""What a user has said of caches: by flags, else the environment, else pyproject.toml; opens no cache.

The nearest `pyproject.toml`, in the current folder or one above, may say in `[tool.relaybuild]`:

    cache-dir       the folder of the cache, relative to the file
    cache-max-size  its limit, as "5GB" or a number of bytes
    remote-cache    the URL of a cache on another machine
    remote-mode     what is done with that: off, read, write, readwrite or verify
    namespace       whose results these are
    trust           namespaces that may be read besides
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from relaybuild.build.cache.settings import DEFAULT_MAX_SIZE, DEFAULT_NAMESPACE, CacheSettings, Mode, RemoteSettings
from relaybuild.build.cache_folder import VARIABLE, cache_folder
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

REMOTE = "RELAYBUILD_REMOTE_CACHE"
REMOTE_MODE = "RELAYBUILD_REMOTE_MODE"
TOKEN = "RELAYBUILD_REMOTE_TOKEN"
NAMESPACE = "RELAYBUILD_CACHE_NAMESPACE"
TRUST = "RELAYBUILD_CACHE_TRUST"
SECRET = "RELAYBUILD_CACHE_SECRET"
SECRET_FILE = "RELAYBUILD_CACHE_SECRET_FILE"

MODES = tuple(mode.value for mode in Mode if mode is not Mode.RECACHE)
"""The modes that have a name for users."""

_FILE = "pyproject.toml"
_TABLE = "tool.relaybuild"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?"
_MENTION = rb"tool[\"']?\s*(?:\.\s*[\"']?relaybuild|\]|=)"
"""What is in a file that has the table, and seldom in another."""


@dataclass(frozen=True)
class CacheFlags:
    """What flags or arguments say; None is what they leave to the environment and the project.

    `cache_dir` False: no cache at all. `is_offline`: no other machine is asked for anything.
    """

    cache_dir: str | Path | Literal[False] | None = None
    mode: Mode = Mode.READ_WRITE
    remote: str | None = None
    remote_mode: str | None = None
    namespace: str | None = None
    is_shared: bool = False
    is_offline: bool = False


def chosen_settings(
    flags: CacheFlags, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> CacheSettings:
    """The settings of the caches that a user has chosen: flags win over the environment, that over the project.

    `environ` is the environment (default: ours), `folder` where `pyproject.toml` is looked for first (default: the
    current one). Raises UserError for what cannot be understood.
    """
    environ = os.environ if environ is None else environ
    if flags.cache_dir is False:
        return CacheSettings(None, Mode.OFF)
    project = _project(Path.cwd() if folder is None else folder)
    trust = environ.get(TRUST)
    return CacheSettings(
        _folder(flags, environ, project),
        flags.mode,
        flags.is_shared,
        flags.namespace or environ.get(NAMESPACE) or project.text("namespace") or DEFAULT_NAMESPACE,
        tuple(_words(trust)) if trust is not None else project.texts("trust"),
        _secret(environ),
        project.size("cache-max-size", DEFAULT_MAX_SIZE),
        remote=_remote(flags, environ, project),
    )


def parse_mode(text: str, where: str) -> Mode:
    """A mode by its name; `where` says in an error who gave it. Raises UserError."""
    if text not in MODES:
        raise UserError(f"{where} is '{text}', expected one of {', '.join(MODES)}{_nearest(text, MODES)}")
    return Mode(text)


def parse_size(text: str) -> int:
    """Bytes from `5GB`, `500 MB`, `1GiB` or a number of bytes. Raises UserError for anything else."""
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    unit = match[2].upper() if match is not None else ""
    if match is None or (match[3] and not unit):
        raise UserError(f"'{text}' is no size, expected a number of bytes, or one like '5GB', '500MB', '1GiB'")
    return int(float(match[1]) * (_BINARY if match[3] else _UNITS)[unit])


@dataclass(frozen=True)
class _Project:
    """The table of a `pyproject.toml`, empty where there is none."""

    path: Path = field(default_factory=lambda: Path(_FILE))
    table: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str | None:
        """A text; None if there is none. Raises UserError for any other value."""
        value = self.table.get(key)
        if value is not None and not (isinstance(value, str) and value):
            raise self._error(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or one that has them between commas."""
        value = self.table.get(key, [])
        if isinstance(value, str):
            return tuple(_words(value))
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise self._error(key, "a list of texts")
        return tuple(value)

    def size(self, key: str, default: int) -> int:
        """A number of bytes, as a number or a text."""
        value = self.table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, str)) or (isinstance(value, int) and value < 0):
            raise self._error(key, "a number of bytes, or a text like '5GB'")
        try:
            return parse_size(str(value))
        except UserError as error:
            raise UserError(f"'{key}': {error.message}", where=str(self.path)) from error

    def _error(self, key: str, expected: str) -> UserError:
        found = f"'{key}' in [{_TABLE}] is {self.table[key]!r}, expected {expected}"
        return UserError(found, where=str(self.path))


_KEYS: Mapping[str, Callable[[_Project, str], object]] = {
    "cache-dir": _Project.text,
    "cache-max-size": lambda project, key: project.size(key, 0),
    "remote-cache": _Project.text,
    "remote-mode": _Project.text,
    "namespace": _Project.text,
    "trust": _Project.texts,
}


def _project(folder: Path) -> _Project:
    """What the nearest `pyproject.toml` says. Raises UserError for mistakes in it."""
    for parent in (folder, *folder.parents):
        path = parent / _FILE
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
        # Whoever has no such table need not have it parsed.
        return _read(path, data) if re.search(_MENTION, data) else _Project()
    return _Project()


def _read(path: Path, data: bytes) -> _Project:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    parser = importlib.import_module(name)
    try:
        document = parser.loads(data.decode())
    except ValueError as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    table = document
    for each in _TABLE.split("."):
        table = table.get(each, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        raise UserError(f"'{_TABLE}' is {table!r}, expected a table", where=str(path))
    project = _Project(path, table)
    for key in table:
        if key not in _KEYS:
            known = f"expected one of {', '.join(_KEYS)}{_nearest(key, _KEYS)}"
            raise UserError(f"[{_TABLE}] has no key '{key}', {known}", where=str(path))
        _KEYS[key](project, key)
    return project


def _folder(flags: CacheFlags, environ: Mapping[str, str], project: _Project) -> Path | None:
    if flags.cache_dir == "":
        raise UserError("the folder of the cache is '', expected a path")
    if flags.cache_dir:
        return Path(flags.cache_dir).absolute()
    in_project = project.text("cache-dir")
    if in_project is not None and not environ.get(VARIABLE):
        return (project.path.parent / in_project).absolute()
    return cache_folder(environ)


def _remote(flags: CacheFlags, environ: Mapping[str, str], project: _Project) -> RemoteSettings | None:
    if flags.is_offline:
        return None
    url = flags.remote or environ.get(REMOTE) or project.text("remote-cache")
    modes = (
        (flags.remote_mode, "--remote-mode"),
        (environ.get(REMOTE_MODE), REMOTE_MODE),
        (project.text("remote-mode"), f"{project.path}: 'remote-mode'"),
    )
    mode = next((parse_mode(text, where) for text, where in modes if text), Mode.READ_WRITE)
    if not url or mode is Mode.OFF:
        return None
    return RemoteSettings(url, mode, environ.get(TOKEN, "").strip())


def _secret(environ: Mapping[str, str]) -> bytes:
    """The secret, as the environment or a file that it names has it."""
    text, path = environ.get(SECRET, ""), environ.get(SECRET_FILE, "")
    if text and path:
        raise UserError(f"{SECRET} and {SECRET_FILE} exclude each other: set one of them")
    if not path:
        return text.encode()
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UserError(f"the file '{path}' of {SECRET_FILE} cannot be read: {error.strerror}") from error
    if not secret:
        raise UserError(f"the file '{path}' of {SECRET_FILE} is empty, expected a secret")
    return secret


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _nearest(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, known, 1)
    return f"; did you mean '{found[0]}'?" if found else ""
