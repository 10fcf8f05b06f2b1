"""Folders of C, compiled by the very line that stands in them, where relaybuild is not."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiling import HEAD
from runners.building import Bare, bare, compiled_by_its_line, tree
from runners.command import DIGITS

import relaybuild
from relaybuild.emission.layout import TEMPLATES
from relaybuild.emission.recording import recorded_outputs
from relaybuild.ir.expr import Function, Tuple, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.runtime.spec import TensorSpec

pytestmark = pytest.mark.usefixtures("own_warm_cache", "fixed_code")

SMALL = "def @main(%x: Tensor[(4,), float32], %n: Tensor[(3,), int32], %b: Tensor[(5,), uint8]) {\n"
SMALL += "  (nn.relu(add(%x, 0.25f)), add(%n, 7), %b)\n}\n"
SMALL_INPUTS = [TensorSpec("x", (4,), "float32"), TensorSpec("n", (3,), "int32"), TensorSpec("b", (5,), "uint8")]


@pytest.fixture
def tools(tmp_path: Path) -> Bare:
    return bare(tmp_path / "tools")


def large() -> IRModule:
    """A model with more weights than an array in C is made of."""
    x = var("x", TensorType((2, 700), "float32"))
    weight = const(np.random.default_rng(1).standard_normal((600, 700)).astype("float32"))
    return infer_types(IRModule({"main": Function([x], Tuple([call_op("nn.dense", [x, weight])]))}))


def checked(folder: Path, tools: Bare, name: str, expected: bytes) -> str:
    """What the test program of projects says, linked by the other line of README.md."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (\$CC.*program\.c.*)$", text, re.MULTILINE)
    source = f'#define MODEL {name}\n#define MODEL_HEADER "{name}.h"\n' + (TEMPLATES / "check.c").read_text()
    (folder / "program.c").write_text(source, encoding="utf-8")
    (folder / "expected.bin").write_bytes(expected)
    tools.run("sh", "-euc", f"CC=cc; {line} -Wall -Wextra -Werror", folder=folder)
    return tools.run("./a.out", "expected.bin", folder=folder)


def test_a_model_of_several_types(tmp_path: Path, tools: Bare) -> None:
    module = relaybuild.parse(HEAD + SMALL)
    folder = tmp_path / "small"
    relaybuild.compile(module, name="small", target="c", form="sources").export_library(folder)
    compiled_by_its_line(folder, tools)
    expected = recorded_outputs(infer_types(module), SMALL_INPUTS)
    assert checked(folder, tools, "small", expected).count(": ok\n") == 3
    wrong = bytes([expected[0] ^ 1, *expected[1:-1], expected[-1] ^ 1])
    (folder / "expected.bin").write_bytes(wrong)
    done = tools.start("./a.out", "expected.bin", folder=folder)
    assert (done.returncode, done.stdout.count("FAILED")) == (1, 1)


def test_small_weights_are_an_array(tmp_path: Path, tools: Bare) -> None:
    folder = tmp_path / "digits"
    artifact = relaybuild.compile(DIGITS, name="digits", target="x86-64-v2", form="sources")
    artifact.export_library(folder)
    assert artifact.summary["size"] == sum(len(data) for name, data in tree(folder).items() if name[0] != ".")
    assert "= {" in (folder / "src" / "weights.c").read_text(encoding="utf-8")
    assert not list(folder.rglob("*.S")) + list(folder.rglob("*.bin"))
    compiled_by_its_line(folder, tools)
    tools.run("sh", "-euc", "cc -shared *.o -Wl,-z,defs -lm -lpthread -ldl -o digits.so", folder=folder)
    shared = relaybuild.compile(DIGITS, name="digits", target="x86-64-v2")
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype("float32")
    ours, theirs = (relaybuild.load_module(path, threads=1)(x) for path in (shared.path, folder / "digits.so"))
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def test_clang_compiles_what_was_made_where_the_compiler_is_gcc(tmp_path: Path, tools: Bare) -> None:
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    folder = tmp_path / "digits"
    relaybuild.compile(DIGITS, name="digits", target="x86-64-v2", form="sources").export_library(folder)
    compiled_by_its_line(folder, replace(tools, environ={"CC": f"{clang} -Wall -Wextra -Werror"}))
    assert (folder / "libdigits.a").stat().st_size > 10_000


def test_large_weights_are_a_file_that_the_assembler_reads(tmp_path: Path, tools: Bare) -> None:
    folder = tmp_path / "large"
    relaybuild.compile(large(), name="large", target="x86-64-v2", form="sources").export_library(folder)
    assert (folder / "weights.bin").stat().st_size >= 600 * 700 * 4
    assert "weights.bin" in (folder / "README.md").read_text(encoding="utf-8")
    compiled_by_its_line(folder, tools)
    expected = recorded_outputs(large(), [TensorSpec("x", (2, 700), "float32")])
    assert ": ok\n" in checked(folder, tools, "large", expected)


@pytest.mark.slow
def test_regions_in_cxx(tmp_path: Path, tools: Bare) -> None:
    module = relaybuild.parse(HEAD + "def @main(%x: Tensor[(4,), float32]) { nn.relu(add(%x, 0.5f)) }\n")
    folder = tmp_path / "small"
    config = {"USE_EXAMPLE_JSON": "ON"}
    relaybuild.compile(module, name="small", target="c", form="sources", config=config).export_library(folder)
    compiled_by_its_line(folder, tools)
    expected = recorded_outputs(infer_types(module), [TensorSpec("x", (4,), "float32")])
    assert ": ok\n" in checked(folder, tools, "small", expected)


def test_no_place_is_in_them_and_they_are_found_whole(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "an other" / "two"]
    places[1].parent.mkdir()
    for place in places:
        config = {"USE_EXAMPLE_JSON": "ON"}
        artifact = relaybuild.compile(
            DIGITS, name="digits", target="x86-64-v2", form="sources", config=config, cache_dir=tmp_path / "cache"
        )
        artifact.export_library(place)
        for name, data in tree(place).items():
            assert bytes(tmp_path) not in data, name
            assert bytes(DIGITS.parents[2]) not in data, name
    assert not any(artifact.summary["executed"].values())
    assert tree(places[0]) == tree(places[1])
