"""A model is compiled again exactly when something changed that it is made from; linked again when it became another.

What a build did is told by the lines that it prints and by the times of its outputs. That a second build does nothing
is part of each test.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from adder import ADD_ONE, CMAKES, GENERATORS, LIBRARY, MODEL, PROGRAM, SOURCE, add, did, places, project, summary
from environments import Environment
from runners.consumer import HEAD, Consumer, touch

pytestmark = pytest.mark.slow

BACKEND = """\
from relaybuild.partition.backend import Backend


def generate(*_):
    raise NotImplementedError


BACKEND = Backend(name="nothing", tag="nothing", cmake_flag="USE_NOTHING", codegen=generate)
"""
LONG_AGO = 946684800
"""The first second of the year 2000: packages may have files that are older than all that was built."""


@pytest.fixture
def changing(consumer: Consumer, changeable: Environment) -> Consumer:
    """A project with an environment of its own."""
    return replace(consumer, environment=changeable)


def packages(consumer: Consumer) -> Path:
    """The folder into which packages are installed."""
    return next(consumer.environment.folder.glob("lib/python*/site-packages"))


def install_backend(consumer: Consumer, folder: Path) -> Path:
    """A backend that computes nothing, where an editable installation leaves it; the folder of its code."""
    package = folder / "relaybuild_nothing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BACKEND)
    metadata = packages(consumer) / "relaybuild_nothing-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: relaybuild-nothing\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[relaybuild.backends]\nnothing = relaybuild_nothing:BACKEND\n")
    (packages(consumer) / "nothing.pth").write_text(f"{folder}\n")
    return package


def changed_wheel(wheel: Path, folder: Path, changes: Mapping[str, tuple[str, str]]) -> Path:
    """The wheel with other texts in some of its files."""
    folder.mkdir()
    made = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w") as target:
        for item in source.infolist():
            data = source.read(item)
            if item.filename in changes:
                before, after = (text.encode() for text in changes[item.filename])
                assert before in data, item.filename
                data = data.replace(before, after)
            target.writestr(item, data)
    return made


def make_old(folder: Path) -> None:
    """Give files of relaybuild the time that installers leave them which link files, or unpack them with their times.

    The folders have the time at which they were changed, in any case.
    """
    for top in folder.glob("relaybuild*"):
        for path in filter(Path.is_file, top.rglob("*")):
            os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.mark.parametrize("cmake", CMAKES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_it_is_compiled_again_exactly_when_something_changed(changing: Consumer, generator: str, cmake: str) -> None:
    one = project(changing.by(cmake, generator), is_external=True)
    one.configure("-DCMAKE_COLOR_MAKEFILE=OFF")
    assert did(one) == {MODEL, SOURCE, LIBRARY, PROGRAM}
    assert one.run(one.build / places(one)[1]).stdout == "2 4 6\n"
    assert did(one) == set()

    # what was read is newer, and nothing in it is other: relaybuild looks, and nothing follows
    code = packages(one) / "relaybuild" / "lower" / "emit.py"
    paths = [one.folder / name for name in ("models/net.onnx", "models/net.data", "config.cmake", "more.cmake")]
    for path in (*paths, code):
        before = [one.time(place) for place in places(one)]
        touch(path)
        assert did(one) == {MODEL}, path
        assert [one.time(place) for place in places(one)] == before, path
        assert sum(summary(one)["executed"].values()) == 0
        assert did(one) == set(), path

    # other weights, in a file beside the model: no source is compiled again
    model = (one.folder / "models" / "net.onnx").read_bytes()
    add(one, (10, 20, 30), is_external=True)
    assert (one.folder / "models" / "net.onnx").read_bytes() == model
    before = [one.time(place) for place in places(one)]
    assert did(one) == {MODEL, LIBRARY, PROGRAM}
    assert one.time(places(one)[0]) > before[0]
    assert one.run(one.build / places(one)[1]).stdout == "11 22 33\n"
    assert did(one) == set()

    # another signature: the header is another one
    add(one, (1, 2, 3, 4), is_external=True)
    assert did(one) == {MODEL, SOURCE, LIBRARY, PROGRAM}

    # a script that the configuration includes
    one.write("more.cmake", "set(USE_CODEGENC ON)\n")
    assert {MODEL, LIBRARY} <= did(one)
    assert one.run(one.build / places(one)[1]).stdout == "2 4 6\n"
    assert did(one) == set()

    # the command itself
    one.write("CMakeLists.txt", HEAD + ADD_ONE.replace("OPTIONS", "OPTIONS --opt-level 1"))
    assert MODEL in did(one)
    assert did(one) == set()


@pytest.mark.parametrize("generator", GENERATORS[:2])
def test_a_file_more_in_relaybuild_counts(changing: Consumer, generator: str) -> None:
    one = project(changing.by("cmake", generator))
    one.configure()
    assert MODEL in did(one)
    assert did(one) == set()
    templates = packages(one) / "relaybuild" / "lower" / "templates"
    another = templates / "another"
    for change in (
        lambda: (templates / "more.py").write_text("# nothing\n"),
        another.mkdir,
        lambda: (another / "file.py").write_text("# nothing\n"),
    ):
        change()
        assert did(one) == {MODEL}
        assert did(one) == set()


@pytest.mark.parametrize("generator", GENERATORS[:2])
def test_an_installed_backend_counts(changing: Consumer, generator: str, tmp_path: Path) -> None:
    one = project(changing.by("cmake", generator))
    one.configure()
    assert MODEL in did(one)
    package = install_backend(one, tmp_path / "plugins")
    assert did(one) == {MODEL}
    # the first time, Python has written into its folder
    did(one)
    assert did(one) == set()
    for change in (lambda: touch(package / "__init__.py"), lambda: (package / "more.py").write_text("# nothing\n")):
        change()
        assert did(one) == {MODEL}
        assert did(one) == set()
    shutil.rmtree(packages(one) / "relaybuild_nothing-1.0.dist-info")
    assert did(one) == {MODEL}
    assert did(one) == set()


@pytest.mark.parametrize(("generator", "options"), [("Ninja", ()), ("Unix Makefiles", ("--no-compile",))])
def test_another_relaybuild_of_the_same_version(
    changing: Consumer, wheel: Path, generator: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Its files are older than what was built, and nothing of it may have been compiled for Python."""
    install = ("python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", *options)
    one = project(changing.by("cmake", generator))
    one.configure()
    one.make()
    changes = {
        "relaybuild/runtime/src/runtime.c": ("expected ", "wanted "),
        "relaybuild/_share/cmake/RelaybuildModel.cmake": ("include(", "message(STATUS another)\ninclude("),
    }
    another = changed_wheel(wheel, tmp_path / "another", changes)
    one.environment.run(*install, another, folder=tmp_path)
    make_old(packages(one))
    said = one.make()
    assert "-- another" in said
    assert MODEL in said
    assert LIBRARY.replace("libadder.so", places(one)[0]) in said
    assert did(one) == set()
    # the same once more: relaybuild looks, and nothing follows
    one.environment.run(*install, another, folder=tmp_path)
    make_old(packages(one))
    assert did(one) == {MODEL}
    assert sum(summary(one)["executed"].values()) == 0
    assert did(one) == set()


@pytest.mark.parametrize("generator", GENERATORS[:2])
def test_another_compiler_in_the_same_place(consumer: Consumer, generator: str) -> None:
    """It is older than what was built, as programs are that come in packages."""
    compiler = consumer.write("tools/my cc", '#!/bin/sh\nexec cc "$@"\n')
    compiler.chmod(0o755)
    one = project(consumer.by("cmake", generator))
    one.configure(f"-DCMAKE_C_COMPILER={compiler}")
    assert MODEL in did(one)
    assert did(one) == set()
    another = consumer.write("tools/another", '#!/bin/sh\n# another\nexec cc "$@"\n')
    another.chmod(0o755)
    os.utime(another, (LONG_AGO, LONG_AGO))
    another.rename(compiler)
    assert did(one) == {MODEL}
    assert summary(one)["executed"]["object"] > 0
    assert did(one) == set()


@pytest.mark.parametrize("generator", GENERATORS)
def test_what_was_deleted_is_made_again(consumer: Consumer, generator: str) -> None:
    one = project(consumer.by("cmake", generator))
    one.configure()
    assert MODEL in did(one)
    folder = one.build / "relaybuild" / "adder"
    for names, expected in ((["net.so"], LIBRARY), (["net.h"], SOURCE), (["net.so", "net.h"], LIBRARY)):
        for name in names:
            (folder / name).unlink()
        assert expected in did(one), names
        assert one.run(one.build / places(one)[1]).stdout == "2 4 6\n"
        assert did(one) == set(), names
