"""A model is a target: what can be done with the target, and what a project decides about it."""

from __future__ import annotations

import json
import os
import shutil
import time

import numpy as np
import pytest
from adder import ADD_ONE, GENERATORS, MAIN, MODEL, PROGRAM, add, did, places, project, summary
from runners.consumer import HEAD, OLDEST, Consumer, touch

from relaybuild.build.cache.memo import RACY_SECONDS

pytestmark = pytest.mark.slow

PAIRS = [("Ninja", "cmake"), ("Unix Makefiles", OLDEST), ("Ninja Multi-Config", "cmake")]
"""Each generator, and both versions of cmake: where all that counts was shown for every pair already."""


@pytest.mark.parametrize("generator", GENERATORS[:2])
def test_a_clean_build_folder_takes_it_from_the_cache(consumer: Consumer, generator: str) -> None:
    one = project(consumer.by("cmake", generator))
    one.configure()
    one.make()
    assert sum(summary(one)["executed"].values()) > 0
    library = (one.build / "libadder.so").read_bytes()
    one.build.rename(one.folder / "before")
    one.configure()
    one.make()
    assert sum(summary(one)["executed"].values()) == 0
    assert summary(one)["cached"]["link"] == 1
    assert (one.build / "libadder.so").read_bytes() == library


@pytest.mark.parametrize(("generator", "cmake"), PAIRS)
def test_it_is_installed_with_its_header(consumer: Consumer, generator: str, cmake: str) -> None:
    """And with what projects set for all of their targets; under another name, in a folder below."""
    text = ADD_ONE.replace("add_executable", "set_target_properties(adder PROPERTIES OUTPUT_NAME sum)\nadd_executable")
    show = "add_custom_command(TARGET main POST_BUILD COMMAND ${CMAKE_COMMAND} -E echo $<TARGET_FILE:adder>)\n"
    one = project(consumer.by(cmake, generator), text + show + "install(TARGETS adder main)\n")
    one.folder.joinpath("sub").mkdir()
    for path in list(one.folder.iterdir()):
        if path.name != "sub":
            path.rename(one.folder / "sub" / path.name)
    one.write("CMakeLists.txt", HEAD + "add_subdirectory(sub)\n")
    settings = ("-DCMAKE_INSTALL_RPATH=$ORIGIN/../lib", "-DCMAKE_DEBUG_POSTFIX=d", "-DCMAKE_BUILD_TYPE=Debug")
    one.configure(*settings, "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", f"-DCMAKE_INSTALL_PREFIX={one.folder}/prefix")
    said = one.make()
    (library,) = one.build.rglob("libsum.so")
    assert f"{library}\n" in said
    configuration = ("--config", "Debug") if "Multi" in generator else ()
    done = one.run(one.cmake, "--install", one.build_folder, "--strip", *configuration)
    assert done.returncode == 0, done.stdout + done.stderr
    one.build.rename(one.folder / "elsewhere")
    assert one.run(one.folder / "prefix" / "bin" / "main").stdout == "2 4 6\n"
    installed = {str(path.relative_to(one.folder / "prefix")) for path in (one.folder / "prefix").rglob("*.[hs]*")}
    assert installed == {"lib/libsum.so", "include/net.h"}


@pytest.mark.parametrize(("generator", "cmake"), PAIRS)
def test_a_version_of_the_library(consumer: Consumer, generator: str, cmake: str) -> None:
    versions = "set_target_properties(adder PROPERTIES VERSION 1.2.3 SOVERSION 1)\nadd_executable"
    export = "install(TARGETS adder EXPORT all INCLUDES DESTINATION include)\n"
    export += "install(EXPORT all DESTINATION cmake FILE models-config.cmake)\n"
    one = project(consumer.by(cmake, generator), ADD_ONE.replace("add_executable", versions) + export)
    one.configure(f"-DCMAKE_INSTALL_PREFIX={one.folder}/prefix", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    one.make("--target", "install")
    names = {path.name: os.path.realpath(path) for path in (one.folder / "prefix" / "lib").iterdir()}
    assert set(names) == {"libadder.so", "libadder.so.1", "libadder.so.1.2.3"}
    assert len(set(names.values())) == 1
    assert did(one) == set()
    (one.build / places(one)[0]).with_name("libadder.so").unlink()
    assert one.run(one.build / places(one)[1]).stdout == "2 4 6\n"
    # whoever links the installed one looks for the name without the minor versions
    one.build.rename(one.folder / "elsewhere")
    text = HEAD.replace("relaybuild CONFIG", "models CONFIG") + "add_executable(main main.c)\n"
    one.write("CMakeLists.txt", text + "target_link_libraries(main PRIVATE adder)\n")
    one.configure(f"-DCMAKE_PREFIX_PATH={one.folder}/prefix/cmake")
    one.make()
    (one.folder / "prefix" / "lib" / "libadder.so").unlink()
    assert one.run(one.build / places(one)[1]).stdout == "2 4 6\n"


def test_configurations_that_differ(consumer: Consumer) -> None:
    """In options of the model and in the library's name: each has its own, whichever was built before."""
    text = ADD_ONE.replace("net.json", "$<CONFIG>.json")
    text += "set_target_properties(adder PROPERTIES DEBUG_POSTFIX d SOVERSION 1)\n"
    one = project(consumer.by("cmake", "Ninja Multi-Config"), text)
    one.configure()
    for configuration in ("Debug", "Release", "Debug"):
        one.make("--config", configuration)
        assert one.run(one.build / configuration / "main").stdout == "2 4 6\n"
        assert (one.build / f"{configuration}.json").is_file()
    assert "no work to do" in one.make("--config", "Debug")
    assert {path.name for path in one.build.rglob("libadder*")} == {
        "libadder.so",
        "libadder.so.1",
        "libadderd.so",
        "libadderd.so.1",
    }


def test_python_loads_the_target(consumer: Consumer) -> None:
    one = project(consumer)
    one.configure()
    one.make()
    code = (
        "import numpy as np, relaybuild, sys\n"
        "print(relaybuild.load_module(sys.argv[1])(np.zeros((400, 3), 'float32'))[0])"
    )
    done = one.run("python", "-c", code, one.build / "libadder.so")
    assert done.stdout == "[1. 2. 3.]\n", done.stderr


def test_several_models_in_one_program(consumer: Consumer) -> None:
    text = """
relaybuild_add_model(first MODEL ${CMAKE_CURRENT_SOURCE_DIR}/models/net.onnx TARGET_ISA c)
relaybuild_add_model(net MODEL models/net.onnx TARGET_ISA c)
relaybuild_add_model(with-hyphens.and.dots MODEL models/net.onnx TARGET_ISA c SHAPES x=400,3 OPTIONS --threads 1)
add_executable(main main.c)
target_link_libraries(main PRIVATE net first with-hyphens.and.dots)
"""
    one = project(consumer, text)
    calls = '#include "first.h"\n#include "with_hyphens_and_dots.h"\n'
    body = (
        'printf("%s %s\\n", first_describe()->name, with_hyphens_and_dots_describe()->name);\n  const RbModelInfo *info'
    )
    one.write("main.c", calls + MAIN.replace("const RbModelInfo *info", body))
    one.configure()
    one.make()
    assert one.run(one.build / "main").stdout == "first with_hyphens_and_dots\n2 4 6\n"


@pytest.mark.parametrize("kind", ["STATIC", "OBJECT"])
@pytest.mark.parametrize(("generator", "cmake"), PAIRS)
def test_models_become_part_of_the_program(consumer: Consumer, generator: str, kind: str, cmake: str) -> None:
    text = f"""
relaybuild_add_model(adder MODEL models/net.onnx NAME net TARGET_ISA c {kind})
relaybuild_add_model(other MODEL models/net.onnx TARGET_ISA c {kind})
add_executable(main main.c)
target_link_libraries(main PRIVATE adder other)
"""
    one = project(consumer.by(cmake, generator), text)
    one.write(
        "main.c", '#include "other.h"\n' + MAIN.replace("printf(", 'printf("%s ", other_describe()->name);\n  printf(')
    )
    one.configure()
    one.make()
    program = one.build / places(one)[1]
    assert one.run(program).stdout == "other 2 4 6\n"
    assert did(one) == set()
    before = program.stat().st_mtime_ns
    touch(one.folder / "models" / "net.onnx")
    assert did(one) == {MODEL}
    assert program.stat().st_mtime_ns == before
    add(one, (10, 20, 30))
    assert {MODEL, PROGRAM} <= did(one)
    one.environment.run("mv", program, one.folder / "alone", folder=one.folder)
    one.build.rename(one.folder / "elsewhere")
    assert one.run(one.folder / "alone").stdout == "other 11 22 33\n"


@pytest.mark.parametrize("options", ["", "OPTIONS -D USE_EXAMPLE_JSON=ON", "CONFIG config.cmake"])
def test_a_static_library_is_installed_and_linked_by_others(consumer: Consumer, options: str) -> None:
    """By way of the project's own exported targets, in a project in C that knows nothing of relaybuild.

    Regions may be in C++, and the exported target brings what they need.
    """
    one = install_static(consumer, options)
    exported = "".join(path.read_text() for path in (one.folder / "prefix" / "cmake").iterdir())
    assert ("-lstdc++" in exported) == bool(options)
    assert str(one.build) not in exported
    assert printed_by_a_stranger(one) == "2 4 6\n"


def test_an_installed_static_library_calls_another(consumer: Consumer) -> None:
    onnx = pytest.importorskip("onnx")
    found = consumer.run("python", "-m", "relaybuild", "compile", "-", "-o", "-", "--link-bound", "-DUSE_CBLAS=ON")
    if found.returncode != 0:
        pytest.skip("there is no BLAS")
    weight = onnx.numpy_helper.from_array(np.eye(3, dtype="float32") * 2, "w")
    ports = [onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, (400, 3)) for each in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "net", ports[:1], ports[1:])
    graph.initializer.append(weight)
    one = project(consumer)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        one.folder / "models" / "net.onnx",
    )
    one = install_static(one, "OPTIONS -DUSE_CBLAS=ON --summary net.json")
    assert [each["backend"] for each in json.loads((one.folder / "net.json").read_text())["regions"]] == ["cblas"]
    assert printed_by_a_stranger(one) == "2 4 6\n"


def install_static(consumer: Consumer, options: str) -> Consumer:
    """A project that exports a static library of a model, built and installed, its build folder gone."""
    text = f"""
set(BUILD_SHARED_LIBS OFF)
relaybuild_add_model(net MODEL models/net.onnx TARGET_ISA c {options})
install(TARGETS net EXPORT all INCLUDES DESTINATION include)
install(EXPORT all DESTINATION cmake FILE models-config.cmake NAMESPACE models::)
"""
    is_there = (consumer.folder / "models" / "net.onnx").is_file()
    one = consumer if is_there else project(consumer)
    one.write("CMakeLists.txt", HEAD + text)
    one.write("more.cmake", "set(USE_EXAMPLE_JSON ON)\n")
    one.configure(f"-DCMAKE_INSTALL_PREFIX={consumer.folder}/prefix")
    one.make("--target", "install")
    assert (one.folder / "prefix" / "lib" / "libnet.a").is_file()
    one.build.rename(one.folder / "elsewhere")
    return one


def printed_by_a_stranger(one: Consumer) -> str:
    """What the program prints in a project in C that finds the model where it is installed."""
    text = HEAD.replace("relaybuild CONFIG", "models CONFIG") + "add_executable(main main.c)\n"
    one.write("CMakeLists.txt", text + "target_link_libraries(main PRIVATE models::net)\n")
    one.configure(f"-DCMAKE_PREFIX_PATH={one.folder}/prefix/cmake")
    one.make()
    return one.run(one.build / "main").stdout


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
@pytest.mark.parametrize("kind", ["STATIC", "OBJECT"])
def test_a_model_brings_what_its_regions_need(consumer: Consumer, kind: str, generator: str) -> None:
    text = f"""
relaybuild_add_model(adder MODEL models/net.onnx NAME net TARGET_ISA c {kind} OPTIONS -DUSE_EXAMPLE_JSON=ON)
add_executable(main main.c)
target_link_libraries(main PRIVATE adder)
"""
    one = project(consumer.by("cmake", generator), text)
    one.configure()
    one.make()
    (link,) = one.build.rglob("net.link")
    assert link.read_text().splitlines() == ["-lstdc++", "-lm", "-lpthread", "-ldl"]
    assert one.run(one.build / "main").stdout == "2 4 6\n"


def test_a_model_that_the_project_makes(consumer: Consumer) -> None:
    text = """
add_custom_command(OUTPUT made.onnx COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/models/net.onnx
  made.onnx DEPENDS models/net.onnx)
relaybuild_add_model(net MODEL ${CMAKE_CURRENT_BINARY_DIR}/made.onnx TARGET_ISA c)
add_executable(main main.c)
target_link_libraries(main PRIVATE net)
"""
    one = project(consumer, text)
    one.configure()
    one.make()
    assert one.run(one.build / "main").stdout == "2 4 6\n"
    add(one, (5, 5, 5))
    one.make()
    assert one.run(one.build / "main").stdout == "6 7 8\n"


@pytest.mark.parametrize("generator", GENERATORS[:2])
def test_what_relaybuild_says_of_a_mistake_is_in_the_log(consumer: Consumer, generator: str) -> None:
    one = project(consumer.by("cmake", generator), ADD_ONE.replace("TARGET_ISA c", "SHAPES nothing=1,2 TARGET_ISA c"))
    one.configure()
    done = one.try_make()
    assert done.returncode != 0
    assert "error: " in done.stdout + done.stderr
    assert "nothing" in (done.stdout + done.stderr).partition("error: ")[2]
    assert "Traceback" not in done.stdout + done.stderr
    assert not (one.build / "libadder.so").exists()
    # what was wrong is put right, and the build goes on
    one.write("CMakeLists.txt", HEAD + ADD_ONE)
    one.make()
    assert one.run(one.build / "main").stdout == "2 4 6\n"


def test_the_compiler_and_the_launcher_of_the_project(consumer: Consumer) -> None:
    """They are called by paths and with words that have to be quoted."""
    tools = consumer.folder / "tools of mine"
    tools.mkdir()
    for name, code in (("my cc", 'exec cc "$@"'), ("launch", 'exec "$@"')):
        (tools / name).write_text(f'#!/bin/sh\necho "$@" >> "{tools}/{name}.log"\n{code}\n')
        (tools / name).chmod(0o755)
    one = project(consumer)
    one.configure(f"-DCMAKE_C_COMPILER={tools}/my cc", f"-DCMAKE_C_COMPILER_LAUNCHER={tools}/launch")
    (tools / "my cc.log").unlink()
    one.make()
    kernels = [line for line in (tools / "launch.log").read_text().splitlines() if "main.c" not in line]
    assert len(kernels) > 3
    assert all(line.startswith(f"{tools}/my cc ") for line in kernels)
    assert len((tools / "my cc.log").read_text().splitlines()) > len(kernels)


def test_a_program_for_another_processor(consumer: Consumer) -> None:
    emulator, prefix = shutil.which("qemu-aarch64"), "/usr/aarch64-linux-gnu"
    if shutil.which("aarch64-linux-gnu-gcc") is None or emulator is None:
        pytest.skip("there is no compiler for aarch64, or no emulator")
    one = project(consumer, ADD_ONE.replace("TARGET_ISA c", "TARGET_ISA aarch64"))
    system = "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\n"
    one.write("aarch64.cmake", f"{system}set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)\n")
    one.configure("-DCMAKE_TOOLCHAIN_FILE=aarch64.cmake")
    one.make()
    assert one.run(emulator, "-L", prefix, one.build / "main").stdout == "2 4 6\n"


def test_another_python_is_named(consumer: Consumer) -> None:
    one = project(consumer)
    wrapper = one.write("my python", f'#!/bin/sh\necho >> used\nexec "{one.environment.bin}/python" "$@"\n')
    wrapper.chmod(0o755)
    one.configure(f"-DRELAYBUILD_PYTHON={wrapper}")
    one.make()
    assert (one.folder / "used").is_file()
    lame = one.write("no python", "#!/bin/sh\necho it is lame >&2\nexit 3\n")
    lame.chmod(0o755)
    done = one.try_configure(f"-DRELAYBUILD_PYTHON={lame}")
    assert done.returncode != 0
    assert f"{lame}: it is lame" in done.stderr


def test_modules_of_the_project_are_not_taken_for_others(consumer: Consumer) -> None:
    one = project(consumer)
    for name in ("click.py", "json.py", "relaybuild.py"):
        one.write(name, "raise RuntimeError('this is of the project')\n")
    one.configure()
    one.make()
    assert one.run(one.build / "main").stdout == "2 4 6\n"


def test_relaybuild_is_quick_where_everything_is_there(consumer: Consumer) -> None:
    """Nothing heavy is imported for a model that is in the cache."""
    one = project(consumer)
    one.configure()
    one.make()
    time.sleep(RACY_SECONDS + 0.1)
    for _ in range(2):
        touch(one.folder / "models" / "net.onnx")
        done = one.run("env", "PYTHONPROFILEIMPORTTIME=1", one.cmake, "--build", one.build_folder)
        imported = {line.rpartition("|")[2].strip() for line in (done.stdout + done.stderr).splitlines()}
        assert "relaybuild.driver" in imported
    assert imported & {"numpy", "onnx", "rich", "ninja", "relaybuild.ir"} == set()
