"""Lists the files that decide what becomes of a request, for build systems that look at files; digests them for nobody.

The compilers and the system's headers are not among them: a build system does not look at those for its own objects
either, and the next run does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import relaybuild
from relaybuild.artifact.configuration import configuration_files
from relaybuild.artifact.extensions import registered_folders
from relaybuild.artifact.model import NoIdentity, model_inputs
from relaybuild.artifact.own_code import StaleCode, own_code
from relaybuild.artifact.request import Request
from relaybuild.backends.installed import UnknownCode, installed_backends, is_source
from relaybuild.build.cache.store import Cache
from relaybuild.build.trees import TreeInputs

T = TypeVar("T")

_PACKAGE = Path(relaybuild.__file__).resolve().parent


def files_read(request: Request, cache: Cache) -> tuple[Path, ...]:
    """The model and its data, the configuration and what it includes, plug-ins, and relaybuild; absolute, sorted.

    To be asked for when the artifact is there: what CMake read for it is known only then.
    """
    inputs = TreeInputs(None if cache.folder is None else cache.records)
    for folder in registered_folders().values():
        _known(partial(inputs.tree, folder, is_source))
    _known(lambda: model_inputs(request.model, cache, inputs))
    code = _known(lambda: own_code(inputs)) or {}
    installed = _known(lambda: installed_backends(inputs))
    scripts = configuration_files(request, code.get("relaybuild"), installed != {}, cache)
    found = {*inputs.files(), *_release(), *scripts}
    return tuple(sorted(Path(os.path.abspath(path)) for path in found))


def _known(look: Callable[[], T]) -> T | None:
    """What has an identity; files of what has none count as far as they were come upon."""
    try:
        return look()
    except (NoIdentity, StaleCode, UnknownCode, OSError):
        return None


def _release() -> Iterator[Path]:
    """A file whose name has the version of an installed relaybuild: another one has other files, of any age."""
    yield from _PACKAGE.parent.glob("relaybuild-*.dist-info/METADATA")
