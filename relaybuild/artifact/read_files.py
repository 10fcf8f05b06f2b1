"""Lists the files that decide what becomes of a request, for build systems that look at files; digests them for nobody.

Folders are listed, too, where a file that is added would count, or where one may be replaced by an older one:
installers may leave files the times that they were given elsewhere, and a folder has the time of its last change.
The system's headers are not among them: a build system does not look at those for its own objects either, and the next
run does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import relaybuild
from relaybuild.artifact.configuration import configuration_files, enabled_settings
from relaybuild.artifact.extensions import registered_folders
from relaybuild.artifact.model import NoIdentity, model_inputs
from relaybuild.artifact.own_code import StaleCode, own_code
from relaybuild.artifact.request import Request
from relaybuild.backends.installed import UnknownCode, installed_backends, is_source, package_folders
from relaybuild.build.cache.store import Cache
from relaybuild.build.configure import BackendSettings
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest
from relaybuild.errors import RelayBuildError

T = TypeVar("T")

_PACKAGE = Path(relaybuild.__file__).resolve().parent


def files_read(request: Request, cache: Cache, toolchain: Toolchain) -> tuple[Path, ...]:
    """The model and its data, the configuration and what it includes and finds, plug-ins, relaybuild, the compilers;
    with folders of all but the model and scripts; absolute, sorted.

    To be asked for when the artifact is there: what CMake read for it is known only then.
    """
    inputs = TreeInputs(None if cache.folder is None else cache.records)
    for folder in registered_folders().values():
        _known(partial(inputs.tree, folder, is_source))
    _known(lambda: model_inputs(request.model, cache, inputs))
    code = (_known(lambda: own_code(inputs)) or {}).get("relaybuild")
    installed = _known(lambda: installed_backends(inputs))
    scripts = configuration_files(request, code, installed != {}, cache)
    enabled = _enabled(request, code, installed != {}, cache)
    libraries = [library for settings in enabled for library in settings.libraries if os.path.isfile(library)]
    programs = _programs(request, toolchain, cache, needs_cxx=bool(enabled or installed != {} or registered_folders()))
    folders = [*inputs.folders(), *package_folders(), *_release()]
    found = {*inputs.files(), *scripts, *folders, *_with_folders([*programs, *libraries])}
    return tuple(sorted(Path(os.path.abspath(path)) for path in found))


def _known(look: Callable[[], T]) -> T | None:
    """What has an identity; files of what has none count as far as they were come upon."""
    try:
        return look()
    except (NoIdentity, StaleCode, UnknownCode, OSError):
        return None


def _release() -> Iterator[Path]:
    """What an installer writes anew: folders whose names have the version of an installed relaybuild."""
    yield from _PACKAGE.parent.glob("relaybuild-*.dist-info")


def _enabled(request: Request, code: Digest | None, has_installed: bool, cache: Cache) -> Sequence[BackendSettings]:
    """What was found for the backends that are on, as far as that is known by the code that found it."""
    if code is None or (request.config is None and not request.flags):
        return ()
    return enabled_settings(request, code, has_installed, cache, cache.settings.folder)


def _programs(request: Request, toolchain: Toolchain, cache: Cache, *, needs_cxx: bool) -> Iterator[str]:
    """The compilers, and what they run."""
    yield from toolchain.programs
    if request.form.is_relocatable:
        from relaybuild.build.relocatable import find_objcopy

        yield os.fspath(find_objcopy(toolchain, os.environ))
    if needs_cxx:
        from relaybuild.build.cxx import probe_cxx

        try:
            yield from probe_cxx(toolchain, cache=cache).programs
        except RelayBuildError:
            return


def _with_folders(files: Sequence[str]) -> Iterator[Path]:
    """Files, the folders that they are found in, and those that links lead to."""
    for file in files:
        yield from (Path(file), Path(file).parent, Path(os.path.realpath(file)).parent)
