"""Has CMake say which backends are on and what they need; knows no backend by name, and nothing of what they make.

CMake evaluates `cmake/detect` of the share folder once. What it said is kept together with the state of all that it
read and looked for, and is taken again while that is unchanged, without a process being started.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from relaybuild.build.cache_folder import cache_folder
from relaybuild.build.files import make_folder, write_atomically, writing
from relaybuild.build.plain_script import plain_settings
from relaybuild.build.variables import detecting
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher, digest_bytes
from relaybuild.errors import UserError

if TYPE_CHECKING:
    from relaybuild.build.cmake import DetectRequest
    from relaybuild.build.detect import Detection

_FORMAT = 1
_ON = frozenset(("1", "ON", "YES", "TRUE", "Y"))
_OFF = frozenset(("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND"))
_FLAG_LIKE = "use_"
# What CMake itself and the packages that it finds take from the command line.
_CMAKES_OWN = r"CMAKE_\w+|\w+_(ROOT|DIR)"


@dataclass(frozen=True)
class BackendSettings:
    """What CMake found for the backend of one flag.

    `value` is the flag as it was set ("ON", "AUTO", "/opt/x"; "OFF" where nothing set it). `libraries` are absolute
    files or words for the linker, in order; `definitions` are `NAME` or `NAME=VALUE`; `version` is that of the library
    behind the backend, where there is one that says it. `message` says why a backend that AUTO asked for is not
    enabled; it is empty where it is enabled or its flag is off.
    """

    flag: str
    value: str
    enabled: bool
    include_dirs: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    version: str = ""
    message: str = ""


@dataclass(frozen=True)
class BackendModule:
    """A backend's CMake module, and the flag that it obeys; without a file the flag alone decides (ON or OFF)."""

    name: str
    flag: str
    file: Path | None


def flag_texts(
    config: str | Path | Mapping[str, object] | None, flags: Mapping[str, object] | None
) -> tuple[dict[str, str], Path | None]:
    """Flags as texts, and the script: `config` is a script's path or flags itself, and `flags` win over these.

    A flag is ON, OFF, True, False or what its backend takes beside them.
    """
    given = dict(flags or {})
    if isinstance(config, Mapping):
        given, config = {**config, **given}, None
    texts = {name: _flag_text(value) for name, value in given.items()}
    return texts, Path(config) if config is not None else None


def _flag_text(value: object) -> str:
    return {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value)


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
    (default: `cache_folder()`) until anything that it read, or looked for in vain, has changed. A script that only sets
    flags to ON or OFF is read without it, unless a flag with a module is on.

    Raises UserError for a flag that no module obeys, for a value that a flag does not take, for a mistake in the
    script, for a library that is asked for and absent, and where there is no cmake; ToolError if cmake fails otherwise.
    """
    environment = os.environ if environ is None else environ
    given = {name: _absolute(value) for name, value in flags.items()}
    _check_config(config)
    _check_given(given, modules, has_script=config is not None)
    if (plain := _without_cmake(config, given, modules)) is not None:
        return plain
    request, record = _detection(config, given, modules, cache_dir, environment)
    found = _stored(record, environment)
    if found is None:
        found = _detected(request, record, environment)
    return {module.flag: _settings(module, found[module.flag], config) for module in modules}


def files_read(
    config: Path | None,
    flags: Mapping[str, str],
    modules: Sequence[BackendModule],
    *,
    cache_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """The files whose content the last answer of `configure` to the same arguments rests upon.

    The script is always among them; others are not known where no record could be written.
    """
    environment = os.environ if environ is None else environ
    given = {name: _absolute(value) for name, value in flags.items()}
    scripts = () if config is None else (Path(os.path.abspath(config)),)
    if _without_cmake(config, given, modules) is not None:
        return scripts
    _, record = _detection(config, given, modules, cache_dir, environment)
    content = _read(record) or {"observed": {"files": {}}}
    return (*scripts, *map(Path, content["observed"]["files"]))


def _detection(
    config: Path | None,
    given: Mapping[str, str],
    modules: Sequence[BackendModule],
    cache_dir: Path | None,
    environ: Mapping[str, str],
) -> tuple[DetectRequest, Path | None]:
    """What CMake is asked, and where its answer is kept."""
    from relaybuild.build.cmake import DetectRequest

    request = DetectRequest(
        config=config,
        modules={module.flag: module.file for module in modules},
        given=given,
    )
    return request, _record_path(request, cache_dir if cache_dir is not None else cache_folder(environ), environ)


def _detected(request: DetectRequest, record: Path | None, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """The flags of the result of running CMake, which is kept if it can be."""
    import tempfile

    from relaybuild.build import evidence
    from relaybuild.build.detect import detect

    start = time.time_ns()
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="relaybuild-detect-") as folder:
        detection = detect(request, Path(os.path.realpath(folder)), environ)
    _raise_mistakes(_mistakes(detection, request))
    flags: Mapping[str, Any] = detection.result["flags"]
    if record is not None:
        observed = evidence.observe(detection.subjects, environ)
        # What was written while CMake ran may have been read before or after.
        is_final = not detection.opaque and not evidence.changed_since(detection.subjects, start)
        _store(record, {"flags": flags, "observed": observed if is_final else {"files": observed["files"]}})
    return flags


def _without_cmake(
    config: Path | None, given: Mapping[str, str], modules: Sequence[BackendModule]
) -> Mapping[str, BackendSettings] | None:
    """The settings where nothing has to be evaluated or found: flags that are ON or OFF, and no module that is on."""
    known = {module.flag for module in modules}
    script = {} if config is None else plain_settings(config, _ON | _OFF)
    if script is None or not script.keys() <= known or (config is not None and not given.keys() <= known):
        return None
    values = {module.flag: {**script, **given}.get(module.flag, "OFF") for module in modules}
    if any(_needs_cmake(module, values[module.flag]) for module in modules):
        return None
    return {m.flag: _plain_settings(m, values[m.flag], f"option '-D {m.flag}'") for m in modules}


def _check_config(config: Path | None) -> None:
    if config is None or config.is_file():
        return
    what = "it is a folder" if config.is_dir() else "there is no such file"
    raise UserError(f"cannot read the configuration '{config}': {what}; write one with 'relaybuild init'")


def _check_given(given: Mapping[str, str], modules: Sequence[BackendModule], *, has_script: bool) -> None:
    """Raise UserError for names of the command line that nothing obeys; a script may declare names of its own."""
    known = [module.flag for module in modules]
    mistakes: list[UserError] = []
    for name in given:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.+-]*", name):
            mistakes.append(UserError(f"option '-D {name}=...': '{name}' cannot be the name of a flag"))
        elif name not in known and (
            name.lower().startswith(_FLAG_LIKE) or not (has_script or re.fullmatch(_CMAKES_OWN, name))
        ):
            mistakes.append(_unknown_flag(name, known, f"option '-D {name}'"))
    _raise_mistakes(mistakes)


def _is_like_a_flag(name: str) -> bool:
    return name.lower().startswith(_FLAG_LIKE)


def _unknown_flag(name: str, known: Sequence[str], where: str) -> UserError:
    import difflib

    upper = {flag.upper(): flag for flag in known}
    near = difflib.get_close_matches(name.upper(), upper, n=1, cutoff=0.5)
    hint = f"did you mean '{upper[near[0]]}'? The" if near else "the"
    flags = ", ".join(sorted(known)) or "none"
    advice = (
        "" if name.lower().startswith(_FLAG_LIKE) else "; the configuration may declare a name of its own by option()"
    )
    return UserError(
        f"no backend obeys the flag '{name}'; {hint} flags of installed backends are {flags}{advice}", where=where
    )


def _raise_mistakes(mistakes: Sequence[UserError]) -> None:
    if len(mistakes) == 1:
        raise mistakes[0]
    if mistakes:
        raise UserError("\n".join(map(str, mistakes)))


def _absolute(value: str) -> str:
    """A value that is a path relative to the current folder as an absolute one; any other as it is."""
    if value.startswith("~"):
        return os.path.expanduser(value)
    is_word = value.upper() in _ON | _OFF | {"AUTO"}
    is_path = not is_word and (os.sep in value or os.path.exists(value))
    return os.path.abspath(value) if is_path else value


def _is_off(value: str) -> bool:
    return value.upper() in _OFF or value.upper().endswith("-NOTFOUND")


def _needs_cmake(module: BackendModule, value: str) -> bool:
    return module.file is not None and not _is_off(value)


def _plain_settings(module: BackendModule, value: str, where: str) -> BackendSettings:
    """The settings of a backend that its flag alone decides on."""
    if value.upper() not in _ON and not _is_off(value):
        raise UserError(f"found '{value}', expected OFF or ON", where=where)
    return BackendSettings(module.flag, value, not _is_off(value))


def _settings(module: BackendModule, found: Mapping[str, Any], config: Path | None) -> BackendSettings:
    value: str = found["value"]
    if module.file is None:
        return _plain_settings(module, value, f"{config}: flag '{module.flag}'")
    return BackendSettings(
        flag=module.flag,
        value=value,
        enabled=found.get("enabled", False),
        include_dirs=tuple(map(Path, found.get("include_dirs", ()))),
        libraries=tuple(found.get("libraries", ())),
        definitions=tuple(found.get("definitions", ())),
        version=found.get("version", ""),
        message=found.get("message", ""),
    )


def _mistakes(detection: Detection, request: DetectRequest) -> list[UserError]:
    """What the user has to change, of all that CMake's evaluation came upon."""
    from relaybuild.build.detect import shown

    def where(name: str) -> str:
        if name in request.given:
            return f"option '-D {name}={request.given[name]}'"
        position = detection.assignments.get(name)
        return shown(position, request.config) if position is not None else f"flag '{name}'"

    known = list(request.modules)
    mistakes = [UserError(f"{e['flag']}: {e['message']}", where=where(e["flag"])) for e in detection.result["errors"]]
    undeclared = [name for name in detection.result["undeclared"] if not re.fullmatch(_CMAKES_OWN, name)]
    mistakes += [_unknown_flag(name, known, where(name)) for name in (*detection.result["unknown"], *undeclared)]
    return mistakes


def _record_path(request: DetectRequest, cache_dir: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Where the outcome of a request is kept: one file per request, machine, cmake and Python environment."""
    if cache_dir is None:
        return None
    config = os.path.abspath(request.config) if request.config is not None else ""
    from relaybuild.build import cmake

    hasher = Hasher(f"configure.{_FORMAT}").field("config", config)
    for flag, file in request.modules.items():
        hasher.field("module", (flag, str(file or "")))
    for name, value in request.given.items():
        hasher.field("given", (name, value))
    for name, words in cmake.python_environment().items():
        hasher.field(name, words)
    for program in cmake.find_cmakes(environ):
        hasher.field("cmake", (program, *_identity(program)))
    machine = os.uname()
    hasher.field("machine", (machine.sysname, machine.release, machine.machine))
    for variable in sorted(detecting(environ).items()):
        hasher.field("variable", variable)
    return cache_dir / "configure" / f"{hasher.digest()}.json"


def _identity(program: str) -> tuple[int, ...]:
    """What changes when another program is installed under the same name."""
    status = os.stat(program)
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def _stored(record: Path | None, environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The flags in a record if it is whole and what it rests upon is as it was."""
    content = _read(record)
    if content is None:
        return None
    from relaybuild.build import evidence

    flags: Mapping[str, Any] = content["flags"]
    return flags if evidence.holds(content["observed"], environ) else None


def _read(record: Path | None) -> Mapping[str, Any] | None:
    """What a record holds, if it is whole. Of an answer that cannot be taken again it has the files alone."""
    if record is None:
        return None
    try:
        digest, _, text = record.read_text(encoding="utf-8").partition("\n")
        content: Mapping[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    return content if digest_bytes(text.encode()).hex == digest else None


def _store(record: Path, content: Mapping[str, Any]) -> None:
    """Keep a record; a cache that cannot be written is none."""
    text = json.dumps(content, sort_keys=True)
    data = f"{digest_bytes(text.encode())}\n{text}".encode()
    with contextlib.suppress(UserError):
        make_folder(record.parent)
        write_atomically(record, lambda file: _write(file, data))


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
