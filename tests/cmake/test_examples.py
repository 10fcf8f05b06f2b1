"""The examples for C++ build and run from a clean folder, where nothing is but them and an installed relaybuild."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from environments import ROOT
from runners.consumer import Consumer

pytestmark = pytest.mark.slow

STRICT = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Werror"
MODELS = Path(os.environ.get("RELAYBUILD_MODELS") or ROOT / ".models")


def example(consumer: Consumer, name: str, *options: str) -> Consumer:
    """An example, and the files of others that it names, configured in a folder outside of the checkout."""
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    for each in (name, "digits"):
        shutil.copytree(ROOT / "examples" / each, consumer.folder / each, ignore=shutil.ignore_patterns("build"))
    copy = Consumer(consumer.environment, consumer.folder / name, consumer.environ)
    copy.configure(STRICT, *options)
    copy.make()
    return copy


def test_a_classifier(consumer: Consumer) -> None:
    one = example(consumer, "cpp-classifier")
    samples = sorted((one.folder.parent / "digits" / "samples").iterdir())
    lines = one.run(one.build / "classify", *samples).stdout.splitlines()
    assert [line.rpartition(": ")[2].split()[0] for line in lines] == [str(digit) for digit in range(10)]
    done = one.run(one.build / "classify", one.folder / "CMakeLists.txt")
    assert done.returncode == 1
    assert done.stderr.endswith("CMakeLists.txt: not a plain PGM image (P2) of 8x8 pixels\n")
    one.run(one.cmake, "--install", "build", "--prefix", "installed")
    one.build.rename(one.folder / "elsewhere")
    assert one.run(one.folder / "installed" / "bin" / "classify", samples[3]).stdout.split(": ")[1].startswith("3 (")


def test_two_models_and_four_threads(consumer: Consumer) -> None:
    if not (MODELS / "ch_PP-OCRv4_det_infer.onnx").is_file():
        pytest.skip("the models are not there: tools/fetch_models.py fetches them")
    one = example(consumer, "two-models", f"-DMODELS={MODELS}")
    names = [f"images/{name}.pgm" for name in ("hello", "relaybuild")]
    done = one.run(one.build / "find_text", *names, *names)
    lines = done.stdout.splitlines()
    assert [line.rpartition(", ")[2] for line in lines] == ["upright", "upside down"] * 4, done.stderr
    assert lines[:4] == lines[4:]
    assert [line.partition(":")[0] for line in lines[:2]] == [names[0], f"{names[0]}, turned"]
