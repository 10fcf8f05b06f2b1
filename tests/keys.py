"""Which keys a request, a library and its objects have, for tests of what is in them; compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relaybuild.artifact.key import Keyed, artifact_key
from relaybuild.artifact.request import Request
from relaybuild.build.cache.store import Cache
from relaybuild.build.cxx import CxxCompiler
from relaybuild.build.library_spec import Compilers, LibrarySpec
from relaybuild.build.link_layer import LinkLayer
from relaybuild.build.object_layer import ObjectLayer
from relaybuild.build.process import tool_environment
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.workspace import Workspace
from relaybuild.digest import digest_bytes


def library_keys(spec: LibrarySpec, compilers: Compilers, folder: Path, cache: Cache) -> dict[str, str]:
    """The keys under which the last of a library's objects and the library itself are looked up, by layer.

    Each object stands for its unit's name and place among the others.
    """
    work = Workspace(folder / "work", spec, spec.units, compilers)
    inputs, environ = cache.inputs(), tool_environment()
    objects = ObjectLayer(cache, work, inputs, environ)
    for known in objects.describe(spec.units):
        objects.look_up(known)
    digests = {unit.name: digest_bytes(b"") for unit in spec.units}
    LinkLayer(cache, work, inputs, environ).fetch(digests, folder / "library.so")
    return {looked.layer: looked.key for looked in cache.journal.looked}


def request_key(
    request: Request, toolchain: Toolchain, cache: Cache, cxx: Callable[[], CxxCompiler | None] = lambda: None
) -> str:
    """The key of a whole artifact, or why it has none."""
    keyed = artifact_key(request, toolchain, cxx, cache, None)
    return keyed.action.key(cache.settings.namespace) if isinstance(keyed, Keyed) else keyed.reason
