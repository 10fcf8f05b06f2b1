"""Configurations evaluated by the machine's cmake: what is on, what is said of mistakes, and when cmake runs again."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from relaybuild.build import cmake
from relaybuild.build.configure import BackendModule, BackendSettings, configure, files_read
from relaybuild.build.share import contrib_modules, share_dir
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import ToolError, UserError

VENDOR = """\
relaybuild_flag_choices(USE_VENDOR OFF AUTO ON PATH)
relaybuild_find_library(VENDOR HEADERS vendor/vendor.h LIBRARIES vendor)
if(NOT VENDOR_FOUND)
  relaybuild_backend_missing(vendor FLAG USE_VENDOR MESSAGE "no vendor: ${VENDOR_REASON}" INSTALL "buy it")
  return()
endif()
file(STRINGS "${VENDOR_INCLUDE_DIR}/vendor/vendor.h" version REGEX "^// [0-9]")
string(REPLACE "// " "" version "${version}")
relaybuild_backend(vendor FLAG USE_VENDOR INCLUDE_DIRECTORIES "${VENDOR_INCLUDE_DIR}"
  LIBRARIES "${VENDOR_LIBRARY}" -lm DEFINITIONS VENDOR=1 "TEXT=a b" VERSION "${version}")
"""

EVALUATED = "if(TRUE)\n  set(USE_PLAIN ON)\nendif()\n"
"""A script that CMake has to evaluate."""


def install_vendor(prefix: Path, version: str = "1.2") -> None:
    for folder, name, text in (("include/vendor", "vendor.h", f"// {version}\n"), ("lib", "libvendor.so", "")):
        (prefix / folder).mkdir(parents=True, exist_ok=True)
        (prefix / folder / name).write_text(text)


class Machine:
    """A project folder, a prefix that CMake searches, a cache, and a cmake on the PATH that counts its runs."""

    def __init__(self, root: Path) -> None:
        self.project, self.prefix, self.cache = root / "my project", root / "prefix", root / "cache"
        self.config = self.project / "config.cmake"
        self._log = root / "runs"
        self._program = root / "bin" / "cmake"
        for folder in (self.project, self.prefix, self._program.parent):
            folder.mkdir()
        self._program.write_text(
            f'#!/bin/sh\necho run >> {self._log}\nexec {cmake.find_cmakes(os.environ)[0]} "$@"\n', encoding="utf-8"
        )
        self._program.chmod(0o755)
        self.module = root / "VENDOR.cmake"
        self.module.write_text(VENDOR, encoding="utf-8")
        self.environ = {
            **os.environ,
            "PATH": f"{self._program.parent}{os.pathsep}{os.environ['PATH']}",
            "CMAKE_PREFIX_PATH": str(self.prefix),
        }

    def write(self, text: str, name: str = "config.cmake") -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def modules(self) -> list[BackendModule]:
        return [
            BackendModule("vendor", "USE_VENDOR", self.module),
            BackendModule("plain", "USE_PLAIN", None),
        ]

    def settings(self, **flags: str) -> Mapping[str, BackendSettings]:
        """The settings under the project's script, if it has one, and flags of the command line."""
        config = self.config if self.config.exists() else None
        return configure(config, flags, self.modules(), cache_dir=self.cache, environ=self.environ)

    def files_read(self) -> set[Path]:
        """The files that the settings rest upon."""
        config = self.config if self.config.exists() else None
        return set(files_read(config, {}, self.modules(), cache_dir=self.cache, environ=self.environ))

    def vendor(self, **flags: str) -> BackendSettings:
        return self.settings(**flags)["USE_VENDOR"]

    def count(self, **flags: str) -> int:
        """How many processes of cmake `settings` starts."""
        before = self._runs()
        self.settings(**flags)
        return self._runs() - before

    def _runs(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path.resolve())


def test_flags_alone_start_no_cmake(machine: Machine) -> None:
    assert machine.count(USE_PLAIN="ON", USE_VENDOR="off") == 0
    settings = machine.settings(USE_PLAIN="ON", USE_VENDOR="off")
    assert settings == {
        "USE_VENDOR": BackendSettings("USE_VENDOR", "off", enabled=False),
        "USE_PLAIN": BackendSettings("USE_PLAIN", "ON", enabled=True),
    }
    assert list(machine.settings()) == ["USE_VENDOR", "USE_PLAIN"]
    assert not any(item.enabled for item in machine.settings().values())
    assert not machine.cache.exists()


@pytest.mark.parametrize(
    "text",
    [
        "# flags\n\nset(USE_PLAIN ON)\nset(USE_VENDOR OFF)  # not now\n",
        "  SET ( USE_PLAIN\ton ) \r\nset(USE_VENDOR 0)",
        "set(USE_PLAIN OFF)\nset(USE_PLAIN Yes)#\n#[ no bracket\n",
    ],
)
def test_a_script_of_plain_flags_starts_no_cmake(machine: Machine, text: str) -> None:
    machine.write(text)
    assert machine.count() == 0
    plain = machine.settings()
    machine.write(f"{text}\nif(TRUE)\nendif()\n")
    assert machine.settings() == plain
    assert plain["USE_PLAIN"].enabled
    assert machine.count(USE_PLAIN="OFF") == 1


@pytest.mark.parametrize(
    "text",
    [
        "set(USE_PLAIN ON)\nset(OTHER ON)\n",
        'set(USE_PLAIN "ON")\n',
        "set(USE_PLAIN\n  ON)\n",
        "#[[\nset(USE_PLAIN OFF)\n]]\nset(USE_PLAIN ON)\n",
        "set(USE_PLAIN ON CACHE BOOL plain)\n",
        "set(USE_PLAIN ${TRUE_WORD})\nset(USE_PLAIN ON)\n",
    ],
)
def test_any_other_script_is_evaluated(machine: Machine, text: str) -> None:
    machine.write(text)
    assert machine.count() == 1
    assert machine.settings()["USE_PLAIN"].enabled


def test_what_a_module_declares(machine: Machine) -> None:
    install_vendor(machine.prefix)
    machine.write("set(USE_VENDOR ON)\nset(USE_PLAIN TRUE)\n")
    library = machine.prefix / "lib" / "libvendor.so"
    assert machine.settings() == {
        "USE_VENDOR": BackendSettings(
            flag="USE_VENDOR",
            value="ON",
            enabled=True,
            include_dirs=(machine.prefix / "include",),
            libraries=(str(library), f"-Wl,-rpath,{library.parent}", "-lm"),
            definitions=("VENDOR=1", "TEXT=a b"),
            version="1.2",
        ),
        "USE_PLAIN": BackendSettings("USE_PLAIN", "TRUE", enabled=True),
    }


def test_cmake_runs_once(machine: Machine) -> None:
    install_vendor(machine.prefix)
    machine.write("set(USE_VENDOR AUTO)\n")
    first = machine.settings()
    assert machine.count() == 0
    assert machine.settings() == first
    assert machine.count(USE_VENDOR="ON") == 1
    assert machine.count(USE_VENDOR="ON") == 0


def test_without_a_script_a_module_is_evaluated_once(machine: Machine) -> None:
    install_vendor(machine.prefix)
    assert [machine.count(USE_VENDOR="ON"), machine.count(USE_VENDOR="ON")] == [1, 0]
    assert machine.vendor(USE_VENDOR="ON").enabled


CONFIGURATION = """\
include(parts/flags.cmake)
include(local.cmake OPTIONAL)
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/choice.txt" USE_PLAIN)
if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/marker" OR "$ENV{WANT_PLAIN}")
  set(USE_PLAIN ON)
endif()
file(GLOB more "${CMAKE_CURRENT_LIST_DIR}/more/*.cmake")
foreach(file IN LISTS more)
  include("${file}")
endforeach()
find_package(Extra QUIET CONFIG)
if(Extra_FOUND)
  set(USE_PLAIN ON)
endif()
"""


def _edit_the_script(machine: Machine) -> None:
    machine.write(CONFIGURATION + "set(USE_PLAIN ON)\n")


def _edit_an_included_file(machine: Machine) -> None:
    machine.write("set(USE_VENDOR OFF)\n", "parts/flags.cmake")


def _edit_a_file_that_was_read(machine: Machine) -> None:
    machine.write("ON\n", "choice.txt")


def _write_an_optional_file(machine: Machine) -> None:
    machine.write("set(USE_VENDOR OFF)\n", "local.cmake")


def _write_a_file_that_a_pattern_matches(machine: Machine) -> None:
    machine.write("set(USE_VENDOR OFF)\n", "more/a.cmake")


def _make_what_was_asked_for(machine: Machine) -> None:
    machine.write("", "marker")


def _set_a_variable(machine: Machine) -> None:
    machine.environ["WANT_PLAIN"] = "1"


def _install_the_library(machine: Machine) -> None:
    install_vendor(machine.prefix)


def _install_a_package(machine: Machine) -> None:
    folder = machine.prefix / "lib" / "cmake" / "extra-1.0"
    folder.mkdir(parents=True)
    (folder / "ExtraConfig.cmake").write_text("", encoding="utf-8")


def _edit_the_module(machine: Machine) -> None:
    machine.module.write_text(VENDOR.replace("no vendor", "no vendor at all"), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        _edit_the_script,
        _edit_an_included_file,
        _edit_a_file_that_was_read,
        _write_an_optional_file,
        _write_a_file_that_a_pattern_matches,
        _make_what_was_asked_for,
        _set_a_variable,
        _install_the_library,
        _install_a_package,
        _edit_the_module,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_a_change_of_what_cmake_read_or_missed_is_seen(machine: Machine, change: Callable[[Machine], None]) -> None:
    machine.write("set(USE_VENDOR AUTO)\n", "parts/flags.cmake")
    machine.write("OFF\n", "choice.txt")
    machine.write(CONFIGURATION)
    before = machine.settings()
    assert not any(item.enabled for item in before.values())
    assert machine.count() == 0
    change(machine)
    assert machine.count() == 1
    assert machine.count() == 0
    assert machine.settings() != before


def test_another_version_of_a_library_is_seen(machine: Machine) -> None:
    install_vendor(machine.prefix)
    assert machine.vendor(USE_VENDOR="ON").version == "1.2"
    install_vendor(machine.prefix, "1.3")
    assert machine.vendor(USE_VENDOR="ON").version == "1.3"


@pytest.mark.parametrize("gone", ["lib/libvendor.so", "include/vendor/vendor.h"])
def test_a_library_that_is_gone_is_not_there(machine: Machine, gone: str) -> None:
    install_vendor(machine.prefix)
    assert machine.vendor(USE_VENDOR="AUTO").enabled
    (machine.prefix / gone).unlink()
    assert not machine.vendor(USE_VENDOR="AUTO").enabled


def test_a_library_in_a_better_place_is_taken(machine: Machine) -> None:
    install_vendor(machine.prefix)
    first = machine.project / "first"
    machine.environ["CMAKE_PREFIX_PATH"] = f"{first}{os.pathsep}{machine.prefix}"
    assert machine.vendor(USE_VENDOR="ON").include_dirs == (machine.prefix / "include",)
    install_vendor(first)
    assert machine.vendor(USE_VENDOR="ON").include_dirs == (first / "include",)


def test_another_cmake_is_asked_again(machine: Machine) -> None:
    machine.write("set(USE_VENDOR AUTO)\n")
    assert [machine.count(), machine.count()] == [1, 0]
    program = machine.project.parent / "bin" / "cmake"
    program.write_text(program.read_text(encoding="utf-8") + "# another\n", encoding="utf-8")
    assert [machine.count(), machine.count()] == [1, 0]


@pytest.mark.parametrize(
    "command",
    [
        "execute_process(COMMAND uname OUTPUT_VARIABLE name)",
        "string(TIMESTAMP now)",
        "file(WRITE ${CMAKE_CURRENT_LIST_DIR}/written.txt x)",
        "cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)",
    ],
)
def test_what_cannot_be_looked_at_again_is_evaluated_every_time(machine: Machine, command: str) -> None:
    machine.write(f"{command}\nset(USE_PLAIN ON)\n")
    assert [machine.count(), machine.count()] == [1, 1]
    assert machine.settings()["USE_PLAIN"].enabled
    # the files are known nevertheless
    assert machine.config in machine.files_read()


def test_the_files_that_were_read_are_known(machine: Machine) -> None:
    assert machine.files_read() == set()
    machine.write("set(USE_PLAIN ON)\n")
    assert machine.files_read() == {machine.config}
    machine.write("set(USE_PLAIN ON)\n", "more/included.cmake")
    machine.write("include(${CMAKE_CURRENT_LIST_DIR}/more/included.cmake)\nset(USE_VENDOR AUTO)\n")
    machine.settings()
    wanted = {machine.config, machine.project / "more" / "included.cmake", machine.module}
    assert machine.files_read() >= wanted


def test_what_was_written_while_cmake_ran_is_not_trusted(machine: Machine) -> None:
    path = machine.write(EVALUATED)
    os.utime(path, (4e9, 4e9))
    assert [machine.count(), machine.count()] == [1, 1]


def _truncated(text: str) -> str:
    return text[: len(text) // 2]


def _altered(text: str) -> str:
    return text.replace('"ON"', '"OFF"')


def _of_another_shape(_text: str) -> str:
    from relaybuild.digest import digest_bytes

    content = '{"flags": {}, "observed": []}'
    return f"{digest_bytes(content.encode())}\n{content}"


@pytest.mark.parametrize("damage", [_truncated, _altered, _of_another_shape, lambda _: ""])
def test_a_damaged_record_is_none(machine: Machine, damage: Callable[[str], str]) -> None:
    machine.write(EVALUATED)
    good = machine.settings()
    (record,) = machine.cache.rglob("*.json")
    record.write_text(damage(record.read_text(encoding="utf-8")), encoding="utf-8")
    assert machine.count() == 1
    assert machine.settings() == good
    assert machine.count() == 0
    assert [path for path in machine.cache.rglob("*") if path.is_file()] == [record]


def test_a_cache_that_cannot_be_written_is_none(machine: Machine) -> None:
    machine.write(EVALUATED)
    machine.cache.write_text("not a folder")
    assert [machine.count(), machine.count()] == [1, 1]
    assert machine.settings()["USE_PLAIN"].enabled


def test_the_environment_says_where_the_cache_is(machine: Machine) -> None:
    machine.write(EVALUATED)
    environ = {**machine.environ, "RELAYBUILD_CACHE_DIR": str(machine.cache)}
    configure(machine.config, {}, machine.modules(), environ=environ)
    assert len([*machine.cache.rglob("*.json")]) == 1


def test_the_command_line_wins_over_the_script_and_that_over_the_default(machine: Machine) -> None:
    assert not machine.settings()["USE_PLAIN"].enabled
    machine.write("set(USE_PLAIN ON)\n")
    assert machine.settings()["USE_PLAIN"].enabled
    assert machine.settings(USE_PLAIN="OFF")["USE_PLAIN"] == BackendSettings("USE_PLAIN", "OFF", enabled=False)
    machine.write('option(USE_PLAIN "plain" OFF)\nif(USE_PLAIN)\n  set(USE_VENDOR AUTO)\nendif()\n')
    assert machine.vendor().value == "OFF"
    assert machine.vendor(USE_PLAIN="ON").value == "AUTO"
    machine.write("set(USE_PLAIN OFF CACHE BOOL plain FORCE)\n")
    assert machine.settings(USE_PLAIN="ON")["USE_PLAIN"].enabled


def test_a_script_may_have_options_of_its_own(machine: Machine) -> None:
    machine.write('option(WITH_ALL "all" OFF)\nset(USE_PLAIN ${WITH_ALL})\n')
    assert not machine.settings()["USE_PLAIN"].enabled
    assert machine.settings(WITH_ALL="ON")["USE_PLAIN"].enabled
    with pytest.raises(UserError, match=r"no backend obeys the flag 'WITH_AL'.* by option\(\)"):
        machine.settings(WITH_AL="ON")


def test_a_value_arrives_as_it_was_given(machine: Machine) -> None:
    value = 'a]=]b]==]; "$HOME" ${HOME} \\ #c\nd'
    machine.write(
        'set(NOTE "" CACHE STRING "")\nfile(READ "${CMAKE_CURRENT_LIST_DIR}/note" expected)\n'
        'if(NOTE STREQUAL "${expected}")\n  set(USE_PLAIN ON)\nendif()\n'
    )
    machine.write(value, "note")
    assert machine.settings(NOTE=value)["USE_PLAIN"].enabled


def test_variables_of_cmake_pass(machine: Machine) -> None:
    install_vendor(machine.project / "here")
    del machine.environ["CMAKE_PREFIX_PATH"]
    assert not machine.vendor(USE_VENDOR="AUTO").enabled
    assert machine.vendor(USE_VENDOR="AUTO", CMAKE_PREFIX_PATH=str(machine.project / "here")).enabled


def test_a_flag_that_no_backend_obeys(machine: Machine) -> None:
    known = "flags of installed backends are USE_PLAIN, USE_VENDOR"
    with pytest.raises(UserError) as caught:
        machine.settings(USE_VENDR="ON", USE_ZZZZ="ON")
    assert str(caught.value).splitlines() == [
        f"option '-D USE_VENDR': no backend obeys the flag 'USE_VENDR'; did you mean 'USE_VENDOR'? The {known}",
        f"option '-D USE_ZZZZ': no backend obeys the flag 'USE_ZZZZ'; the {known}",
    ]
    machine.write("\nset(USE_PLAN ON)\nset(use_vendor ON)\n")
    with pytest.raises(UserError) as caught:
        machine.settings()
    assert sorted(str(caught.value).splitlines()) == [
        f"{machine.config}:2: no backend obeys the flag 'USE_PLAN'; did you mean 'USE_PLAIN'? The {known}",
        f"{machine.config}:3: no backend obeys the flag 'use_vendor'; did you mean 'USE_VENDOR'? The {known}",
    ]


def test_a_name_that_cmake_could_not_take(machine: Machine) -> None:
    with pytest.raises(UserError, match="'A B' cannot be the name of a flag"):
        machine.settings(**{"A B": "ON"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nnonsense(a)\n", '{config}:2: Unknown CMake command "nonsense".'),
        ("set(USE_PLAIN ON\n", '{config}:1: Parse error.  Function missing ending ")".  End of file reached.'),
        ('message(FATAL_ERROR "it will not do")\n', "{config}:1: it will not do"),
        ("include(nowhere.cmake)\n", "{config}:1: include could not find requested file: nowhere.cmake"),
        ("if(1)\n", "{config}:1: if: Flow control statements are not properly nested."),
        ("include(parts/bad.cmake)\n", '{parts}:2: Unknown CMake command "worse".'),
        ("set(USE_PLAIN MAYBE)\n", "{config}: flag 'USE_PLAIN': found 'MAYBE', expected OFF or ON"),
    ],
)
def test_a_mistake_in_the_script_is_shown_with_its_place(machine: Machine, text: str, message: str) -> None:
    bad = machine.write("\nworse(b)\n", "parts/bad.cmake")
    machine.write(text)
    with pytest.raises(UserError) as caught:
        machine.settings()
    assert str(caught.value) == message.format(config=machine.config, parts=bad)


def test_places_are_named_as_the_user_named_the_script(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write("\nworse(b)\n", "parts/bad.cmake")
    machine.write("include(parts/bad.cmake)\n")
    monkeypatch.chdir(machine.project)
    with pytest.raises(UserError) as caught:
        configure(Path("config.cmake"), {}, machine.modules(), cache_dir=machine.cache, environ=machine.environ)
    assert caught.value.where == "parts/bad.cmake:2"


def test_a_script_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    for path, what in ((tmp_path / "no.cmake", "there is no such file"), (tmp_path, "it is a folder")):
        with pytest.raises(UserError, match=f"cannot read the configuration '{path}': {what}; write one with"):
            configure(path, {}, machine.modules(), cache_dir=machine.cache, environ=machine.environ)


def test_an_absent_library_is_an_error_at_on_and_a_remark_at_auto(machine: Machine) -> None:
    remark = machine.vendor(USE_VENDOR="AUTO")
    assert remark == BackendSettings(
        "USE_VENDOR",
        "AUTO",
        enabled=False,
        message="no vendor: there is neither a library 'vendor' nor a header 'vendor/vendor.h'; "
        "run 'buy it', or name its place with USE_VENDOR=/path",
    )
    machine.write("\nset(USE_VENDOR ON)\n")
    with pytest.raises(UserError) as caught:
        machine.settings()
    assert str(caught.value) == f"{machine.config}:2: USE_VENDOR: {remark.message}"


def test_all_mistakes_are_reported_at_once(machine: Machine) -> None:
    machine.write("set(USE_VENDOR ON)\nset(USE_FOO ON)\n")
    with pytest.raises(UserError) as caught:
        machine.settings()
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{machine.config}:1", f"{machine.config}:2"]


@pytest.mark.parametrize("name", ["plain", "with a space", '$quo"ted #1'])
def test_a_path_names_the_only_place(machine: Machine, name: str) -> None:
    install_vendor(machine.prefix)
    other = machine.project / name
    other.mkdir()
    with pytest.raises(UserError, match=r"there is neither a library 'vendor' nor a header .* below "):
        machine.vendor(USE_VENDOR=str(other))
    install_vendor(other)
    found = machine.vendor(USE_VENDOR=str(other))
    assert (found.value, found.include_dirs) == (str(other), (other / "include",))
    by_file = machine.vendor(USE_VENDOR=str(other / "lib" / "libvendor.so"))
    assert dataclasses.replace(by_file, value=found.value) == found


def test_a_relative_path_starts_at_the_script_or_at_the_current_folder(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_vendor(machine.project / "deps")
    machine.write("set(USE_VENDOR deps)\n")
    assert machine.vendor().include_dirs == (machine.project / "deps" / "include",)
    install_vendor(tmp_path / "here" / "deps")
    monkeypatch.chdir(tmp_path / "here")
    assert machine.vendor(USE_VENDOR="deps").include_dirs == (tmp_path.resolve() / "here" / "deps" / "include",)


def test_a_value_that_a_flag_does_not_take(machine: Machine) -> None:
    with pytest.raises(UserError) as caught:
        machine.settings(USE_VENDOR="MAYBE")
    assert str(caught.value) == (
        "option '-D USE_VENDOR=MAYBE': USE_VENDOR: found 'MAYBE', which is no file or folder; "
        "expected OFF, AUTO, ON or a path"
    )
    with pytest.raises(UserError, match="option '-D USE_PLAIN': found 'AUTO', expected OFF or ON"):
        machine.settings(USE_PLAIN="AUTO")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("nonsense()\n", 'Unknown CMake command "nonsense"'),
        ("set(a b)\n", "calls neither relaybuild_backend"),
        ("relaybuild_backend(vendor)\n", "relaybuild_backend\\(vendor\\) names no FLAG"),
        ("relaybuild_backend(vendor FLAG USE_VENDOR LIBS x)\n", "does not know the arguments 'LIBS;x'"),
    ],
)
def test_a_mistake_in_a_module_is_a_tools(machine: Machine, module: str, message: str) -> None:
    machine.module.write_text(module, encoding="utf-8")
    with pytest.raises(ToolError, match=message):
        machine.settings(USE_VENDOR="ON")


def test_a_machine_without_cmake(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cmake, "_packaged_cmake", lambda: None)
    machine.environ["PATH"] = str(tmp_path / "empty")
    assert not machine.vendor().enabled
    with pytest.raises(UserError, match=r"cmake was not found, .* run 'pip install cmake'"):
        machine.settings(USE_VENDOR="ON")


def test_a_cmake_that_is_too_old_is_passed_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cmake.find_cmakes(os.environ)[-1]
    monkeypatch.setattr(cmake, "_packaged_cmake", lambda: real)
    program = machine.project.parent / "bin" / "cmake"
    text = "CMake 3.20 or higher is required.  You are running version 3.10.2"
    program.write_text(f"#!/bin/sh\necho '{text}'\nexit 1\n", encoding="utf-8")
    machine.write(EVALUATED)
    assert machine.settings()["USE_PLAIN"].enabled


def relaybuilds_modules() -> list[BackendModule]:
    return [BackendModule(name.lower(), f"USE_{name}", file) for name, file in contrib_modules().items()]


def test_relaybuilds_own_script_switches_everything_off(machine: Machine) -> None:
    root = Path(share_dir())
    found = configure(
        root / "config.cmake", {}, relaybuilds_modules(), cache_dir=machine.cache, environ=machine.environ
    )
    assert {flag: item.value for flag, item in found.items()} == {
        "USE_CBLAS": "OFF",
        "USE_CODEGENC": "OFF",
        "USE_DNNL": "OFF",
        "USE_EXAMPLE_JSON": "OFF",
    }


@pytest.mark.parametrize("flag", ["USE_CODEGENC", "USE_EXAMPLE_JSON"])
def test_backends_that_need_nothing(machine: Machine, flag: str) -> None:
    found = configure(None, {flag: "ON"}, relaybuilds_modules(), cache_dir=machine.cache)
    assert found[flag] == BackendSettings(flag, "ON", enabled=True)


PRODUCT = """\
#ifdef RELAYBUILD_CBLAS_MKL
#include <mkl_cblas.h>
#else
#include <cblas.h>
#endif
#define JOIN(a, b) a##b
#define NAME(prefix, name) JOIN(prefix, name)
#ifndef BLAS_SYMBOL_PREFIX
#define BLAS_SYMBOL_PREFIX
#endif
__attribute__((visibility("default")))
float rb_dot(int n, const float *a, const float *b) { return NAME(BLAS_SYMBOL_PREFIX, cblas_sdot)(n, a, 1, b, 1); }
"""
VERSION = """\
#include <oneapi/dnnl/dnnl.h>
__attribute__((visibility("default")))
int rb_version(void) { return dnnl_version()->major * 100 + dnnl_version()->minor; }
"""


def build(folder: Path, toolchain: Toolchain, text: str, settings: BackendSettings) -> ctypes.CDLL:
    """A library of one C file, by what the settings say, loaded."""
    source, library = folder / "unit.c", folder / "unit.so"
    source.write_text(text, encoding="utf-8")
    command = [*toolchain.command, *toolchain.cflags, *(f"-D{item}" for item in settings.definitions)]
    command += [f"-I{path}" for path in settings.include_dirs]
    command += [*toolchain.ldflags, str(source), "-o", str(library), *settings.libraries]
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(library))


def test_a_blas_is_found_and_called(machine: Machine, toolchain: Toolchain, tmp_path: Path) -> None:
    found = configure(None, {"USE_CBLAS": "AUTO"}, relaybuilds_modules(), cache_dir=machine.cache)["USE_CBLAS"]
    if not found.enabled:
        pytest.skip(found.message)
    function = build(tmp_path, toolchain, PRODUCT, found).rb_dot
    function.restype = ctypes.c_float
    values = (ctypes.c_float * 3)(1, 2, 3)
    assert function(3, values, values) == 14


def test_onednn_is_found_and_called(machine: Machine, toolchain: Toolchain, tmp_path: Path) -> None:
    found = configure(None, {"USE_DNNL": "AUTO"}, relaybuilds_modules(), cache_dir=machine.cache)["USE_DNNL"]
    if not found.enabled:
        pytest.skip(found.message)
    major, minor, *_ = map(int, found.version.split("."))
    assert build(tmp_path, toolchain, VERSION, found).rb_version() == major * 100 + minor


def fake_onednn(prefix: Path, runtime: str, version: str) -> None:
    folder = prefix / "include" / "oneapi" / "dnnl"
    folder.mkdir(parents=True)
    (folder / "dnnl.h").touch()
    (folder / "dnnl_config.h").write_text(f"#define DNNL_CPU_RUNTIME DNNL_RUNTIME_{runtime}\n")
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    (folder / "dnnl_version.h").write_text("".join(f"#define DNNL_VERSION_{name} {n}\n" for name, n in parts))
    (prefix / "lib").mkdir()
    (prefix / "lib" / "libdnnl.so").touch()


def test_an_onednn_that_cannot_be_used_does_not_hide_one_that_can(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right = machine.project / "wrong", machine.project / "right"
    fake_onednn(wrong, "SYCL", "3.9.1")
    fake_onednn(right, "OMP", "3.2.0")
    known = cmake.python_environment()
    prefixes = {**known, "RELAYBUILD_PYTHON_PREFIXES": (str(wrong), str(right))}
    monkeypatch.setattr(cmake, "python_environment", lambda: prefixes)
    found = configure(None, {"USE_DNNL": "ON"}, relaybuilds_modules(), cache_dir=machine.cache)["USE_DNNL"]
    assert (found.include_dirs, found.version) == ((right / "include",), "3.2.0")
    with pytest.raises(UserError, match=r"libdnnl\.so has no threads of its own .*; run 'apt-get install libdnnl-dev'"):
        configure(None, {"USE_DNNL": str(wrong)}, relaybuilds_modules(), cache_dir=machine.cache)


def test_the_blas_of_a_wheel(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    package = machine.project / "site-packages" / "scipy_openblas32"
    for folder, name, text in (
        ("include", "cblas.h", ""),
        ("include", "openblas_config.h", '#define OPENBLAS_VERSION " OpenBLAS 0.3.34.481.3 "\n'),
        ("lib", "libscipy_openblas.so", ""),
    ):
        (package / folder).mkdir(parents=True, exist_ok=True)
        (package / folder / name).write_text(text)
    known = cmake.python_environment()
    sites = {**known, "RELAYBUILD_PYTHON_SITES": (str(package.parent),)}
    monkeypatch.setattr(cmake, "python_environment", lambda: sites)
    found = configure(None, {"USE_CBLAS": "ON"}, relaybuilds_modules(), cache_dir=machine.cache)["USE_CBLAS"]
    assert found == BackendSettings(
        flag="USE_CBLAS",
        value="ON",
        enabled=True,
        include_dirs=(package / "include",),
        libraries=(str(package / "lib" / "libscipy_openblas.so"), f"-Wl,-rpath,{package / 'lib'}"),
        definitions=("BLAS_SYMBOL_PREFIX=scipy_",),
        version="0.3.34.481.3",
    )
