"""Static libraries and objects: what they compute, how tools read them, and the same bytes every time."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runners.command import DIGITS
from runners.linking import MODEL
from runners.packed import dl_tensor

import relaybuild
from relaybuild import driver
from relaybuild.build.toolchain import probe
from relaybuild.errors import UserError
from relaybuild.runtime import load_module

looked_up = pytest.mark.usefixtures("own_warm_cache", "fixed_code")


def digits(form: str, **options: Any) -> driver.Artifact:
    return driver.compile(DIGITS, target="x86-64-v2", form=form, **options)


def content(artifact: driver.Artifact) -> bytes:
    return artifact.path.read_bytes()


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
    ins = (ctypes.c_void_p * 1)(ctypes.addressof(tensor_in := dl_tensor(x)))
    outs = (ctypes.c_void_p * 1)(ctypes.addressof(tensor_out := dl_tensor(y)))
    assert library.digits_run(instance, ins, 1, outs, 1) == 0
    library.digits_destroy(instance)
    assert (tensor_in.ndim, tensor_out.ndim) == (4, 2)
    assert y.tobytes() == found.tobytes()


def test_programs_that_read_archives_know_the_member(tmp_path: Path) -> None:
    module = relaybuild.parse(MODEL.format(operator="add", number=2))
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


# the object of an archive is its member
@pytest.mark.parametrize("form", ["static", pytest.param("object", marks=pytest.mark.slow)])
def test_equal_input_gives_equal_bytes(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "elsewhere"
    first = content(digits(form, cache_dir=False))
    assert content(digits(form, cache_dir=False, save_temps=folder)) == first
    assert b"relaybuild-" not in first
    assert bytes(tmp_path) not in first
    # once more in the same folder, where a link has nothing to do
    assert content(digits(form, cache_dir=False, save_temps=folder)) == first


@looked_up
@pytest.mark.parametrize("form", ["static", pytest.param("object", marks=pytest.mark.slow)])
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
