"""Mistakes in a call of relaybuild_add_model() are errors when the project is configured, with what was expected."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from environments import ROOT, Environment
from runners.consumer import HEAD, Consumer

MODEL = "MODEL net.onnx"


@pytest.fixture
def project(tmp_path: Path) -> Consumer:
    """A project that finds this checkout."""
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is not installed")
    one = Consumer(Environment(tmp_path / "nothing"), tmp_path / "project", {"relaybuild_ROOT": str(ROOT)})
    one.folder.mkdir()
    one.write("net.onnx", "")
    return one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("net", "no model is named, expected MODEL file.onnx"),
        ("net MODEL", "MODEL has no value"),
        ("net MODEL other.onnx", "other.onnx', which MODEL names"),
        ("net MODEL .", "which MODEL names"),
        (f"net {MODEL} CONFIG other.cmake", "other.cmake', which CONFIG names"),
        (f"net {MODEL} STATIC SHARED", "found 'SHARED;STATIC', expected one of them"),
        (f"net {MODEL} NAME 1st", "NAME is '1st', expected an identifier of C, which functions begin with"),
        (f"net {MODEL} SHAPE x=1", "found 'SHAPE;x=1', expected MODEL, NAME, SHAPES, TARGET_ISA, CONFIG, OPTIONS, or"),
        (f"taken {MODEL}", "there is a target of this name already, expected another name"),
    ],
)
def test_mistakes(project: Consumer, arguments: str, message: str) -> None:
    project.write("CMakeLists.txt", f"{HEAD}add_library(taken INTERFACE)\nrelaybuild_add_model({arguments})\n")
    done = project.try_configure()
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert message in said
    assert f"relaybuild_add_model({arguments.split()[0]}): " in said


def test_a_machine_for_which_nothing_can_be_compiled(project: Consumer) -> None:
    toolchain = "set(CMAKE_SYSTEM_NAME Generic)\nset(CMAKE_SYSTEM_PROCESSOR toaster)\n"
    project.write("toaster.cmake", f"{toolchain}set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n")
    project.write("CMakeLists.txt", f"{HEAD}relaybuild_add_model(net {MODEL} STATIC)\n")
    done = project.try_configure("-DCMAKE_TOOLCHAIN_FILE=toaster.cmake")
    assert done.returncode != 0
    assert "the project is compiled for Generic on toaster, expected Linux" in " ".join(done.stderr.split())


def test_another_processor_has_to_be_named(project: Consumer) -> None:
    toolchain = "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR riscv64)\n"
    project.write("other.cmake", toolchain)
    project.write("CMakeLists.txt", f"{HEAD}relaybuild_add_model(net {MODEL})\n")
    done = project.try_configure("-DCMAKE_TOOLCHAIN_FILE=other.cmake")
    assert done.returncode != 0
    assert "cross-compiled for riscv64: name its instructions, as in TARGET_ISA c" in " ".join(done.stderr.split())
    project.write("CMakeLists.txt", f"{HEAD}relaybuild_add_model(net {MODEL} TARGET_ISA c)\n")
    project.configure(f"-DRELAYBUILD_PYTHON={sys.executable}")
