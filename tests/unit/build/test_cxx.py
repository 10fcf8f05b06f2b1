"""The C++ compiler that goes with a C compiler: what is found; its libraries show no C++ and can be unloaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.cxx import EXPORTS, EXPORTS_FILE, probe_cxx
from relaybuild.build.toolchain import probe
from relaybuild.errors import ToolError, UserError

SOURCE = """
#include <memory>
#include <stdexcept>
#include <string>
extern "C" __attribute__((visibility("default"))) int answer(int x) {
  try {
    auto text = std::make_shared<std::string>(std::to_string(x));
    throw std::runtime_error(*text);
  } catch (const std::exception &error) {
    return std::string(error.what()) == "42" ? 42 : 0;
  }
}
"""
LOADER = """
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
static bool catches_its_own(int x) {
  try {
    auto text = std::make_shared<std::string>(std::to_string(x));
    throw std::runtime_error(*text);
  } catch (const std::exception &error) {
    return error.what() == std::to_string(x);
  }
}
int main(int count, char **paths) {
  for (int i = 0; i < 2 * count; ++i) {
    void *library = dlopen(paths[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) return 1;
    const auto answer = reinterpret_cast<int (*)(int)>(dlsym(library, "answer"));
    if (!catches_its_own(i) || answer(42) != 42) return 2;
    if (dlclose(library)) return 3;
    if (dlopen(paths[1], RTLD_NOW | RTLD_NOLOAD)) return 4;
  }
  return 0;
}
"""


@pytest.mark.parametrize(("c", "cxx"), [("gcc", "g++"), ("clang", "clang++")])
def test_libraries_keep_to_themselves(c: str, cxx: str, tmp_path: Path) -> None:
    """They can be unloaded, show no C++, and catch what they throw, in a program that has all of it a second time."""
    if shutil.which(c) is None or shutil.which(cxx) is None:
        pytest.skip(f"there is no {c} with {cxx}")
    toolchain = probe(c)
    compiler = probe_cxx(toolchain)
    assert Path(compiler.command[-1]).name == cxx
    if not (compiler.static_runtime and compiler.hides_runtime):
        pytest.skip(f"{cxx} cannot keep its runtime to itself here")
    (tmp_path / "answer.cc").write_text(SOURCE)
    (tmp_path / "loader.cc").write_text(LOADER)
    (tmp_path / EXPORTS_FILE).write_text(EXPORTS)
    library, loader = tmp_path / "answer.so", tmp_path / "loader"
    target = tmp_path / "answer.o"
    subprocess.run([*compiler.command, *compiler.cflags, "-c", str(tmp_path / "answer.cc"), "-o", target], check=True)
    subprocess.run([*compiler.link_command, *toolchain.ldflags, target, "-o", library], check=True, cwd=tmp_path)
    shown = subprocess.check_output(["nm", "-D", "--defined-only", "-P", library], text=True)
    assert [line.split()[0] for line in shown.splitlines()] == ["answer"]
    subprocess.run([cxx, "-rdynamic", tmp_path / "loader.cc", "-o", loader, "-ldl"], check=True)
    assert subprocess.run([loader, library], check=False).returncode == 0


def test_the_variable_names_another_compiler(tmp_path: Path) -> None:
    toolchain = probe()
    with pytest.raises(UserError, match="the variable CXX"):
        probe_cxx(toolchain, environ={"PATH": "/usr/bin:/bin", "CXX": "no-such-compiler"})
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match="cannot make a shared library"):
        probe_cxx(toolchain, environ={"PATH": "/usr/bin:/bin", "CXX": str(broken)})
