"""Models that are linked into programs: what their symbols are, several in one program, the same bytes every time."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import HEAD
from runners.command import DIGITS

import relaybuild
from relaybuild import driver
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.toolchain import probe
from relaybuild.errors import UserError
from relaybuild.runtime import load_module
from relaybuild.runtime.header import public_functions

looked_up = pytest.mark.usefixtures("own_cache", "fixed_code")

MODEL = "def @main(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {{ nn.relu({operator}(%x, {number}f)) }}"

TWO_MODELS = """
#include "first.h"
#include "second.h"

#include <stdio.h>

int main(void) {
  float x[4] = {-3, 0, 1, 5}, y[4], z[4];
  RbInstance *first, *second;
  DLTensor in = rb_tensor(&first_describe()->inputs[0], x);
  DLTensor middle = rb_tensor(&first_describe()->outputs[0], y);
  DLTensor out = rb_tensor(&second_describe()->outputs[0], z);
  const DLTensor *ins[] = {&in}, *middles[] = {&middle};
  DLTensor *results[] = {&middle}, *outs[] = {&out};
  if (first_create(1, &first) || second_create(2, &second)) return 1;
  if (first_run(first, ins, 1, results, 1) || second_run(second, middles, 1, outs, 1)) return 2;
  if (first_run(first, NULL, 3, results, 1) != RB_ERROR_INVALID_ARGUMENT) return 3;
  printf("%g %g %g %g, %g %g %g %g\\n", y[0], y[1], y[2], y[3], z[0], z[1], z[2], z[3]);
  printf("%d %d\\n", first_last_error()[0] != 0, second_last_error()[0] != 0);
  first_destroy(first);
  second_destroy(second);
  return 0;
}
"""
PRINTED = "0 2 3 7, 0 20 30 70\n1 0\n"

BACKENDS = {"none": {}, "C": {"USE_CODEGENC": "ON"}, "C++": {"USE_EXAMPLE_JSON": "ON"}}


def put(folder: Path, name: str, form: str, operator: str, number: int, config: Mapping[str, object]) -> Sequence[str]:
    """Make a model and its header in a folder; what programs are linked with besides."""
    module = relaybuild.parse(HEAD + MODEL.format(operator=operator, number=number))
    artifact = relaybuild.compile(module, config=dict(config), name=name, form=form)
    artifact.export_library(folder / f"{name}{artifact.form.suffix}")
    (folder / f"{name}.h").write_text(artifact.header, encoding="utf-8")
    words: Sequence[str] = artifact.summary["link"]
    return words


def digits(form: str, **options: Any) -> driver.Artifact:
    return driver.compile(DIGITS, target="x86-64-v2", form=form, **options)


def content(artifact: driver.Artifact) -> bytes:
    return artifact.path.read_bytes()


def build(folder: Path, command: Sequence[str], *words: str) -> Path:
    """A program of `program.c`."""
    compiled = [*command, "-Wall", "-Wextra", "-Werror", "-Wl,--fatal-warnings", f"-I{folder}", "program.c", *words]
    done = subprocess.run([*compiled, "-o", "program"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "program"


def printed(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout


def symbols(path: Path, *options: str) -> set[str]:
    listing = subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True, timeout=60).stdout
    return {line.split()[-1] for line in listing.splitlines() if line and not line.endswith(":")}


@pytest.mark.parametrize("form", ["static", "object"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_models_in_one_program(tmp_path: Path, form: str, backend: str) -> None:
    config = BACKENDS[backend]
    link = [put(tmp_path, "first", form, "add", 2, config), put(tmp_path, "second", form, "multiply", 10, config)]
    (tmp_path / "program.c").write_text(TWO_MODELS, encoding="utf-8")
    suffix = {"static": ".a", "object": ".o"}[form]
    files = [f"first{suffix}", f"second{suffix}"]
    words = list(dict.fromkeys(word for each in link for word in each))
    for order in (files, files[::-1]):
        assert printed(build(tmp_path, probe().compiler_command, *order, *words)) == PRINTED


def test_a_model_with_regions_in_cxx_beside_one_without_any(tmp_path: Path) -> None:
    put(tmp_path, "first", "static", "add", 2, {})
    link = put(tmp_path, "second", "static", "multiply", 10, BACKENDS["C++"])
    assert "-lstdc++" in link
    (tmp_path / "program.c").write_text(TWO_MODELS, encoding="utf-8")
    words = ["second.a", "first.a", *link]
    command = probe().compiler_command
    assert printed(build(tmp_path, command, "-no-pie", *words)) == PRINTED
    # the C library has a warning about dlopen() for everybody
    assert printed(build(tmp_path, command, "-static", *words, "-Wl,--no-fatal-warnings")) == PRINTED


def test_the_same_results_as_a_shared_library_bit_for_bit(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype("float32")
    shared, static = digits("shared"), digits("static")
    static.export_library(tmp_path / "libdigits.a")
    (found,) = load_module(shared.path, threads=1).run_list([x])
    words = ["-Wl,--whole-archive", "libdigits.a", "-Wl,--no-whole-archive", *static.summary["link"]]
    flags = ["-shared", "-Wl,-z,defs", "-Wl,--fatal-warnings"]
    subprocess.run([*probe().compiler_command, *flags, *words, "-o", "whole.so"], cwd=tmp_path, check=True, timeout=60)
    library = ctypes.CDLL(str(tmp_path / "whole.so"))
    instance = ctypes.c_void_p()
    assert library.digits_create(1, ctypes.byref(instance)) == 0
    y = np.zeros_like(found)
    ins = (ctypes.c_void_p * 1)(ctypes.addressof(tensor_in := tensor(x)))
    outs = (ctypes.c_void_p * 1)(ctypes.addressof(tensor_out := tensor(y)))
    assert library.digits_run(instance, ins, 1, outs, 1) == 0
    library.digits_destroy(instance)
    assert (tensor_in.ndim, tensor_out.ndim) == (4, 2)
    assert y.tobytes() == found.tobytes()


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def tensor(array: Any) -> Tensor:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    return Tensor(array.ctypes.data, 1, 0, array.ndim, 2, 32, 1, shape, None, 0)


def test_nothing_is_global_but_the_model_s_functions(tmp_path: Path) -> None:
    module = relaybuild.parse(HEAD + MODEL.format(operator="add", number=2))
    for config in BACKENDS.values():
        artifact = relaybuild.compile(module, config=dict(config), name="first", form="static")
        artifact.export_library(tmp_path / "first.a")
        own = symbols(tmp_path / "first.a", "--defined-only", "--extern-only") - {"first.o:"}
        assert own == set(public_functions("first")), config


def test_programs_that_read_archives_know_the_member(tmp_path: Path) -> None:
    module = relaybuild.parse(HEAD + MODEL.format(operator="add", number=2))
    for name in ("short", "a_model_with_a_long_name", "a_model_with_a_longer_name"):
        artifact = relaybuild.compile(module, name=name, form="static")
        artifact.export_library(tmp_path / "model.a")
        listed = subprocess.run(["ar", "t", "model.a"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert listed.stdout == f"{name}.o\n"
        index = subprocess.run(["nm", "-s", "model.a"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert f"{name}_run in {name}.o" in index.stdout
        subprocess.run(["ar", "x", "model.a"], cwd=tmp_path, check=True)
        relaybuild.compile(module, name=name, form="object").export_library(tmp_path / "object.o")
        assert (tmp_path / f"{name}.o").read_bytes() == (tmp_path / "object.o").read_bytes()


@pytest.mark.parametrize("form", ["static", "object"])
def test_equal_input_gives_equal_bytes(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "elsewhere"
    first = content(digits(form, cache_dir=False))
    assert content(digits(form, cache_dir=False, save_temps=folder)) == first
    assert b"relaybuild-" not in first
    assert bytes(tmp_path) not in first
    # once more in the same folder, where a link has nothing to do
    assert content(digits(form, cache_dir=False, save_temps=folder)) == first


@looked_up
@pytest.mark.parametrize("form", ["static", "object"])
def test_it_is_found_whole(form: str) -> None:
    made, found = digits(form), digits(form)
    assert made.summary["executed"]["link"] == 1
    assert not any(found.summary["executed"].values())
    assert not found.summary["misses"]
    assert found.path.suffix == made.path.suffix == {"static": ".a", "object": ".o"}[form]
    assert found.path.read_bytes() == made.path.read_bytes()
    assert found.summary["link"] == made.summary["link"] == ["-lm", "-lpthread", "-ldl"]
    assert "linked with: -lm -lpthread -ldl " in found.header


@looked_up
def test_forms_share_objects_and_nothing_else() -> None:
    digits("shared")
    summary = digits("static").summary
    assert (summary["executed"]["object"], summary["executed"]["link"]) == (0, 1)
    assert summary["cached"]["object"] > 0


@looked_up
def test_a_link_is_found_when_the_whole_is_not(tmp_path: Path) -> None:
    first = digits("static")
    # what is to be kept is not looked up as a whole
    again = digits("static", save_temps=tmp_path)
    assert (again.summary["executed"]["link"], again.summary["cached"]["link"]) == (0, 1)
    assert content(again) == content(first)


def test_names_of_other_forms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'.*a\.so' is not a name for the form 'static'.*ends in '\.a'"):
        digits("static").export_library(tmp_path / "a.so")
    with pytest.raises(UserError, match=r"'.*a\.a' is not a name for the form 'shared'"):
        digits("shared").export_library(tmp_path / "a.a")
    with pytest.raises(UserError, match="'archive' is no form of a compiled model, expected one of 'shared', 'static'"):
        digits("archive")
    assert not list(tmp_path.iterdir())


def test_without_objcopy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = probe().path.resolve()
    for name in ("cc", "as", "ld"):
        real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / name).symlink_to(compiler if name == "cc" else real)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(UserError, match=r"(?s)needs the program 'objcopy'.*apt-get install binutils") as caught:
        digits("static")
    assert str(tmp_path / "cc") in str(caught.value)


def test_weights_are_aligned_and_cannot_be_written(tmp_path: Path) -> None:
    digits("object").export_library(tmp_path / "digits.o")
    listing = subprocess.run(["readelf", "-SW", tmp_path / "digits.o"], capture_output=True, text=True, check=True)
    (line,) = [line for line in listing.stdout.splitlines() if ".rodata.rb_weights " in line]
    assert line.split()[-4:] == ["A", "0", "0", "64"]
    assert "PROGBITS" in line


def test_it_links_with_a_cxx_compiler(tmp_path: Path) -> None:
    link = put(tmp_path, "first", "static", "add", 2, BACKENDS["C++"])
    put(tmp_path, "second", "static", "multiply", 10, BACKENDS["C++"])
    (tmp_path / "program.c").write_text(TWO_MODELS, encoding="utf-8")
    command = [*probe_cxx(probe()).compiler_command, "-x", "c++"]
    assert printed(build(tmp_path, command, "-x", "none", "first.a", "second.a", *link)) == PRINTED
