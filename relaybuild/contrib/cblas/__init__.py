"""Matrix products by a BLAS: OpenBLAS, MKL, or any library with the C interface.

What the backend does is imported where it is asked: it is found by every compilation, and seldom on.
"""

from pathlib import Path

from relaybuild.ir.expr import Call, Function
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode


def _generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    from relaybuild.contrib.cblas.codegen import generate

    return generate(function, options)


def _patterns() -> tuple[object, ...]:
    from relaybuild.contrib.cblas.patterns import PATTERNS

    return PATTERNS


def _supports(call: Call) -> bool | str:
    from relaybuild.contrib.cblas.patterns import supports

    return supports(call)


BACKEND = Backend(
    name="cblas",
    tag="cblas",
    cmake_flag="USE_CBLAS",
    codegen=_generate,
    priority=10,
    patterns=_patterns,
    supports=_supports,
    folder=Path(__file__).parent,
    cmake_module="CBLAS",
)
