"""Finds the C compiler, proves that it works and says what it is; does not know what will be compiled."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relaybuild.build.cache.store import Cache
from relaybuild.build.files import writing
from relaybuild.build.flags import objection_to_flags
from relaybuild.build.moment import Moment
from relaybuild.build.process import Completed, run_together
from relaybuild.build.tool_identity import SHOW, identity
from relaybuild.build.tool_record import LAUNCHERS, ToolRecords
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import UserError

LAUNCHER_VARIABLE = "RELAYBUILD_COMPILER_LAUNCHER"
"""The variable with the command that every compilation goes through (`ccache`); links and weights never do."""

# <string.h> shows that the C library's headers are there; <math.h> would too, and takes 10 ms more.
_PROBE_SOURCE = """\
#include <string.h>
int rb_probe(const char *text) { return (int)strlen(text); }
"""

_ROLES = ("cc1", "collect2", "as", "ld")
_QUESTIONS = (
    ("--version",),
    ("-dumpmachine",),
    *((f"-print-prog-name={role}",) for role in _ROLES),
    ("-print-search-dirs",),
    ("-E", "-Wp,-v", "-x", "c", os.devnull),
)

_LISTS = ("include_dirs", "library_dirs", "programs")
_FACTS = ("family", "version", "machine", "is_elf", "elf_machine", *_LISTS)

_INSTALL = """install one:
    Debian, Ubuntu:  apt-get install gcc libc6-dev
    Fedora, RHEL:    dnf install gcc glibc-devel
    Alpine:          apk add gcc musl-dev
    macOS:           xcode-select --install
or name one with --cc or the variable CC"""

CFLAGS = (
    "-std=gnu11",
    "-O2",
    "-pipe",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fdiagnostics-color=never",
)

_ELF_LDFLAGS = (
    "-static-libgcc",
    "-Wl,--as-needed",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
    "-Wl,-z,noexecstack",
    "-Wl,-z,relro",
)

# Of what gcc does at -O3, kernels gain by vectors and by short loops without a counter; the rest costs time.
_OPTIMIZING = {"gcc": ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fpeel-loops")}
_IEEE = ("-fno-trapping-math", "-fno-stack-protector")
PORTABLE_KERNEL_CFLAGS = ("-O3", *_IEEE)
"""`Toolchain.kernel_cflags` for sources that any gcc or clang may compile."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler that has compiled and linked a shared library on this machine.

    `command` is how it is called, launcher and own arguments included; `path` is the compiler itself; `family` is `gcc`
    or `clang`; `machine` is what it says it compiles for, such as `x86_64-linux-gnu`. `is_elf` tells whether its
    libraries are ELF files; `elf_machine` is their ELF machine number if they are 64-bit and little-endian, else None.
    `digest` identifies the driver, the compiler proper, the assembler, the linker, scripts around them and the version
    text by content, not by path or time; no launcher is part of it. What the compiler makes cannot be looked up by that
    where there is an `objection`. `launcher` are the words at the beginning of `command` that were not
    part of the compiler's own command. Headers are looked for in `include_dirs` and libraries in `library_dirs`, in
    that order, after what a command says itself. `programs` are the files that `digest` is of.
    """

    command: tuple[str, ...]
    path: Path
    family: str
    version: str
    machine: str
    is_elf: bool
    elf_machine: int | None
    digest: Digest
    launcher: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    objection: str = ""

    @property
    def compiler_command(self) -> tuple[str, ...]:
        """`command` without a launcher such as ccache: for links, and for what must not go through a cache."""
        return without_launchers(self.command[len(self.launcher) :])

    @property
    def cflags(self) -> tuple[str, ...]:
        """Flags of every compilation; a unit's own flags come after them and win."""
        return CFLAGS

    @property
    def kernel_cflags(self) -> tuple[str, ...]:
        """Flags for units that carry the arithmetic, to be followed by `Target.cflags`; results stay IEEE values."""
        own = _OPTIMIZING.get(self.family)
        return PORTABLE_KERNEL_CFLAGS if own is None else (*own, *_IEEE)

    @property
    def ldflags(self) -> tuple[str, ...]:
        """Flags of every link of a shared library: nothing undefined, nothing needless, the same bytes every time."""
        return ("-shared", *_ELF_LDFLAGS) if self.is_elf else ("-shared",)

    def __str__(self) -> str:
        return f"{self.family} {self.version} ({self.machine}, {shlex.join(self.command)})"


def probe(
    cc: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cache: Cache | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Toolchain:
    """Find and try the compiler: `cc` if given, else `$CC`, else `cc`, `gcc` or `clang` on the PATH.

    `cc` and `$CC` may be a path or a command with words (`ccache gcc -m64`); `$RELAYBUILD_COMPILER_LAUNCHER` goes
    before them. A `cache` remembers what was found out, and no process is started as long as that must still hold.
    Where the compiler has to be tried, `meanwhile` is called while it runs.

    Raises UserError if there is none or it is neither gcc nor clang, ToolError with its output if it is there but
    cannot make a shared library.
    """
    environment = os.environ if environ is None else environ
    launcher = resolve_launcher(environment)
    command = (*launcher, *_find(cc, environment))
    records = ToolRecords(cache, environment)
    if (facts := records.recall("c", command)) is not None and (known := _from_facts(command, launcher, facts)):
        return known
    return _tried(command, launcher, environment, records, meanwhile)


def _tried(
    command: tuple[str, ...],
    launcher: tuple[str, ...],
    environ: Mapping[str, str],
    records: ToolRecords,
    meanwhile: Callable[[], object] | None,
) -> Toolchain:
    own = command[len(launcher) :]
    compiler = without_launchers(own)
    import tempfile

    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="relaybuild-probe-") as folder:
        start = Moment.now(Path(folder))
        trial = _trial(own, Path(folder))
        results = run_together(
            [
                trial,
                *((*compiler, *question) for question in _QUESTIONS),
                (*compiler, SHOW, *trial[len(own) :]),
                *_launched_trials(command, launcher, folder),
            ],
            environ=environ,
            meanwhile=meanwhile,
        )
        _check(results, own)
        if not (Path(folder) / "probe.so").is_file():
            raise UserError(
                f"the compiler '{shlex.join(own)}' makes no library, and says nothing of an error; "
                "name gcc or clang with --cc"
            )
        _check_launcher(results[2 + len(_QUESTIONS) :], launcher)
        is_elf, elf_machine = _object_format(Path(folder) / "probe.so")
    version_text, machine, *programs, searched, included = (
        result.output.strip() for result in results[1 : 1 + len(_QUESTIONS)]
    )
    shown = results[1 + len(_QUESTIONS)].output
    known = identity("toolchain.3", compiler, version_text, dict(zip(_ROLES, programs)), shown, records, environ)
    toolchain = Toolchain(
        command=command,
        path=Path(compiler[0]),
        family=_family(version_text, command),
        version=_version(version_text),
        machine=machine,
        is_elf=is_elf,
        elf_machine=elf_machine,
        digest=known.hasher.field("machine", machine).digest(),
        launcher=launcher,
        include_dirs=include_folders(included),
        library_dirs=_folders_of("libraries", searched),
        programs=program_files((compiler[0], *programs), environ),
        objection=known.objection,
    )
    files = _rivals(_folders_of("programs", searched), programs)
    used = [program for program in programs if which(program, path=environ.get("PATH"))]
    if not objection_to_flags(compiler[1:]):
        records.remember("c", command, _facts(toolchain), (compiler[0], *used), files, since=start)
    return toolchain


def _facts(toolchain: Toolchain) -> dict[str, Any]:
    """What a record of a toolchain says, beside its command."""
    digest = (toolchain.digest.hex, toolchain.digest.size)
    return {name: getattr(toolchain, name) for name in _FACTS} | {"digest": digest}


def _from_facts(command: tuple[str, ...], launcher: tuple[str, ...], facts: Mapping[str, Any]) -> Toolchain | None:
    """The toolchain that a record tells of; None for a record of another shape."""
    try:
        fields: dict[str, Any] = {name: facts[name] for name in _FACTS}
        fields |= {name: tuple(map(str, fields[name])) for name in _LISTS}
        path = Path(without_launchers(command[len(launcher) :])[0])
        return Toolchain(command=command, path=path, digest=Digest(*facts["digest"]), launcher=launcher, **fields)
    except (KeyError, TypeError, IndexError):
        return None


def include_folders(text: str) -> tuple[str, ...]:
    """Where a preprocessor looks for headers, from what it prints with `-v`: those that are not there come first, for
    where they would stand is not said, and they may come to be."""
    _, _, listing = text.partition("search starts here:")
    listing = listing.partition("End of search list.")[0]
    absent = re.findall(r'^ignoring nonexistent directory "(.*)"$', text, re.MULTILINE)
    present = [line.strip().removesuffix(" (framework directory)") for line in listing.splitlines() if line[:1] == " "]
    return tuple(dict.fromkeys((*absent, *present)))


def _folders_of(kind: str, searched: str) -> tuple[str, ...]:
    """A list of folders from `-print-search-dirs`."""
    match = re.search(rf"^{kind}: =?(.*)$", searched, re.MULTILINE)
    return tuple(dict.fromkeys(folder for folder in match[1].split(os.pathsep) if folder)) if match else ()


def program_files(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files of programs, each a path or a word of the PATH; those that are not there are left out."""
    found = (which(word, path=environ.get("PATH")) for word in words)
    return tuple(dict.fromkeys(os.path.abspath(path) for path in found if path))


def _rivals(folders: Sequence[str], programs: Sequence[str]) -> list[str]:
    """Files that would be run in place of the programs if they existed."""
    rivals: list[str] = []
    for role, program in zip(_ROLES, programs):
        for folder in folders:
            candidate = os.path.join(folder, role)
            if candidate == program or (os.path.isabs(program) and _is_same_file(candidate, program)):
                break
            rivals.append(candidate)
    return rivals


def _is_same_file(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def resolve_launcher(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words of `$RELAYBUILD_COMPILER_LAUNCHER`, its program as an absolute path; raises UserError."""
    text = environ.get(LAUNCHER_VARIABLE, "").strip()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"the variable {LAUNCHER_VARIABLE} ('{text}') cannot be split into words: {error}") from error
    if not words:
        return ()
    path = which(words[0], path=environ.get("PATH"))
    if path is None:
        raise UserError(
            f"the compiler launcher '{words[0]}' (from the variable {LAUNCHER_VARIABLE}) was not found or is not "
            "executable; install it, or unset the variable"
        )
    return (os.path.abspath(path), *words[1:])


def _find(cc: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    for text, origin in ((cc, "--cc"), (environ.get("CC"), "the variable CC")):
        if text is not None and text.strip():
            return resolve_command(text.strip(), origin, environ)
    for name in ("cc", "gcc", "clang"):
        if path := which(name, path=environ.get("PATH")):
            return (path,)
    raise UserError(f"no C compiler was found: looked for 'cc', 'gcc' and 'clang' on the PATH; {_INSTALL}")


def resolve_command(text: str, origin: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a compiler command, the programs among them as absolute paths.

    Raises UserError, which names the `origin` of the text, where one is not found.
    """
    search = environ.get("PATH")
    if whole := which(text, path=search):
        return (os.path.abspath(whole),)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"the compiler command '{text}' (from {origin}) cannot be split into words: {error}") from error
    resolved: list[str] = []
    for index, word in enumerate(words):
        path = which(word, path=search)
        if path is None:
            raise UserError(f"the compiler '{word}' (from {origin}) was not found or is not executable; {_INSTALL}")
        resolved.append(os.path.abspath(path))
        if _stem(word) not in LAUNCHERS or index + 1 == len(words):
            return (*resolved, *words[index + 1 :])
    raise UserError(f"the compiler command (from {origin}) is empty; {_INSTALL}")


def without_launchers(command: Sequence[str]) -> tuple[str, ...]:
    """A compiler's command without ccache and its like before it."""
    first = next((i for i, word in enumerate(command) if _stem(word) not in LAUNCHERS), 0)
    return tuple(command[first:])


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _trial(command: Sequence[str], folder: Path) -> tuple[str, ...]:
    source = folder / "probe.c"
    source.write_text(_PROBE_SOURCE, encoding="utf-8")
    return (*command, *CFLAGS, "-shared", str(source), "-o", str(folder / "probe.so"), "-lm")


def _launched_trials(command: Sequence[str], launcher: Sequence[str], folder: str) -> list[tuple[str, ...]]:
    """The compilation that shows that a launcher works; none without a launcher."""
    source, output = str(Path(folder) / "probe.c"), str(Path(folder) / "probe.o")
    return [(*command, *CFLAGS, "-c", source, "-o", output)] if launcher else []


def _check_launcher(results: Sequence[Completed], launcher: Sequence[str]) -> None:
    for result in results:
        result.check(
            f"the compiler launcher '{shlex.join(launcher)}' (from the variable {LAUNCHER_VARIABLE}) cannot compile a "
            "file; mend it, or unset the variable"
        )


def _check(results: Sequence[Completed], command: Sequence[str]) -> None:
    trial, version, machine = results[:3]
    name = shlex.join(command)
    trial.check(
        f"the compiler '{name}' cannot make a shared library; mend its installation (are the C library's headers, "
        "'libc6-dev' or 'glibc-devel', there?) or name another with --cc"
    )
    for result in (version, machine):
        result.check(f"the compiler '{name}' does not say what it is; name gcc or clang with --cc")


def _object_format(library: Path) -> tuple[bool, int | None]:
    """What the compiler really made, which arguments such as `-m32` change and `-dumpmachine` does not tell."""
    header = library.read_bytes()[:20]
    if not header.startswith(b"\x7fELF"):
        return False, None
    is_64_bit_little_endian = header[4:6] == b"\x02\x01"
    return True, int.from_bytes(header[18:20], "little") if is_64_bit_little_endian else None


def _family(version_text: str, command: Sequence[str]) -> str:
    if "clang" in version_text.lower():
        return "clang"
    if "Free Software Foundation" in version_text:
        return "gcc"
    first_line = version_text.partition("\n")[0]
    raise UserError(
        f"the compiler '{shlex.join(command)}' is neither gcc nor clang: it calls itself '{first_line}'; "
        "name gcc or clang with --cc"
    )


def _version(version_text: str) -> str:
    """The version number: after the word 'version' for clang, the last of the first line for gcc."""
    first_line = version_text.partition("\n")[0]
    if match := re.search(r"version (\d+(?:\.\d+)+)", first_line):
        return match[1]
    numbers: list[str] = re.findall(r"(?<![\w.-])\d+(?:\.\d+)+", first_line)
    return numbers[-1] if numbers else "unknown"
