"""A C code generator for element-wise arithmetic: small, complete, and the one that a vendor copies."""

from pathlib import Path

from relaybuild.ir.expr import Call, Function
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode


def _generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    # what is found by every compilation, and seldom on, is imported where it is asked
    from relaybuild.contrib.codegen_c.codegen import generate

    return generate(function, options)


def _supports(call: Call) -> bool | str:
    from relaybuild.contrib.codegen_c.codegen import supports

    return supports(call)


BACKEND = Backend(
    name="codegen_c",
    tag="ccompiler",
    cmake_flag="USE_CODEGENC",
    codegen=_generate,
    supports=_supports,
    folder=Path(__file__).parent,
    cmake_module="CODEGENC",
)
