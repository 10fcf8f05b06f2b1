"""The probe, with the machine's compiler and with scripts that play compilers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from relaybuild.build import toolchain as toolchain_module
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.errors import ToolError, UserError

GCC_TEXT = "gcc (Fake 9-1) {version}\\nCopyright (C) Free Software Foundation, Inc."
CLANG_TEXT = "Fake clang version {version} (git 1a2b)\\nTarget: x86_64-pc-linux-gnu"


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def wrapper(path: Path, toolchain: Toolchain, text: str | None = None) -> Path:
    """A script that calls the machine's compiler, except that it may say something else of itself."""
    answer = f"case \"$1\" in --version) printf '{text}\\n'; exit 0;; esac" if text else ""
    return script(path, f'{answer}\nexec {toolchain.path} "$@"')


def environ_with(*folders: Path, **variables: str) -> Mapping[str, str]:
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": path} | variables


def test_the_machines_compiler(toolchain: Toolchain) -> None:
    assert toolchain.family in ("gcc", "clang")
    assert toolchain.version[0].isdigit()
    assert toolchain.path.is_absolute()
    assert "-" in toolchain.machine
    assert toolchain.version in str(toolchain)


def test_probing_twice_gives_equal_values(toolchain: Toolchain) -> None:
    assert probe() == toolchain


def test_the_argument_wins_over_the_variable_and_that_over_the_path(tmp_path: Path, toolchain: Toolchain) -> None:
    argument, variable, first = (
        wrapper(tmp_path / name / "cc", toolchain) for name in ("argument", "variable", "path")
    )
    environ = environ_with(first.parent, CC=str(variable))
    assert probe(str(argument), environ=environ).path == argument
    assert probe(environ=environ).path == variable
    assert probe(environ=environ_with(first.parent)).path == first
    assert probe(environ=environ_with(first.parent, CC=" ")).path == first


@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_each_usual_name_is_looked_for(tmp_path: Path, toolchain: Toolchain, name: str) -> None:
    only = wrapper(tmp_path / "bin" / name, toolchain)
    for tool in ("as", "ld"):
        if path := shutil.which(tool):
            (only.parent / tool).symlink_to(path)
    assert probe(environ={"PATH": str(only.parent)}).path == only


def test_a_launcher_compiles_but_does_not_link(tmp_path: Path, toolchain: Toolchain) -> None:
    log = tmp_path / "log"
    launcher = script(tmp_path / "bin" / "ccache", f'echo "$@" >> {log}\nexec "$@"')
    compiler = wrapper(tmp_path / "my tools" / "gcc", toolchain)
    found = probe(f"ccache '{compiler}' -DWORD='two words'", environ=environ_with(launcher.parent))
    assert found.command == (str(launcher), str(compiler), "-DWORD=two words")
    assert found.compiler_command == (str(compiler), "-DWORD=two words")
    assert found.path == compiler
    assert len(log.read_text(encoding="utf-8").splitlines()) == 1


def test_a_path_with_spaces_is_one_word(tmp_path: Path, toolchain: Toolchain) -> None:
    compiler = wrapper(tmp_path / "ein Ordner für C" / "cc", toolchain)
    assert probe(str(compiler), environ=environ_with()).command == (str(compiler),)


def test_a_relative_compiler_becomes_absolute(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = wrapper(tmp_path / "bin" / "cc", toolchain)
    monkeypatch.chdir(tmp_path)
    assert probe("./bin/cc", environ=environ_with()).path == compiler


@pytest.mark.parametrize(("text", "family", "version"), [(GCC_TEXT, "gcc", "13.2.0"), (CLANG_TEXT, "clang", "17.0.6")])
def test_family_and_version_are_read_from_the_text(
    tmp_path: Path, toolchain: Toolchain, text: str, family: str, version: str
) -> None:
    compiler = wrapper(tmp_path / "cc", toolchain, text.format(version=version))
    found = probe(str(compiler), environ=environ_with())
    assert (found.family, found.version) == (family, version)


def test_the_digest_is_of_content_not_of_place_or_time(tmp_path: Path, toolchain: Toolchain) -> None:
    here, there = (wrapper(tmp_path / name / "cc", toolchain) for name in ("here", "there"))
    os.utime(there, (1, 1))
    first, second = (probe(str(path), environ=environ_with()) for path in (here, there))
    assert first.digest == second.digest
    assert first != second


def test_the_digest_changes_with_the_compiler_its_arguments_and_its_version(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    plain = wrapper(tmp_path / "a" / "cc", toolchain)
    longer = wrapper(tmp_path / "b" / "cc", toolchain)
    longer.write_text(longer.read_text(encoding="utf-8") + "# other content\n", encoding="utf-8")
    newer = wrapper(tmp_path / "c" / "cc", toolchain, GCC_TEXT.format(version="99.1"))
    commands = (str(plain), f"{plain} -DX=1", str(longer), str(newer))
    assert len({probe(command, environ=environ_with()).digest for command in commands}) == 4


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        probe(environ={"PATH": str(tmp_path)})
    message = str(caught.value)
    assert message.startswith("no C compiler was found: looked for 'cc', 'gcc' and 'clang' on the PATH; install one:")
    for line in ("apt-get install gcc", "dnf install gcc", "xcode-select --install", "--cc"):
        assert line in message


@pytest.mark.parametrize(
    ("argument", "variable", "origin"), [("nocc", None, "--cc"), (None, "nocc", "the variable CC")]
)
def test_a_compiler_that_is_not_there(argument: str | None, variable: str | None, origin: str) -> None:
    environ = environ_with(**({"CC": variable} if variable else {}))
    with pytest.raises(UserError, match=rf"the compiler 'nocc' \(from {origin}\) was not found or is not executable"):
        probe(argument, environ=environ)


def test_a_launcher_without_its_compiler(tmp_path: Path) -> None:
    launcher = script(tmp_path / "ccache", 'exec "$@"')
    with pytest.raises(UserError, match="the compiler 'nocc'"):
        probe(f"{launcher} nocc", environ=environ_with())


def test_an_unbalanced_quote_in_the_command() -> None:
    with pytest.raises(UserError, match=r"the compiler command 'gcc '-m64' \(from --cc\) cannot be split into words"):
        probe("gcc '-m64", environ=environ_with())


def test_a_broken_compiler_shows_its_output(tmp_path: Path) -> None:
    compiler = script(tmp_path / "cc", "echo 'cc1: cannot execute' >&2\nexit 1")
    with pytest.raises(ToolError) as caught:
        probe(str(compiler), environ=environ_with())
    assert caught.value.message.startswith(f"the compiler '{compiler}' cannot make a shared library; mend its")
    assert caught.value.output == "cc1: cannot execute\n"
    assert caught.value.exit_code == 2


def test_a_compiler_without_headers_shows_its_output(tmp_path: Path, toolchain: Toolchain) -> None:
    compiler = script(tmp_path / "cc", f'exec {toolchain.path} -nostdinc "$@"')
    with pytest.raises(ToolError, match=r"string\.h"):
        probe(str(compiler), environ=environ_with())


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_bytes(b"\x7fELF nonsense")
    compiler.chmod(0o755)
    with pytest.raises(ToolError, match="could not be started"):
        probe(str(compiler), environ=environ_with())


def test_a_compiler_of_another_kind(tmp_path: Path, toolchain: Toolchain) -> None:
    compiler = wrapper(tmp_path / "tcc", toolchain, "tcc version 0.9.27 (x86_64 Linux)")
    with pytest.raises(UserError, match="is neither gcc nor clang: it calls itself 'tcc version"):
        probe(str(compiler), environ=environ_with())


def test_the_object_format_is_read_from_what_the_compiler_made(tmp_path: Path) -> None:
    def header(ident: bytes, machine: int) -> Path:
        path = tmp_path / "probe.so"
        path.write_bytes(b"\x7fELF" + ident + bytes(10) + b"\x03\0" + machine.to_bytes(2, "little"))
        return path

    assert toolchain_module._object_format(header(b"\x02\x01", 183)) == (True, 183)
    assert toolchain_module._object_format(header(b"\x01\x01", 3)) == (True, None)
    assert toolchain_module._object_format(header(b"\x02\x02", 21)) == (True, None)
    (tmp_path / "mach").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(28))
    assert toolchain_module._object_format(tmp_path / "mach") == (False, None)


def test_a_machine_without_elf_gets_no_linker_flags_of_elf(toolchain: Toolchain) -> None:
    import dataclasses

    assert dataclasses.replace(toolchain, is_elf=False, elf_machine=None).ldflags == ("-shared",)


def test_something_else_is_done_while_the_compiler_is_tried() -> None:
    done: list[int] = []
    probe(meanwhile=lambda: done.append(1))
    assert done == [1]
