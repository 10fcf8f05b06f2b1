"""A C code generator for element-wise arithmetic: small, complete, and the one that a vendor copies."""

from pathlib import Path

from relaybuild.contrib.codegen_c.codegen import generate, supports
from relaybuild.partition.backend import Backend

BACKEND = Backend(
    name="codegen_c",
    tag="ccompiler",
    cmake_flag="USE_CODEGENC",
    codegen=generate,
    supports=supports,
    folder=Path(__file__).parent,
    cmake_module="CODEGENC",
)
