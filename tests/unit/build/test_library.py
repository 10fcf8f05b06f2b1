"""Whole builds with the machine's compiler: what is made, what is made again, and what is left behind."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.library import BuildReport, LibrarySpec, Unit, WeightBlob, build_library
from relaybuild.build.toolchain import Toolchain
from relaybuild.digest import digest_bytes
from relaybuild.errors import InternalError, ToolError, UnsupportedError, UserError

EXPORT = '__attribute__((visibility("default")))'
ADD = Unit("rb_add", "int rb_add(int a, int b) { return a + b; }\n", ("-O3",))
MUL = Unit("rb_mul", "int rb_mul(int a, int b) { return a * b; }\n", ("-O3",))
PROGRAM = Unit(
    "program",
    "int rb_add(int a, int b);\nint rb_mul(int a, int b);\nextern const unsigned char rb_weights[];\n"
    f"{EXPORT} int compute(int a, int b) {{ return rb_add(rb_mul(a, b), rb_weights[1]); }}\n"
    f"{EXPORT} const void *weights(void) {{ return rb_weights; }}\n",
)


def blob(data: bytes = bytes(range(100))) -> WeightBlob:
    return WeightBlob.from_bytes(data, digest_bytes(data).hex)


def spec(*units: Unit, weights: WeightBlob | None = None) -> LibrarySpec:
    return LibrarySpec("demo", units or (ADD, MUL, PROGRAM), weights=weights or blob())


def build(
    toolchain: Toolchain, folder: Path, library: LibrarySpec | None = None, *, keep: bool = True, out: str = "demo.so"
) -> BuildReport:
    return build_library(library or spec(), toolchain, folder / "build", folder / out, keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_library_computes_and_holds_its_weights(tmp_path: Path, toolchain: Toolchain) -> None:
    calls: list[tuple[int, int]] = []
    report = build_library(
        spec(),
        toolchain,
        tmp_path / "build",
        tmp_path / "demo.so",
        jobs=1,
        on_progress=lambda f, t: calls.append((f, t)),
    )
    library = ctypes.CDLL(str(tmp_path / "demo.so"))
    library.weights.restype = ctypes.c_void_p
    address = library.weights()
    assert library.compute(6, 7) == 43
    assert address % 64 == 0
    assert ctypes.string_at(address, 100) == bytes(range(100))
    assert report.output == tmp_path / "demo.so"
    assert report.size == report.output.stat().st_size
    assert (report.executed, report.cached) == ({"object": 3, "link": 1}, {"object": 0, "link": 0})
    assert set(report.seconds) == {"write", "weights", "object", "link", "publish"}
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert os.access(report.output, os.X_OK)
    assert names(tmp_path) == ["demo.so"]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
def test_only_entry_points_are_exported_and_only_libc_is_needed(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    listing = subprocess.run(
        ["readelf", "-dW", "--dyn-syms", "-lW", str(tmp_path / "demo.so")], capture_output=True, text=True, check=True
    ).stdout
    symbols = [line.split() for line in listing.splitlines() if " FUNC " in line or " OBJECT " in line]
    assert sorted(symbol[7] for symbol in symbols if symbol[6] != "UND") == ["compute", "weights"]
    assert "NEEDED" not in listing or "libgcc" not in listing
    assert "libm.so" not in listing
    assert "GNU_STACK" in listing
    assert "RWE" not in listing
    assert "BUILD_ID" not in listing.upper().replace("-", "_")


def test_libm_is_needed_only_by_who_uses_it(tmp_path: Path, toolchain: Toolchain) -> None:
    text = f"#include <math.h>\n{EXPORT} float logistic(float x) {{ return 1.0f / (1.0f + expf(-x)); }}\n"
    build(toolchain, tmp_path, LibrarySpec("sigmoid", (Unit("logistic", text),)))
    library = ctypes.CDLL(str(tmp_path / "demo.so"))
    library.logistic.restype, library.logistic.argtypes = ctypes.c_float, [ctypes.c_float]
    assert library.logistic(0.0) == 0.5


def test_the_same_input_gives_the_same_bytes_anywhere_and_at_any_time(tmp_path: Path, toolchain: Toolchain) -> None:
    libraries = []
    for name, time in (("a", 1_000_000_000), ("ein ganz anderer Ördner, länger", 1_700_000_000)):
        folder = tmp_path / name
        include = folder / "include files"
        include.mkdir(parents=True)
        (include / "where.h").write_text('static const char where[] = __FILE__ " " "é";\n', encoding="utf-8")
        os.utime(include / "where.h", (time, time))
        text = f'#include "where.h"\n{EXPORT} const char *whence(void) {{ return where; }}\n'
        text += f"{EXPORT} const char *self(void) {{ return __FILE__; }}\n"
        whence = Unit("whence", text, ("-g",))
        build(
            toolchain, folder, dataclasses.replace(spec(whence, ADD, MUL, PROGRAM), include_dirs=(include,)), keep=False
        )
        libraries.append((folder / "demo.so").read_bytes())
        assert str(tmp_path).encode() not in libraries[-1]
    assert libraries[0] == libraries[1]


def test_a_second_build_does_nothing(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    first = (tmp_path / "demo.so").read_bytes()
    report = build(toolchain, tmp_path)
    assert (report.executed, report.cached) == ({"object": 0, "link": 0}, {"object": 3, "link": 1})
    assert (tmp_path / "demo.so").read_bytes() == first


def test_a_changed_unit_is_compiled_alone(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    other = dataclasses.replace(MUL, text="int rb_mul(int a, int b) { return a * b + 100; }\n")
    report = build(toolchain, tmp_path, spec(ADD, other, PROGRAM), out="other.so")
    assert (report.executed, report.cached) == ({"object": 1, "link": 1}, {"object": 2, "link": 0})
    assert ctypes.CDLL(str(tmp_path / "other.so")).compute(6, 7) == 143


def test_changed_flags_compile_again(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    report = build(toolchain, tmp_path, spec(ADD, dataclasses.replace(MUL, flags=("-O1",)), PROGRAM))
    assert report.executed["object"] == 1


def test_new_weights_are_linked_without_compiling(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    report = build(toolchain, tmp_path, spec(weights=blob(bytes(50) + b"new")), out="other.so")
    assert report.executed == {"object": 0, "link": 1}
    assert ctypes.CDLL(str(tmp_path / "other.so")).compute(6, 7) == 42
    assert len([name for name in names(tmp_path / "build" / "obj") if name.startswith("weights")]) == 1


def test_weights_that_are_there_are_not_written_again(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)

    def never(file: object) -> None:
        raise AssertionError("the weights were written again")

    build(toolchain, tmp_path, spec(weights=WeightBlob(never, blob().digest, blob().size)))


def test_a_changed_header_compiles_what_includes_it(tmp_path: Path, toolchain: Toolchain) -> None:
    include = tmp_path / "my $include"
    include.mkdir()
    (include / "value.h").write_text("#define VALUE 1\n", encoding="utf-8")
    value = Unit("value", f'#include "value.h"\n{EXPORT} int value(void) {{ return VALUE; }}\n')
    library = LibrarySpec("demo", (value, ADD), include_dirs=(include,))
    build(toolchain, tmp_path, library)
    (include / "value.h").write_text("#define VALUE 2\n", encoding="utf-8")
    report = build(toolchain, tmp_path, library, out="other.so")
    assert report.executed == {"object": 1, "link": 1}
    assert ctypes.CDLL(str(tmp_path / "other.so")).value() == 2


def test_another_compiler_compiles_everything_again(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path)
    report = build(dataclasses.replace(toolchain, digest=digest_bytes(b"another")), tmp_path)
    assert report.executed == {"object": 3, "link": 1}


def test_units_that_are_gone_leave_nothing(tmp_path: Path, toolchain: Toolchain) -> None:
    build(toolchain, tmp_path, spec(ADD, MUL, PROGRAM, Unit("extra", "int rb_extra;\n")))
    build(toolchain, tmp_path)
    assert names(tmp_path / "build" / "src") == ["program.c", "rb_add.c", "rb_mul.c"]
    assert not [name for name in names(tmp_path / "build" / "obj") if name.startswith("extra")]


def test_equal_units_are_shared(tmp_path: Path, toolchain: Toolchain) -> None:
    report = build(toolchain, tmp_path, spec(ADD, MUL, ADD, PROGRAM, MUL))
    assert report.executed["object"] == 3


@pytest.mark.parametrize("other", [Unit("rb_add", "int rb_add;\n", ("-O3",)), dataclasses.replace(ADD, flags=("-O1",))])
def test_one_name_for_two_units_is_our_error(tmp_path: Path, toolchain: Toolchain, other: Unit) -> None:
    with pytest.raises(InternalError, match="two translation units are named 'rb_add'"):
        build(toolchain, tmp_path, spec(ADD, MUL, PROGRAM, other))


@pytest.mark.parametrize("name", ["", "a b", "../a", ".hidden", "weights-1"])
def test_a_unit_name_that_is_no_file_stem_is_our_error(tmp_path: Path, toolchain: Toolchain, name: str) -> None:
    with pytest.raises(InternalError, match="cannot be the name of a translation unit"):
        build(toolchain, tmp_path, spec(Unit(name, "")))


def test_a_failing_unit_shows_the_compilers_message(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "demo.so").write_bytes(b"old")
    broken = Unit("rb_broken", "int rb_broken(void) { return undeclared_name; }\n")
    with pytest.raises(ToolError) as caught:
        build(toolchain, tmp_path, spec(ADD, MUL, PROGRAM, broken), keep=False)
    assert caught.value.message == "the build step 'object src/rb_broken.c' failed"
    assert "undeclared_name" in caught.value.output
    assert "src/rb_broken.c" in caught.value.command
    assert (tmp_path / "demo.so").read_bytes() == b"old"
    assert names(tmp_path) == ["demo.so"]


def test_a_missing_symbol_fails_at_the_link_not_at_the_load(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(ToolError, match="rb_mul") as caught:
        build(toolchain, tmp_path, spec(ADD, PROGRAM), keep=False)
    assert caught.value.message == "the build step 'link library' failed"
    assert names(tmp_path) == []


def test_a_build_goes_on_after_a_failure(tmp_path: Path, toolchain: Toolchain) -> None:
    broken = dataclasses.replace(MUL, text="int rb_mul(int a, int b) { return a * c; }\n")
    with pytest.raises(ToolError):
        build(toolchain, tmp_path, spec(ADD, broken, PROGRAM))
    build(toolchain, tmp_path)
    assert ctypes.CDLL(str(tmp_path / "demo.so")).compute(6, 7) == 43


def test_folders_with_spaces_quotes_and_other_scripts(tmp_path: Path, toolchain: Toolchain) -> None:
    folder = tmp_path / 'модель $1: it\'s "größer"'
    folder.mkdir()
    build(toolchain, folder, out="модель 1.so")
    shutil.copy(folder / "модель 1.so", tmp_path / "plain.so")
    assert ctypes.CDLL(str(tmp_path / "plain.so")).compute(6, 7) == 43


def test_a_compiler_with_words(tmp_path: Path, toolchain: Toolchain) -> None:
    words = dataclasses.replace(toolchain, command=(*toolchain.command, "-DBONUS=40 + 2"))
    bonus = Unit("bonus", f"{EXPORT} int bonus(void) {{ return BONUS; }}\n")
    build(words, tmp_path, spec(bonus, ADD, MUL, PROGRAM))
    assert ctypes.CDLL(str(tmp_path / "demo.so")).bonus() == 42


def test_weights_through_the_assembler_are_the_same(tmp_path: Path, toolchain: Toolchain) -> None:
    assembler = dataclasses.replace(toolchain, elf_machine=None)
    report = build(assembler, tmp_path)
    assert report.executed == {"object": 4, "link": 1}
    library = ctypes.CDLL(str(tmp_path / "demo.so"))
    library.weights.restype = ctypes.c_void_p
    assert library.weights() % 64 == 0
    assert ctypes.string_at(library.weights(), 100) == bytes(range(100))
    assert build(assembler, tmp_path).executed == {"object": 0, "link": 0}
    assert build(assembler, tmp_path, spec(weights=blob(b"other"))).executed == {"object": 1, "link": 1}


def test_weights_that_a_linker_leaves_no_room_for_are_linked(tmp_path: Path, toolchain: Toolchain) -> None:
    if not toolchain.is_elf:
        pytest.skip("sections of this kind are of ELF")
    (tmp_path / "tail.S").write_text(
        '.section .tail, "aw", %nobits\n.skip 100\n.section .note.GNU-stack, "", %progbits\n', encoding="utf-8"
    )
    library = dataclasses.replace(spec(), link_files=(str(tmp_path / "tail.S"),))
    report = build(toolchain, tmp_path, library)
    assert report.executed == {"object": 3, "link": 1}
    assert ctypes.CDLL(str(tmp_path / "demo.so")).compute(6, 7) == 43
    assert build(toolchain, tmp_path, library).executed == {"object": 0, "link": 0}
    assert build(toolchain, tmp_path, dataclasses.replace(library, weights=blob(b"ab"))).executed["link"] == 1
    shutil.copy(tmp_path / "demo.so", tmp_path / "other.so")
    assert ctypes.CDLL(str(tmp_path / "other.so")).compute(6, 7) == 42 + ord("b")


def test_a_library_without_weights(tmp_path: Path, toolchain: Toolchain) -> None:
    one = Unit("one", f"{EXPORT} int one(void) {{ return 1; }}\n")
    build(toolchain, tmp_path, LibrarySpec("one", (one,)))
    assert ctypes.CDLL(str(tmp_path / "demo.so")).one() == 1


def test_weights_from_a_file(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "weights").write_bytes(bytes(range(100)))
    weights = WeightBlob.from_file(tmp_path / "weights")
    assert (weights.digest, weights.size) == (blob().digest, 100)
    build(toolchain, tmp_path, spec(weights=weights))
    assert ctypes.CDLL(str(tmp_path / "demo.so")).compute(6, 7) == 43


@pytest.mark.parametrize("direct", [True, False])
def test_weights_of_another_size_are_our_error(tmp_path: Path, toolchain: Toolchain, direct: bool) -> None:
    chosen = toolchain if direct else dataclasses.replace(toolchain, elf_machine=None)
    with pytest.raises(InternalError, match="100 bytes long, but 99 were announced"):
        build(chosen, tmp_path, spec(weights=WeightBlob(blob().write, "00", 99)), keep=False)
    assert names(tmp_path) == []


def test_too_many_weights_are_refused_before_they_are_written(tmp_path: Path, toolchain: Toolchain) -> None:
    weights = WeightBlob(blob().write, "00", 2_500_000_000)
    with pytest.raises(UnsupportedError, match=r"the weights take 2\.50 GB, but a library holds at most 2 GB"):
        build(toolchain, tmp_path, spec(weights=weights))
    assert names(tmp_path) == []


def test_an_output_that_cannot_be_written_is_said_before_anything_is_compiled(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    with pytest.raises(UserError, match=r"missing/demo\.so': its folder does not exist"):
        build(toolchain, tmp_path, out="missing/demo.so")
    assert names(tmp_path) == []


def test_a_full_disk_under_our_writer(tiny_disk: Path, tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(UserError, match="no space left on the device"):
        build_library(spec(weights=blob(bytes(1 << 20))), toolchain, tiny_disk / "b", tmp_path / "demo.so")
    assert names(tiny_disk) == []
    assert not (tmp_path / "demo.so").exists()


def test_a_full_disk_under_the_linker(tiny_disk: Path, tmp_path: Path, toolchain: Toolchain) -> None:
    large = Unit("large", f"{EXPORT} const char large[160 << 10] = {{1}};\n")
    with pytest.raises(UserError, match="no space left on the device"):
        build_library(spec(ADD, MUL, PROGRAM, large), toolchain, tiny_disk / "b", tmp_path / "demo.so")
    assert names(tiny_disk) == []
    assert not (tmp_path / "demo.so").exists()


@pytest.mark.parametrize("taken", ["src", "obj", "build.ninja", "library"])
def test_somebody_elses_folder_is_left_alone(tmp_path: Path, toolchain: Toolchain, taken: str) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / taken).write_text("precious", encoding="utf-8")
    with pytest.raises(UserError, match=f"has a '{taken}' that is not of a build of relaybuild"):
        build(toolchain, tmp_path, keep=False)
    assert (tmp_path / "build" / taken).read_text(encoding="utf-8") == "precious"


def test_other_files_in_the_folder_stay(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "notes.txt").touch()
    build(toolchain, tmp_path, keep=False)
    assert names(tmp_path / "build") == ["notes.txt"]


def test_a_user_may_add_libraries_and_flags(tmp_path: Path, toolchain: Toolchain) -> None:
    archive_unit = tmp_path / "vendor.c"
    archive_unit.write_text("int vendor_value(void) { return 5; }\n", encoding="utf-8")
    subprocess.run([*toolchain.command, "-fPIC", "-c", "vendor.c", "-o", "vendor.o"], cwd=tmp_path, check=True)
    subprocess.run(["ar", "rcs", "libvendor.a", "vendor.o"], cwd=tmp_path, check=True)
    user = Unit("user", f"int vendor_value(void);\n{EXPORT} int value(void) {{ return vendor_value(); }}\n")
    library = LibrarySpec(
        "demo", (user,), link_flags=(f"-L{tmp_path}", "-Wl,--exclude-libs,ALL"), link_libs=("vendor", "m")
    )
    build(toolchain, tmp_path, library)
    loaded = ctypes.CDLL(str(tmp_path / "demo.so"))
    assert loaded.value() == 5
    assert not hasattr(loaded, "vendor_value")
