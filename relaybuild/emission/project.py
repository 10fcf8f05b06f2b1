"""Writes a CMake project that builds a library, its test, and rules for installing it; runs no CMake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relaybuild.backends.sources import BackendSources
from relaybuild.build.bundle import File
from relaybuild.build.share import share_dir
from relaybuild.emission.layout import (
    TEMPLATES,
    Files,
    Group,
    Parts,
    base_flags,
    common_files,
    filled,
    groups,
    part_rows,
)
from relaybuild.emission.weights_text import FILE_MACRO, weights_from_file

_WEIGHTS_SOURCE = "src/weights.c"
_LANGUAGES = {"c": "C", "c++": "CXX"}


def project_files(parts: Parts, recording: bytes | None) -> Files:
    """The files of a library's project; `recording` has the outputs that its test expects, if there is to be one."""
    made = groups(parts)
    name = parts.spec.name
    files = common_files(parts, made)
    files["CMakeLists.txt"] = _lists_text(parts, made, recording is not None).encode()
    files["CMakePresets.json"] = filled("presets.json.in").encode()
    files["README.md"] = _readme(parts, made).encode()
    files["config.cmake"] = _config_text(parts.backends).encode()
    files[f"cmake/{name}Config.cmake"] = _package_text(name).encode()
    files.update(_backend_files(parts.backends))
    if parts.weights is not None:
        files[_weights_file(parts)] = parts.weights
        files[_WEIGHTS_SOURCE] = weights_from_file(_weights_file(parts)).encode()
    if recording is not None:
        files["tests/check.c"] = (TEMPLATES / "check.c").read_bytes()
        files["tests/expected.bin"] = recording
    return files


def _weights_file(parts: Parts) -> str:
    return f"weights/{parts.weights_digest[:16]}.bin"


def _lists_text(parts: Parts, made: Sequence[Group], has_test: bool) -> str:
    spec = parts.spec
    variables = [f"{spec.name}_{group.folder.replace('-', '_')}" for group in made]
    texts = [_group_text(name, group) for name, group in zip(variables, made)]
    sources = [f"  ${{{name}}}" for name in variables]
    if parts.weights is not None:
        texts.append(_weights_text(parts))
        sources.append(f'  "{_here(_WEIGHTS_SOURCE)}"')
    common = {"symbol": spec.name, "upper": spec.name.upper(), "title": _line(parts.title)}
    tests = filled("tests.cmake.in", **common) if has_test else ""
    return filled(
        "CMakeLists.txt.in",
        languages="C CXX" if parts.is_cxx else "C",
        linker_language="CXX" if parts.is_cxx else "C",
        groups="\n".join(texts),
        all_groups="\n".join(sources),
        base_flags=_base_text(parts.is_cxx),
        libraries=" ".join(f"-l{each}" for each in spec.link_libs),
        backends=_backends_text(spec.name, parts.backends, made),
        cxx_libraries=filled("cxx.cmake.in", **common) if parts.is_cxx else "",
        join_flags="-Wl,--force-group-allocation -Wl,--build-id=none" if parts.is_cxx else "-Wl,--build-id=none",
        public="\n".join(f"      --keep-global-symbol={each}" for each in spec.public),
        tests=tests,
        **common,
    )


def _group_text(variable: str, group: Group) -> str:
    lines = [f"set({variable}", *(f'  "{_here(file)}"' for file in group.files), ")"]
    properties = []
    if group.flags:
        properties.append(f'COMPILE_OPTIONS "{";".join(map(_quoted, group.flags))}"')
    folders = [_here(folder) for folder in group.include_dirs[1:]]
    if folders:
        properties.append(f'INCLUDE_DIRECTORIES "{";".join(folders)}"')
    if properties:
        lines.append(f"set_source_files_properties(${{{variable}}} PROPERTIES")
        lines += [f"  {each}" for each in properties]
        lines[-1] += ")"
    return "\n".join([*lines, ""])


def _weights_text(parts: Parts) -> str:
    file = _here(_weights_file(parts))
    return "\n".join(
        [
            f'set_source_files_properties("{_here(_WEIGHTS_SOURCE)}" PROPERTIES',
            f'  OBJECT_DEPENDS "{file}"',
            f'  COMPILE_DEFINITIONS "{FILE_MACRO}=\\"{file}\\"")',
            "",
        ]
    )


def _base_text(is_cxx: bool) -> str:
    lines = []
    for language in ("c", "c++") if is_cxx else ("c",):
        flags = ";".join(base_flags(language))
        lines.append(f'  "$<$<COMPILE_LANGUAGE:{_LANGUAGES[language]}>:{flags}>"')
    if is_cxx:
        lines.append('  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>"')
    return "\n".join(lines)


def _backends_text(name: str, backends: Sequence[BackendSources], made: Sequence[Group]) -> str:
    flagged = [backend for backend in backends if backend.flag]
    if not flagged:
        return ""
    lines = [f'include("{_here("config.cmake")}")', f'include("{_here("cmake/backends.cmake")}")']
    for backend in flagged:
        lines.append(f"relaybuild_use_backend({name} {backend.name} FLAG {backend.flag}")
        if backend.cmake_file is not None:
            lines.append(f'  MODULE "{_here(_module_file(backend))}"')
        lines.append(f"  REGIONS {' '.join(backend.regions)}")
        lines.append("  SOURCES")
        lines += [f'    "{_here(file)}"' for group in made if group.backend == backend for file in group.files]
        lines[-1] += ")"
    return "\n".join([*lines, ""])


def _module_file(backend: BackendSources) -> str:
    return f"cmake/{backend.flag}.cmake"


def _backend_files(backends: Iterable[BackendSources]) -> dict[str, File]:
    flagged = [backend for backend in backends if backend.flag]
    if not flagged:
        return {}
    modules = share_dir() / "cmake" / "modules"
    files: dict[str, File] = {
        "cmake/RelaybuildBackend.cmake": (modules / "RelaybuildBackend.cmake").read_bytes(),
        "cmake/backends.cmake": (TEMPLATES / "backends.cmake").read_bytes(),
    }
    for backend in flagged:
        if backend.cmake_file is not None:
            files[_module_file(backend)] = backend.cmake_file.read_bytes()
    return files


def _config_text(backends: Iterable[BackendSources]) -> str:
    lines = [
        "# Which backends compute regions of the model; -D on CMake's command line wins over this file. A flag may",
        "# name the folder in which a backend's library is installed. Flags of other backends change nothing.",
    ]
    for backend in backends:
        if backend.flag:
            lines += ["", f"# {backend.name}: {', '.join(backend.regions)}", f"set({backend.flag} ON)"]
    return "\n".join(lines) + "\n"


def _package_text(name: str) -> str:
    return f'include("${{CMAKE_CURRENT_LIST_DIR}}/{name}Targets.cmake")\n'


def _readme(parts: Parts, made: Sequence[Group]) -> str:
    rows = [part_rows(made)]
    if parts.weights is not None:
        rows.append("| `weights/` | the weights, which the assembler includes |")
    flags = [backend.flag for backend in parts.backends if backend.flag]
    rows += ["| `config.cmake`, `cmake/` | which backends compute regions, and how they are found |"] if flags else []
    words = (
        f"\nOther backends compute regions of the model: see `config.cmake` ({', '.join(flags)}).\n" if flags else ""
    )
    return filled(
        "project_readme.md.in", title=_line(parts.title), symbol=parts.spec.name, parts="\n".join(rows), backends=words
    )


def _here(file: str) -> str:
    return f"${{CMAKE_CURRENT_SOURCE_DIR}}/{file}"


def _quoted(flag: str) -> str:
    return flag.replace("\\", "\\\\").replace('"', '\\"')


def _line(title: str) -> str:
    """A title as part of a line that no sign of CMake's language ends."""
    return "".join(c if c.isprintable() and c not in "@`|" else "?" for c in title)
