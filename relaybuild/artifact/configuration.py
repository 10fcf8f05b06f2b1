"""What a configuration switches on, found without importing a backend if that was done before; knows none by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import relaybuild
from relaybuild.artifact import facts
from relaybuild.artifact.extensions import has_backends
from relaybuild.artifact.request import Request
from relaybuild.build.cache.store import Cache
from relaybuild.build.configure import BackendModule, BackendSettings, configure, files_read, flag_texts
from relaybuild.build.share import share_dir
from relaybuild.digest import Digest, Hasher

_PACKAGE = Path(relaybuild.__file__).resolve().parent


def enabled_settings(
    request: Request, own_code: Digest, has_installed: bool, cache: Cache, cache_dir: Path | None
) -> Sequence[BackendSettings]:
    """What was found for the flags that are on, in the order of flags; raises as `backends.selection.select` does.

    `own_code` is the digest of relaybuild's code, which decides what backends there are where none is installed or
    registered beside them.
    """
    given, config = flag_texts(request.config, request.flags)
    modules = _modules(own_code, cache) if not has_installed and not has_backends() else None
    if modules is None:
        from relaybuild.backends.selection import select

        found: Mapping[str, BackendSettings] = select(request.config, request.flags, cache_dir=cache_dir).settings
    else:
        found = configure(config, given, modules, cache_dir=cache_dir)
    return [found[flag] for flag in sorted(found) if found[flag].enabled]


def configuration_files(request: Request, own_code: Digest | None, has_installed: bool, cache: Cache) -> Sequence[Path]:
    """The script of a configuration, and what CMake read when it last evaluated it; see `enabled_settings`."""
    if request.config is None and not request.flags:
        return ()
    given, config = flag_texts(request.config, request.flags)
    if own_code is None or has_installed or has_backends():
        from relaybuild.backends.selection import backend_modules

        modules = backend_modules()
    else:
        modules = _modules(own_code, cache)
    return files_read(config, given, modules, cache_dir=cache.settings.folder)


def _modules(own_code: Digest, cache: Cache) -> list[BackendModule]:
    """The CMake modules of relaybuild's own backends."""
    of = Hasher("backend-modules.1").field("code", own_code).digest()
    known = facts.recall(cache, of)
    if known is None:
        from relaybuild.backends.selection import backend_modules

        known = [[each.name, each.flag, *_place(each.file)] for each in backend_modules()]
        facts.remember(cache, of, known)
    return [BackendModule(name, flag, _file(base, relative)) for name, flag, base, relative in known]


def _bases() -> dict[str, Path]:
    return {"package": _PACKAGE, "share": share_dir()}


def _place(file: Path | None) -> tuple[str, str]:
    """A file as a name of a folder and a path below it: the facts may move with the package."""
    if file is None:
        return "", ""
    for base, folder in _bases().items():
        if file.is_relative_to(folder):
            return base, file.relative_to(folder).as_posix()
    raise ValueError(f"'{file}' is not a file of relaybuild")


def _file(base: str, relative: str) -> Path | None:
    return _bases()[base] / relative if base else None
