"""Matrix products by a BLAS: OpenBLAS, MKL, or any library with the C interface."""

from pathlib import Path

from relaybuild.contrib.cblas.codegen import generate
from relaybuild.contrib.cblas.patterns import PATTERNS, TAG, supports
from relaybuild.partition.backend import Backend

BACKEND = Backend(
    name="cblas",
    tag=TAG,
    cmake_flag="USE_CBLAS",
    codegen=generate,
    priority=10,
    patterns=PATTERNS,
    supports=supports,
    folder=Path(__file__).parent,
    cmake_module="CBLAS",
)
