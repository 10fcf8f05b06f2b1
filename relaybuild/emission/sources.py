"""Writes a folder of C for any build system, and the one line that compiles it; runs no compiler."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from relaybuild.build.library_spec import link_words
from relaybuild.emission.layout import Files, Group, Parts, base_flags, common_files, filled, groups, part_rows
from relaybuild.emission.names import HEADER, INCLUDE, names_header
from relaybuild.emission.weights_text import FILE_MACRO, weights_array, weights_from_file

MAX_ARRAY_BYTES = 1 << 20
"""Weights up to here are an array in C; compilers take long over larger ones, which the assembler includes."""

_WEIGHTS_FILE = "weights.bin"
_SOURCES = (".c", ".cc")
_COMPILERS = {"c": "${CC:-cc}", "c++": "${CXX:-c++}"}


def source_files(parts: Parts) -> Files:
    """The files of the folder of a library."""
    made = groups(parts)
    files = {**common_files(parts, made), **_weights_files(parts)}
    return {**_with_own_names(parts.spec.name, files), "README.md": _readme(parts, made).encode()}


def command_line(parts: Parts, made: Sequence[Group]) -> str:
    """The line of a shell that makes an archive of all, in the folder."""
    steps = [_compile_words(group) for group in made]
    return " && ".join([*steps, f"${{AR:-ar}} rcs lib{parts.spec.name}.a *.o"])


def portable_link_words(words: Sequence[str]) -> list[str]:
    """What programs are linked with, without places on this machine: a library is named as `-l` names it."""
    found = []
    for word in words:
        if word.startswith("-Wl,-rpath"):
            continue
        name = Path(word).name
        is_library = os.path.isabs(word) and name.startswith("lib")
        found.append(f"-l{name.removeprefix('lib').partition('.')[0]}" if is_library else word)
    return found


def _has_weights_file(parts: Parts) -> bool:
    return parts.weights is not None and parts.weights.stat().st_size > MAX_ARRAY_BYTES


def _weights_files(parts: Parts) -> Files:
    if parts.weights is None:
        return {}
    if _has_weights_file(parts):
        return {_WEIGHTS_FILE: parts.weights, "src/weights.c": weights_from_file(_WEIGHTS_FILE).encode()}
    return {"src/weights.c": weights_array(parts.weights).encode()}


def _with_own_names(model: str, files: Files) -> Files:
    """The files, all sources of which include a header that gives their symbols names of their own."""
    texts = {name: content for name, content in files.items() if isinstance(content, bytes)}
    sources = {name: INCLUDE.encode() + text for name, text in texts.items() if name.endswith(_SOURCES)}
    header = names_header(model, (text.decode() for text in texts.values()))
    return {**files, **sources, f"include/{HEADER}": header.encode()}


def _archive_words(parts: Parts) -> str:
    """The archive for a linker: nothing refers to loaders of modules, which register themselves."""
    archive = f"lib{parts.spec.name}.a"
    return f"-Wl,--whole-archive {archive} -Wl,--no-whole-archive" if parts.is_cxx else archive


def _compile_words(group: Group) -> str:
    flags = [*base_flags(group.language), *group.flags, *(f"-I{folder}" for folder in group.include_dirs)]
    # found on this machine, and elsewhere too where the same library is installed
    flags += group.backend.flags if group.backend is not None else ()
    pattern = "*.c" if group.language == "c" else "*.cc"
    return f"{_COMPILERS[group.language]} {shlex.join(flags)} -c {group.folder}/{pattern}"


def _readme(parts: Parts, made: Sequence[Group]) -> str:
    name = parts.spec.name
    link = " ".join(portable_link_words(link_words(parts.spec)))
    remark = (
        f"\n`{_WEIGHTS_FILE}` has the weights, which the assembler includes when `src/weights.c` is compiled here;"
        f"\nfrom elsewhere, `-D{FILE_MACRO}='\"/its/place\"'` names it.\n"
    )
    return filled(
        "sources_readme.md.in",
        title="".join(c if c.isprintable() and c not in "@`|" else "?" for c in parts.title),
        symbol=name,
        command=command_line(parts, made),
        program=f"$CC -Iinclude program.c {_archive_words(parts)} {link}",
        link=link,
        parts=part_rows(made),
        weights=remark if _has_weights_file(parts) else "",
    )
