"""The file API's reply, and names of variables in scripts."""

from __future__ import annotations

import json
from pathlib import Path

from relaybuild.build.cmake_files import Inputs, inputs_of, request_inputs, variables_of
from relaybuild.build.evidence import ALL_NAMES


def reply(build: Path, inputs: list[dict[str, object]]) -> None:
    folder = build / ".cmake" / "api" / "v1" / "reply"
    folder.mkdir(parents=True)
    content = {"paths": {"source": "/src", "build": str(build)}, "inputs": inputs}
    (folder / "cmakeFiles-v1-1a2b.json").write_text(json.dumps(content), encoding="utf-8")


def test_scripts_of_projects_and_of_cmake(tmp_path: Path) -> None:
    request_inputs(tmp_path)
    assert inputs_of(tmp_path) is None
    reply(
        tmp_path,
        [
            {"path": "CMakeLists.txt"},
            {"path": "../p/config.cmake", "isExternal": True},
            {"path": "/cmake/Modules/CMakeSystem.cmake", "isExternal": True, "isCMake": True},
            {"path": f"{tmp_path}/CMakeFiles/made.cmake", "isGenerated": True},
            {"path": f"{tmp_path}/other.cmake"},
        ],
    )
    assert inputs_of(tmp_path) == Inputs(
        scripts=frozenset(("/src/CMakeLists.txt", "/p/config.cmake")),
        own=frozenset(("/cmake/Modules/CMakeSystem.cmake",)),
    )


def test_variables_that_scripts_name(tmp_path: Path) -> None:
    plain, composed = tmp_path / "plain.cmake", tmp_path / "composed.cmake"
    plain.write_text('if("$ENV{ONE}" AND DEFINED ENV{TWO})\nset(ENV{ProgramFiles(x86)} "")\nendif()\n')
    composed.write_text("set(x $ENV{${name}})\n")
    environ = {"ONE": "1", "OTHER": "2"}
    names = {"ONE", "TWO", "ProgramFiles(x86)"}

    def found(scripts: set[Path], own: set[Path]) -> set[str]:
        inputs = Inputs(frozenset(map(str, scripts)), frozenset(map(str, own)))
        return set(variables_of(inputs, environ).variables)

    assert found({plain, tmp_path / "gone.cmake"}, set()) == names
    assert found({plain}, {composed}) == names
    assert found({composed}, {plain}) == names | set(environ) | {ALL_NAMES}
