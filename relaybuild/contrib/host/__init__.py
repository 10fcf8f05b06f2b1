"""The host: complete over all operators that have kernels, always on, last in priority."""

from relaybuild.ir.expr import Function
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode


def _generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    # templates are imported where a kernel is generated: with a cache that is seldom
    from relaybuild.contrib.host.codegen import generate

    return generate(function, options)


BACKEND = Backend("host", "host", "", _generate, priority=-1)
