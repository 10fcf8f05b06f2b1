"""Names the environment variables that are read, and whether keys hold them; does not know who sets them.

What is not named here is read by nobody: tools never see it, and relaybuild does not ask for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from relaybuild.dataclass import dataclass

TOOL_VARIABLES = "RELAYBUILD_TOOL_VARIABLES"
"""The variable that names further ones, for compilers that read variables of their own."""


class Reader(Enum):
    """Who reads a variable. CMake is shown those of the tools, too."""

    RELAYBUILD = "relaybuild"
    TOOL = "tools"
    CMAKE = "cmake"
    LIBRARY = "compiled libraries"


class Keyed(Enum):
    """What is made anew when a variable changes; all but NEVER are invalidating, NEVER is neutral.

    NAMESPACE: the cache's settings bring it into every key.
    """

    ALWAYS = "every key"
    NAMESPACE = "every key, as its namespace"
    DETECTION = "what CMake found"
    NEVER = "no key"


@dataclass(frozen=True)
class Variables:
    """Variables of one kind: names, in which one `*` stands for any characters, who reads them, and what they say."""

    names: tuple[str, ...]
    keyed: Keyed
    readers: tuple[Reader, ...]
    meaning: str


def _kind(names: str, keyed: Keyed, readers: tuple[Reader, ...], meaning: str) -> Variables:
    return Variables(tuple(names.split()), keyed, readers, meaning)


_TOOL, _OURS, _BOTH = (Reader.TOOL,), (Reader.RELAYBUILD,), (Reader.RELAYBUILD, Reader.TOOL)

# A whole name decides, else the first pattern: CMake's are wide.
REGISTRY = (
    _kind(
        "COMPILER_PATH CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH GCC_EXEC_PREFIX LIBRARY_PATH SOURCE_DATE_EPOCH",
        Keyed.ALWAYS,
        _BOTH,
        "where compilers find programs, headers and libraries, and what they take for today",
    ),
    _kind(
        "DEVELOPER_DIR MACOSX_DEPLOYMENT_TARGET SDKROOT TOOLCHAINS",
        Keyed.ALWAYS,
        _TOOL,
        "what compilers on macOS compile with, and for which version",
    ),
    _kind("CC CXX", Keyed.NEVER, _OURS, "the compilers; keys hold these by content"),
    _kind("RELAYBUILD_COMPILER_LAUNCHER", Keyed.NEVER, _OURS, "a command before each compilation"),
    _kind(TOOL_VARIABLES, Keyed.NEVER, _BOTH, "further variables that tools see; each is then in every key"),
    _kind("RELAYBUILD_CACHE_DIR LOCALAPPDATA", Keyed.NEVER, _OURS, "the folder of the cache"),
    _kind("RELAYBUILD_CACHE_NAMESPACE", Keyed.NAMESPACE, _OURS, "whose results these are"),
    _kind(
        "RELAYBUILD_CACHE_TRUST RELAYBUILD_CACHE_SECRET RELAYBUILD_CACHE_SECRET_FILE "
        "RELAYBUILD_REMOTE_CACHE RELAYBUILD_REMOTE_MODE RELAYBUILD_REMOTE_TOKEN",
        Keyed.NEVER,
        _OURS,
        "whose results are believed besides, and where other machines' are",
    ),
    _kind(
        "RELAYBUILD_NUM_THREADS RELAYBUILD_MAX_CALL_DEPTH RELAYBUILD_CPU_LEVEL",
        Keyed.NEVER,
        (Reader.LIBRARY,),
        "how many threads a compiled library has, how deep its functions may call one another, and the highest level "
        "of the processor that one with programs for several may use",
    ),
    _kind("CCACHE_CC CCACHE_COMPILER", Keyed.NEVER, (), "another compiler than the one in the keys; no tool sees it"),
    _kind(
        "BUILDCACHE_* CCACHE_* DISTCC_* ICECC_* INCLUDE_SERVER_* SCCACHE_*",
        Keyed.NEVER,
        _TOOL,
        "what launchers do; they promise to make what the compiler makes",
    ),
    _kind(
        "ACTIONS_* ALL_PROXY AWS_* GOOGLE_APPLICATION_CREDENTIALS HTTPS_PROXY HTTP_PROXY NO_PROXY SSH_AUTH_SOCK "
        "SSL_CERT_DIR SSL_CERT_FILE all_proxy http_proxy https_proxy no_proxy",
        Keyed.NEVER,
        _BOTH,
        "how launchers and remote caches reach their servers",
    ),
    _kind("GRPC_*", Keyed.NEVER, _OURS, "what gRPC says, by which some remote caches are reached"),
    _kind("XDG_*", Keyed.NEVER, _BOTH, "the user's folders: the cache's, and those of launchers"),
    _kind("TEMP TMP TMPDIR", Keyed.NEVER, _BOTH, "the folder of temporary files"),
    _kind(
        "LD_LIBRARY_PATH PYTHONHOME PYTHONNOUSERSITE PYTHONPATH PYTHONUSERBASE",
        Keyed.NEVER,
        _TOOL,
        "where tools find what they are made of",
    ),
    _kind("MAKEFLAGS", Keyed.NEVER, _TOOL, "the job server of a build around this one"),
    _kind("OPENBLAS_THREAD_TIMEOUT", Keyed.NEVER, _OURS, "how soon numpy's threads sleep that have nothing to do"),
    _kind("GITHUB_STEP_SUMMARY", Keyed.NEVER, _OURS, "the file for a report on GitHub"),
    _kind("HOME PATH", Keyed.DETECTION, _BOTH, "where programs are, and the user's files"),
    _kind(
        "CMAKE_* INCLUDE LIB *_DIR *_ROOT",
        Keyed.DETECTION,
        (Reader.CMAKE,),
        "where CMake finds packages; variables that scripts name are shown to it, too, and kept with what it found",
    ),
)

_ALWAYS = tuple(name for kind in REGISTRY if kind.keyed is Keyed.ALWAYS for name in kind.names)


_WHOLE = {name: kind for kind in REGISTRY for name in kind.names if "*" not in name}
_PATTERNS = tuple((name, kind) for kind in REGISTRY for name in kind.names if "*" in name)


def kind_of(name: str) -> Variables | None:
    """The kind of a variable; None for one that is not registered."""
    return _WHOLE.get(name) or next((kind for pattern, kind in _PATTERNS if _matches(name, pattern)), None)


def invalidating(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change what tools make, by name: they are in every key."""
    found = {name: environ[name] for name in _ALWAYS if name in environ}
    return found | _declared(environ)


def shown_to(reader: Reader, environ: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """The variables that a tool or CMake is shown: its own, those that the user has declared, and `named` ones."""
    readers = {reader, Reader.TOOL}
    own = {name: value for name, value in environ.items() if name in named or _is_for(readers, name)}
    return own | _declared(environ)


def detecting(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change what CMake finds, whatever its scripts are."""
    kinds = {name: kind_of(name) for name in environ}
    found = {name: environ[name] for name, kind in kinds.items() if kind and kind.keyed is Keyed.DETECTION}
    return found | invalidating(environ)


def _is_for(readers: Iterable[Reader], name: str) -> bool:
    kind = kind_of(name)
    return kind is not None and any(reader in kind.readers for reader in readers)


def _declared(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the user has declared."""
    patterns = environ.get(TOOL_VARIABLES, "").replace(",", " ").split()
    if not patterns:
        return {}
    return {name: value for name, value in environ.items() if any(_matches(name, each) for each in patterns)}


def _matches(name: str, pattern: str) -> bool:
    # a regular expression for each pattern would take a command that finds all longer to compile than all it asks
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)
