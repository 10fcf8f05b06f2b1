"""Convolutions and matrix products with what follows them, by oneDNN.

What the backend does is imported where it is asked: it is found by every compilation, and seldom on.
"""

from pathlib import Path

from relaybuild.ir.expr import Call, Function
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode


def _generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    from relaybuild.contrib.dnnl.codegen import generate

    return generate(function, options)


def _patterns() -> tuple[object, ...]:
    from relaybuild.contrib.dnnl.patterns import PATTERNS

    return PATTERNS


def _supports(call: Call) -> bool | str:
    from relaybuild.contrib.dnnl.supports import supports

    return supports(call)


BACKEND = Backend(
    name="dnnl",
    tag="dnnl",
    cmake_flag="USE_DNNL",
    codegen=_generate,
    priority=20,
    patterns=_patterns,
    supports=_supports,
    runtime_sources=("runtime/dnnl_runtime.cc",),
    folder=Path(__file__).parent,
    cmake_module="DNNL",
)
