"""Graphs in the ExampleJSON format, and the module that runs them: the worked example of a backend without C code."""

from pathlib import Path

from relaybuild.contrib.example_json.codegen import generate, supports
from relaybuild.partition.backend import Backend

BACKEND = Backend(
    name="example_json",
    tag="examplejsoncompiler",
    cmake_flag="USE_EXAMPLE_JSON",
    codegen=generate,
    priority=1,
    supports=supports,
    runtime_sources=(
        "runtime/example_json.cc",
        "runtime/example_json_graph.cc",
        "runtime/example_json_kernels.cc",
    ),
    type_key="examplejson",
    folder=Path(__file__).parent,
    cmake_module="EXAMPLE_JSON",
)
