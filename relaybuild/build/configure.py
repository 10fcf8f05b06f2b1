"""Has CMake say which backends are on and what they need; knows no backend by name, and nothing of what they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BackendSettings:
    """What CMake found for the backend of one flag.

    `value` is the flag as it was set ("ON", "AUTO", "/opt/x"; "OFF" where nothing set it). `libraries` are absolute
    files or words for the linker, in order; `definitions` are `NAME` or `NAME=VALUE`. `message` says why a backend that
    was asked for is not enabled; it is empty where it is enabled or its flag is off.
    """

    flag: str
    value: str
    enabled: bool
    include_dirs: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class BackendModule:
    """A backend's CMake module, and the flag that it obeys; without a file the flag alone decides (ON or OFF)."""

    name: str
    flag: str
    file: Path | None


def configure(
    config: Path | None,
    flags: Mapping[str, str],
    modules: Sequence[BackendModule],
    *,
    cache_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Mapping[str, BackendSettings]:
    """The settings of every module's flag, by flag, in the order of `modules`.

    `config` is a CMake script that sets flags (None: there is none); `flags` are those of the command line and win over
    it. CMake runs only where a script or a module has to be evaluated, and what it found is kept in `cache_dir`
    (default: `cache_folder()`) until anything that it read, or looked for in vain, has changed. Raises UserError for a
    flag that no module obeys, for a value that a flag does not take, for a mistake in the script, for a library that is
    asked for and absent, and where there is no cmake; ToolError if cmake fails otherwise.
    """
    raise NotImplementedError
