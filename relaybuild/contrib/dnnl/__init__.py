"""Convolutions and matrix products with what follows them, by oneDNN."""

from pathlib import Path

from relaybuild.contrib.dnnl.codegen import generate
from relaybuild.contrib.dnnl.patterns import PATTERNS, TAG
from relaybuild.contrib.dnnl.supports import supports
from relaybuild.partition.backend import Backend

BACKEND = Backend(
    name="dnnl",
    tag=TAG,
    cmake_flag="USE_DNNL",
    codegen=generate,
    priority=20,
    patterns=PATTERNS,
    supports=supports,
    runtime_sources=("runtime/dnnl_runtime.cc",),
    folder=Path(__file__).parent,
    cmake_module="DNNL",
)
