"""annotation.compiler_begin and annotation.compiler_end: where a value enters and leaves a region of a compiler.

Both return their argument, of any type. A begin stands around what a region is given, an end around what it gives;
partitioning takes them away again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.types import Type

BEGIN = "annotation.compiler_begin"
END = "annotation.compiler_end"


@dataclass(frozen=True)
class CompilerAttrs(Attrs):
    """`compiler` is the tag of a backend, "default" for the host."""

    compiler: str


def infer_type(types: Sequence[Type], attrs: CompilerAttrs) -> Type:
    """The type of the argument."""
    return types[0]


def evaluate(values: Sequence[Any], attrs: CompilerAttrs) -> Any:
    """The argument."""
    return values[0]


def decompose(call: Call) -> Expr:
    """The argument."""
    return call.args[0]


OPS = tuple(
    Op(
        name,
        1,
        infer_type,
        evaluate,
        OpKind.OPAQUE,
        CompilerAttrs,
        arg_names=("data",),
        decompose=decompose,
    )
    for name in (BEGIN, END)
)
