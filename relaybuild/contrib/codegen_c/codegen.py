"""Turns a region of element-wise arithmetic into C, a function for each call; knows no buffers, no packed functions.

What an element of each operator's result is stands in `operators.py`; the loops around it are made in `loops.py`, and
everything else comes from `CSourceCodegen`.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.codegen_c.loops import loop_axes, loop_nest
from relaybuild.contrib.codegen_c.operators import DTYPES, find_rule
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import CodegenOptions, GeneratedCode
from relaybuild.partition.csource import Buffer, CSourceCodegen


def supports(call: Call) -> bool | str:
    """Whether the generator takes a call of an operator, or why not."""
    rule = find_rule(call.op_name)
    if rule is None:
        return False
    for kind in [*(each.checked_type for each in call.args), call.checked_type]:
        if not isinstance(kind, TensorType) or not kind.is_static:
            return f"found {kind}, expected tensors whose shapes are numbers"
    dtype = call.tensor_type.dtype
    if dtype not in DTYPES:
        return f"found {dtype}, expected {', '.join(DTYPES)}"
    return rule.refusal(call) or True


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The C of one region."""
    return _ElementwiseCodegen(function, options).generate()


class _ElementwiseCodegen(CSourceCodegen):
    def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        rule = find_rule(call.op_name)
        if rule is None:
            raise self.unsupported(call, f"'{call.op_name}'")
        self.declare(rule.declaration(call))
        (out,) = outputs
        names = ["out", *"ab"[: len(inputs)]]
        axes = loop_axes(out.shape, [each.shape for each in inputs])
        parameters = [f"const {each.ctype} *restrict {name}" for each, name in zip(inputs, names[1:])]
        body = loop_nest(axes, names, f"{{out}} = {rule.expression(call)};")
        comment = f"{call.op_name}: {', '.join(str(each.type) for each in inputs)}"
        name = self.define(", ".join([*parameters, f"{out.ctype} *restrict out"]), body, comment)
        return f"{name}({', '.join(each.name for each in (*inputs, out))});"
