"""Graphs in the ExampleJSON format, and the module that runs them: the worked example of a backend without C code."""

from pathlib import Path

from relaybuild.ir.expr import Call, Function
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode


def _generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    # what is found by every compilation, and seldom on, is imported where it is asked
    from relaybuild.contrib.example_json.codegen import generate

    return generate(function, options)


def _supports(call: Call) -> bool | str:
    from relaybuild.contrib.example_json.codegen import supports

    return supports(call)


BACKEND = Backend(
    name="example_json",
    tag="examplejsoncompiler",
    cmake_flag="USE_EXAMPLE_JSON",
    codegen=_generate,
    priority=1,
    supports=_supports,
    runtime_sources=(
        "runtime/example_json.cc",
        "runtime/example_json_graph.cc",
        "runtime/example_json_kernels.cc",
    ),
    type_key="examplejson",
    folder=Path(__file__).parent,
    cmake_module="EXAMPLE_JSON",
)
