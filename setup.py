"""Builds the extension modules that load models and other modules; all metadata is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
EXAMPLE_JSON = ROOT / "relaybuild" / "contrib" / "example_json"


class BuildWithShare(build_py):
    """Copies config.cmake and cmake/ into the package, where relaybuild.build.share finds them without a checkout."""

    def run(self) -> None:
        super().run()
        for source, target in self._shared().items():
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self._shared().values()]

    def get_output_mapping(self) -> dict[str, str]:
        return {**super().get_output_mapping(), **{target: source for source, target in self._shared().items()}}

    def _shared(self) -> dict[str, str]:
        """Files relative to the root, and where they go; none for an editable installation, which uses the checkout."""
        if self.editable_mode:
            return {}
        share = Path(self.build_lib, "relaybuild", "_share")
        files = (ROOT / "config.cmake", *sorted(path for path in (ROOT / "cmake").rglob("*") if path.is_file()))
        return {str(path.relative_to(ROOT)): str(share / path.relative_to(ROOT)) for path in files}


setup(
    cmdclass={"build_py": BuildWithShare},
    ext_modules=[
        Extension(
            "relaybuild.runtime._native",
            sources=[f"relaybuild/runtime/src/{name}.c" for name in ("_native", "_library", "_arrays")],
            include_dirs=["relaybuild/runtime/include"],
            depends=[
                *(f"relaybuild/runtime/src/{name}.h" for name in ("_arrays", "_library")),
                *(f"relaybuild/runtime/include/relaybuild/{name}.h" for name in ("model", "packed", "dlpack")),
            ],
            extra_compile_args=["-std=c11", "-fvisibility=hidden"],
        ),
        # C and C++ in one module: compilers that default to C11 and C++17, or later, are asked for neither
        Extension(
            "relaybuild.runtime._modules",
            sources=[
                *(f"relaybuild/runtime/src/{name}" for name in ("_modules.cc", "module.cc")),
                *(f"relaybuild/runtime/src/{name}.c" for name in ("_arrays", "checks", "packed")),
                *sorted(path.relative_to(ROOT).as_posix() for path in EXAMPLE_JSON.glob("runtime/*.cc")),
            ],
            include_dirs=["relaybuild/runtime/include", EXAMPLE_JSON.relative_to(ROOT).as_posix()],
            depends=[
                "relaybuild/runtime/src/_arrays.h",
                *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("relaybuild/runtime/include/*/*.h*")),
                *sorted(path.relative_to(ROOT).as_posix() for path in EXAMPLE_JSON.glob("runtime/*.h")),
            ],
            extra_compile_args=["-O3", "-g0", "-fvisibility=hidden"],
            language="c++",
            # who compiles models for the host alone needs no C++ compiler
            optional=True,
        ),
    ],
)
