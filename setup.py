"""Builds the extension module that loads compiled models; all metadata is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "relaybuild.runtime._native",
            sources=["relaybuild/runtime/src/_native.c"],
            include_dirs=["relaybuild/runtime/include"],
            depends=["relaybuild/runtime/include/relaybuild/model.h", "relaybuild/runtime/include/relaybuild/dlpack.h"],
            extra_compile_args=["-std=c11"],
        )
    ]
)
