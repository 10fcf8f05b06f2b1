"""The key of a whole artifact: a request and all that decides what becomes of it, as one action; compiles nothing.

Not in the key: where the model, the output and the current folder are, who asks, how many processes may run.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.artifact.extensions import Unidentified, extensions, registered_folders
from relaybuild.artifact.model import NoIdentity, model_inputs
from relaybuild.artifact.own_code import StaleCode, own_code, platform_facts
from relaybuild.artifact.request import Request
from relaybuild.artifact.surroundings import SearchPath, add_noted, add_read, note, noted, within
from relaybuild.backends.installed import UnknownCode, installed_backends, is_source
from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.store import Cache
from relaybuild.build.flags import objection_to_command
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.trees import TreeInputs
from relaybuild.build.variables import invalidating
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest

if TYPE_CHECKING:
    from relaybuild.build.configure import BackendSettings
    from relaybuild.build.cxx import CxxCompiler

LAYER = "artifact"
NAME = "library"
OUTPUTS = ("header", "library", "summary")

# Folders of the system's headers have thousands of files of other packages.
_SYSTEM_FOLDERS = ("/usr/include", "/usr/local/include")


@dataclass(frozen=True)
class Keyed:
    """An action that names no header and no library of the system, and the files that were read to name it."""

    action: Action
    inputs: TreeInputs
    searched: tuple[SearchPath, ...]
    _unfinished: ActionBuilder = field(repr=False)

    def expected(self, cache: Cache, slot: str) -> Action:
        """The action with the files of the system that are noted now, before the library is made.

        Where one of them cannot be read, it is an action under which nothing is ever stored.
        """
        builder = copy.deepcopy(self._unfinished)
        try:
            add_noted(builder, noted(cache, self.action, slot), self.searched, cache)
        except OSError:
            return self.action
        return builder.build()

    def completed(self, cache: Cache, slot: str) -> Action:
        """The action with the files that the run has read to make the library, which are noted for the next run."""
        files = within(cache.files_read(), self.searched)
        note(cache, self.action, slot, files)
        builder = copy.deepcopy(self._unfinished)
        add_read(builder, files, self.searched, self.inputs)
        return builder.build()


@dataclass(frozen=True)
class Unkeyed:
    """Why a request is compiled without being looked up."""

    reason: str


def artifact_key(
    request: Request,
    toolchain: Toolchain,
    cxx: Callable[[], CxxCompiler | None],
    cache: Cache,
    cache_dir: Path | None,
    meanwhile: Iterable[object] = (),
) -> Keyed | Unkeyed:
    """The action that a request is, or why it has none.

    `cxx` gives the C++ compiler, if there is one; it is asked where backends are on. `cache_dir` is where what CMake
    found is kept. While a large model is read that is not known yet, `meanwhile` is gone through. Raises UserError for
    flags and configurations with mistakes.
    """
    if request.passes.is_observed:
        return Unkeyed("the passes are observed")
    if objection := toolchain.objection or objection_to_command(toolchain.compiler_command[1:]):
        return Unkeyed(f"the compiler: {objection}")
    inputs = TreeInputs(None if cache.folder is None else cache.records, meanwhile=meanwhile)
    try:
        builder = _named(request, toolchain)
        for name, digest in model_inputs(request.model, cache, inputs).items():
            builder.input(f"in/{name}", digest)
        code = own_code(inputs)
        for name, digest in code.items():
            builder.input(f"impl/{name}", digest)
        installed = installed_backends(inputs)
        registered = extensions(request.passes.required)
        for name, digest in {**installed, **registered}.items():
            builder.input(f"plugin/{name}", digest)
        for tag, folder in registered_folders().items():
            builder.input(f"plugin/folder/{tag}", inputs.tree(folder, is_source)[0])
        enabled = _enabled(request, code["relaybuild"], bool(installed), cache, cache_dir)
        for settings in enabled:
            _add_settings(builder, settings, inputs)
        if request.form.is_relocatable:
            builder.input("toolchain/objcopy", inputs.digest(_objcopy(toolchain)))
        compilers: list[Toolchain | CxxCompiler] = [toolchain]
        if (enabled or installed or registered) and (compiler := cxx()) is not None:
            if objection := compiler.objection or objection_to_command(compiler.compiler_command[1:]):
                return Unkeyed(f"the C++ compiler: {objection}")
            builder.input("toolchain/cxx", compiler.digest)
            compilers.append(compiler)
        searched = (toolchain.library_dirs, *(each.include_dirs for each in compilers))
        return Keyed(builder.build(), inputs, searched, builder)
    except (NoIdentity, StaleCode, Unidentified, UnknownCode) as reason:
        return Unkeyed(str(reason))
    except (OSError, TypeError, ValueError) as error:
        return Unkeyed(f"a part of the key has no form: {error}")


def _named(request: Request, toolchain: Toolchain) -> ActionBuilder:
    """The options of a request, and what is known of the machine and the compiler."""
    builder = ActionBuilder(LAYER, NAME).output(*OUTPUTS).input("toolchain/cc", toolchain.digest)
    builder.option("name", request.name).option("threads", request.threads).option("opt_level", request.opt_level)
    builder.option("precise", request.precise).option("soname", request.soname).option("form", request.form.value)
    builder.option("platform", platform_facts())
    for item in dataclasses.fields(request.target):
        builder.option(f"target.{item.name}", getattr(request.target, item.name))
    shapes = sorted((request.shapes or {}).items())
    builder.option("shapes", [[name, [int(extent) for extent in extents]] for name, extents in shapes])
    builder.option("passes.required", tuple(sorted(request.passes.required)))
    builder.option("passes.disabled", tuple(sorted(request.passes.disabled)))
    builder.option("passes.fallback_device", request.passes.fallback_device)
    for name, value in request.passes.config.items():
        builder.option(f"passes.config.{name}", value)
    for name, value in invalidating(os.environ).items():
        builder.environment(name, value)
    return builder


def _objcopy(toolchain: Toolchain) -> Path:
    from relaybuild.build.relocatable import find_objcopy

    return find_objcopy(toolchain, os.environ)


def _enabled(
    request: Request, own_code: Digest, has_installed: bool, cache: Cache, cache_dir: Path | None
) -> Sequence[BackendSettings]:
    """What was found for the backends that are on, by flags."""
    if request.config is None and not request.flags:
        return ()
    from relaybuild.artifact.configuration import enabled_settings

    return enabled_settings(request, own_code, has_installed, cache, cache_dir)


def _add_settings(builder: ActionBuilder, settings: BackendSettings, inputs: TreeInputs) -> None:
    """What was found for a backend that is on: the words, and the contents of files and folders that they name."""
    prefix = f"backend.{settings.flag}"
    for name, value in _words(settings).items():
        builder.option(f"{prefix}.{name}", value)
    for number, library in enumerate(settings.libraries):
        if os.path.isabs(library) and os.path.isfile(library):
            builder.input(f"{prefix}/library/{number}", inputs.digest(Path(library)))
    for number, folder in enumerate(settings.include_dirs):
        if folder.is_dir() and not str(folder).startswith(_SYSTEM_FOLDERS):
            builder.input(f"{prefix}/headers/{number}", inputs.tree(folder, is_source)[0])


def _words(settings: BackendSettings) -> Mapping[str, Any]:
    return {
        "value": settings.value,
        "include_dirs": [str(folder) for folder in settings.include_dirs],
        "libraries": list(settings.libraries),
        "definitions": list(settings.definitions),
        "version": settings.version,
    }
