"""The machine a library is compiled for, as a value parsed from `--target`; does not know any compiler or kernel."""

from __future__ import annotations

import functools
import platform
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError


@dataclass(frozen=True)
class _Level:
    """One micro-architecture level: what `-march` names it, and what a CPU must report to be of it."""

    arch: str
    level: str
    march: str
    vector_bits: int
    num_vector_registers: int
    has_fma: bool
    cpu_features: tuple[str, ...] = ()
    linux_flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Feature:
    """One extension beyond a level; the empty `contained_in` means that no level has it."""

    name: str
    linux_flag: str
    needs: str
    contained_in: tuple[str, ...] = ()
    implies: tuple[str, ...] = ()


_V2_CPU = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3_CPU = (*_V2_CPU, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4_CPU = (*_V3_CPU, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

_V2_FLAGS = frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])
_V3_FLAGS = _V2_FLAGS | frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])
_V4_FLAGS = _V3_FLAGS | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])

# Ordered from the least to the most capable, which `Target.host` relies on.
_LEVELS: dict[str, _Level] = {
    "c": _Level("c", "", "", 32, 16, False),
    "aarch64": _Level("aarch64", "", "armv8-a", 128, 32, True),
    "x86-64": _Level("x86-64", "", "x86-64", 128, 16, False),
    "x86-64-v2": _Level("x86-64", "v2", "x86-64-v2", 128, 16, False, _V2_CPU, _V2_FLAGS),
    "x86-64-v3": _Level("x86-64", "v3", "x86-64-v3", 256, 16, True, _V3_CPU, _V3_FLAGS),
    "x86-64-v4": _Level("x86-64", "v4", "x86-64-v4", 512, 32, True, _V4_CPU, _V4_FLAGS),
}

_V3_UP = ("x86-64-v3", "x86-64-v4")
_FEATURES: dict[str, _Feature] = {
    feature.name: feature
    for feature in (
        _Feature("avx", "avx", "x86-64-v2", _V3_UP),
        _Feature("avx2", "avx2", "x86-64-v2", _V3_UP, ("avx",)),
        _Feature("f16c", "f16c", "x86-64-v2", _V3_UP, ("avx",)),
        _Feature("fma", "fma", "x86-64-v2", _V3_UP, ("avx",)),
        _Feature("bmi", "bmi1", "x86-64-v2", _V3_UP),
        _Feature("bmi2", "bmi2", "x86-64-v2", _V3_UP),
        _Feature("avxvnni", "avx_vnni", "x86-64-v3"),
        _Feature("avx512vnni", "avx512_vnni", "x86-64-v4"),
        _Feature("avx512bf16", "avx512_bf16", "x86-64-v4"),
        _Feature("avx512fp16", "avx512_fp16", "x86-64-v4"),
        _Feature("avx512vbmi", "avx512vbmi", "x86-64-v4"),
        _Feature("avx512vbmi2", "avx512_vbmi2", "x86-64-v4"),
    )
}


_MULTI = "x86-64-multi"
_MULTI_TEXT = rf"{_MULTI}(?:\[([^\]]*)\])?"
_MULTI_LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


class _Entered(threading.local):
    def __init__(self) -> None:
        self.targets: list[Target] = []


_entered = _Entered()


@dataclass(frozen=True)
class Target:
    """What code is generated for; `with target:` makes it the one of this thread where none is named.

    `name` is canonical (a level, then `+feature` for what the level lacks, in alphabetical order), so that equal
    targets have equal names. `arch` is `x86-64`, `aarch64` or `c` (portable scalar C11: no vector extensions, no
    `-march`); `level` is `v2`, `v3`, `v4`, or empty where an architecture has no levels and for the least of them.
    `vector_bits` is the width of a vector register, 32 for the scalar target.

    A target of several levels, `x86-64-multi`, names them in `levels`, from the least on, and a library for it picks
    one when it is loaded; all else that such a target says is true of its least level, and so of all.
    """

    name: str
    arch: str
    level: str
    features: tuple[str, ...]
    vector_bits: int
    num_vector_registers: int
    has_fma: bool
    levels: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Target:
        """The target that `text` names: `LEVEL[+FEATURE]...`, `native`, or `x86-64-multi` with the levels that are not
        to be v2, v3 and v4 behind it, `x86-64-multi[v2,v3]`.

        Raises UserError for an unknown level or feature, or a feature that the level cannot have.
        """
        if text.strip().startswith(_MULTI) and (multi := re.fullmatch(_MULTI_TEXT, text.strip())):
            return _multi(multi[1])
        base, *features = text.strip().split("+")
        if base == "native":
            if features:
                raise UserError(
                    f"target '{text}' adds features to 'native', which already stands for all of this machine; "
                    "write 'native' alone or a level with features"
                )
            return _native()
        if base not in _LEVELS:
            raise UserError(_unknown("target", base, [*_LEVELS, _MULTI, "native"]))
        return _make(base, features)

    @staticmethod
    def host() -> Target:
        """The level of the building machine, without its further features, so that a fleet agrees on it."""
        return _make(_host_level(), ())

    @staticmethod
    def current() -> Target | None:
        """The innermost target entered by `with` in this thread; None outside of all."""
        return _entered.targets[-1] if _entered.targets else None

    def __enter__(self) -> Target:
        _entered.targets.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.targets.pop()

    @property
    def parts(self) -> tuple[Target, ...]:
        """The targets of one level each that code is generated for, from the least on: one, where there are no
        `levels`."""
        return tuple(_make(name, ()) for name in self.levels) or (self,)

    @property
    def level_number(self) -> int:
        """Which level of x86-64 it is, 1 for its baseline; 0 for other architectures."""
        return int(_short(_level_name(self.arch, self.level))[1:]) if self.arch == "x86-64" else 0

    @property
    def vector_lanes(self) -> int:
        """Number of float32 values in a vector register; 1 for the scalar target."""
        return self.vector_bits // 32

    @property
    def cflags(self) -> tuple[str, ...]:
        """Compiler flags (gcc and clang spell them alike) that allow everything this target has."""
        level = _LEVELS[_level_name(self.arch, self.level)]
        march = (f"-march={level.march}",) if level.march else ()
        width = ("-mprefer-vector-width=512",) if self.vector_bits == 512 else ()
        return (*march, *width, *(f"-m{feature}" for feature in self.features))

    @property
    def cpu_features(self) -> str:
        """Space-separated names, as `__builtin_cpu_supports` takes them, that a CPU must have to run the code.

        Empty where every CPU of the architecture will do.
        """
        level = _LEVELS[_level_name(self.arch, self.level)]
        return " ".join((*level.cpu_features, *self.features))

    def __str__(self) -> str:
        return self.name


def create(text: str) -> Target:
    """The target that `text` names, as `Target.parse` reads it; for use in a `with` statement."""
    return Target.parse(text)


def chosen(target: str | Target | None) -> Target:
    """What is asked for: a target, one by its name, or for None the current one, outside of all the host's."""
    if isinstance(target, str):
        return Target.parse(target)
    return target or Target.current() or Target.host()


def _level_name(arch: str, level: str) -> str:
    return f"{arch}-{level}" if level else arch


def _make(base: str, features: Sequence[str]) -> Target:
    level = _LEVELS[base]
    extra = _extra_features(base, features)
    wide_bits = 256 if "avx" in extra else 0
    return Target(
        name="+".join((base, *extra)),
        arch=level.arch,
        level=level.level,
        features=extra,
        vector_bits=max(level.vector_bits, wide_bits),
        num_vector_registers=level.num_vector_registers,
        has_fma=level.has_fma or "fma" in extra,
    )


def _multi(words: str | None) -> Target:
    """The target of several levels, named as in `v2,v3`; None for those that are usual."""
    names = _MULTI_LEVELS if words is None else _levels_of(words)
    if len(names) == 1:
        return _make(names[0], ())
    listed = ",".join(map(_short, names))
    return replace(_make(names[0], ()), name=_MULTI if names == _MULTI_LEVELS else f"{_MULTI}[{listed}]", levels=names)


def _levels_of(words: str) -> tuple[str, ...]:
    known = {_short(name): name for name, level in _LEVELS.items() if level.arch == "x86-64"}
    asked = [word.strip() for word in words.split(",")]
    for word in asked:
        if word not in known:
            raise UserError(_unknown(f"level of target '{_MULTI}'", word, list(known)))
    return tuple(name for word, name in known.items() if word in asked)


def _short(level: str) -> str:
    """What a level of x86-64 is called among its like: `v2`, `v1` for the least."""
    return _LEVELS[level].level or "v1"


def _extra_features(base: str, features: Sequence[str]) -> tuple[str, ...]:
    """What `features` add to a level, with what they imply, sorted; what the level contains is dropped."""
    extra: set[str] = set()
    for name in features:
        if name not in _FEATURES:
            raise UserError(_unknown(f"feature of target '{base}'", name, _features_of(base)))
        feature = _FEATURES[name]
        if base in feature.contained_in:
            continue
        if name not in _features_of(base):
            known = ", ".join(_features_of(base)) or "none"
            raise UserError(
                f"feature '{name}' needs target '{feature.needs}' or later, but the target is '{base}'; "
                f"features that '{base}' can have: {known}"
            )
        extra.update((name, *feature.implies))
    return tuple(sorted(extra))


def _features_of(base: str) -> list[str]:
    """Names of the features that a level can be extended by."""
    order = list(_LEVELS)
    return [
        name
        for name, feature in _FEATURES.items()
        if _LEVELS[feature.needs].arch == _LEVELS[base].arch
        and order.index(base) >= order.index(feature.needs)
        and base not in feature.contained_in
    ]


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    suggestion = f"; did you mean '{nearest[0]}'?" if nearest else ""
    return f"unknown {kind}: '{name}'{suggestion} (known: {', '.join(known) or 'none'})"


def _native() -> Target:
    base, flags = _host_level(), _linux_cpu_flags()
    return _make(base, [name for name in _features_of(base) if _FEATURES[name].linux_flag in flags])


def _host_level() -> str:
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "aarch64"
    if machine not in ("x86_64", "amd64"):
        return "c"
    flags = _linux_cpu_flags()
    if not flags:
        return "x86-64-v2"
    levels = [name for name, level in _LEVELS.items() if level.arch == "x86-64" and level.linux_flags <= flags]
    return levels[-1] if levels else "c"


@functools.cache
def _linux_cpu_flags() -> frozenset[str]:
    """The CPU's feature flags as Linux names them; empty where there is no `/proc/cpuinfo`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())
