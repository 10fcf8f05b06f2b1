"""Which backends a configuration switches on; knows no backend by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from relaybuild.build.configure import BackendModule, BackendSettings, configure, flag_texts
from relaybuild.build.share import share_dir
from relaybuild.dataclass import dataclass
from relaybuild.partition.backend import Backend, all_backends

HOST_NAME = "host"


@dataclass(frozen=True)
class Selection:
    """The backends beside the host that a configuration switches on, and what was found for each flag."""

    backends: tuple[Backend, ...] = ()
    settings: Mapping[str, BackendSettings] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(backend.tag for backend in self.backends)

    def of(self, backend: Backend) -> BackendSettings | None:
        """What was found for a backend; None for one without a flag."""
        return self.settings.get(backend.cmake_flag)


def select(
    config: str | Path | Mapping[str, object] | None,
    flags: Mapping[str, object] | None = None,
    *,
    cache_dir: Path | None = None,
) -> Selection:
    """The backends that are on: those whose flags are, and those without a flag, which a script has registered.

    `config` is the path of a `config.cmake`, or the flags themselves; `flags` win over it. A flag is ON, OFF, True,
    False or what its backend takes beside them. Raises UserError for flags that no backend knows and for libraries that
    are asked for and absent.
    """
    given, script = flag_texts(config, flags)
    backends = _beside_the_host()
    found: Mapping[str, BackendSettings] = {}
    if script is not None or given:
        found = configure(script, given, backend_modules(), cache_dir=cache_dir)
    on = {"", *(flag for flag, settings in found.items() if settings.enabled)}
    enabled = [each for each in backends if each.cmake_flag in on]
    return Selection(tuple(sorted(enabled, key=lambda backend: (-backend.priority, backend.tag))), found)


def backend_modules() -> list[BackendModule]:
    """The CMake modules of all backends that a flag switches on."""
    return [
        BackendModule(each.name, each.cmake_flag, cmake_file(each)) for each in _beside_the_host() if each.cmake_flag
    ]


def _beside_the_host() -> list[Backend]:
    return [backend for backend in all_backends().values() if backend.name != HOST_NAME]


def cmake_file(backend: Backend) -> Path | None:
    """The CMake module of a backend; None where its flag alone decides."""
    if backend.cmake_module is None:
        return None
    own = backend.folder / backend.cmake_module if backend.folder is not None else None
    if own is not None and own.is_file():
        return own
    return share_dir() / "cmake" / "modules" / "contrib" / f"{backend.cmake_module}.cmake"
