"""What the tests of partitioning share: compilers that take operators by name, and what must hold of every result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.backend import register_supports
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.passes.infra import Pass, Sequential

VECTOR = "Tensor[(3,), float32]"


def takes(tag: str, *op_names: str) -> None:
    """The compiler of a tag takes calls of these operators."""
    for op_name in op_names:
        register_supports(tag, op_name)(lambda call: True)


def begin(value: str, tag: str = "a") -> str:
    return f'annotation.compiler_begin({value}, compiler="{tag}")'


def end(value: str, tag: str = "a") -> str:
    return f'annotation.compiler_end({value}, compiler="{tag}")'


def vectors(body: str, *names: str) -> IRModule:
    """A module whose main takes vectors of three."""
    params = ", ".join(f"%{name}: {VECTOR}" for name in names)
    return infer_types(parse(f"def @main({params}) {{ {body} }}"))


def run(mod: IRModule, *passes: Pass) -> IRModule:
    """The module after the passes, which have kept types and values."""
    mod = infer_types(mod)
    after = Sequential(passes)(mod)
    verify_module(after, "typed")
    assert after["main"].checked_type == mod["main"].checked_type
    args = [_argument(param.checked_type, seed) for seed, param in enumerate(mod["main"].params)]
    _same(interpret(mod, *args), interpret(after, *args))
    return after


def partition(mod: IRModule, targets: Sequence[str] = ("a",), *, merge: bool = True, **options: Any) -> IRModule:
    """The module with regions cut out for compilers."""
    merged = [MergeCompilerRegions()] if merge else []
    return run(mod, AnnotateTarget(targets), *merged, PartitionGraph(**options))


def compiled(mod: IRModule) -> dict[str, Function]:
    """The functions that have been cut out."""
    return {name: function for name, function in mod.functions.items() if "Compiler" in function.attrs}


def op_names(root: Expr) -> list[str]:
    """The operators called, in order."""
    return [node.op_name for node in post_order(root) if isinstance(node, Call) and node.op_name]


def ops_of(mod: IRModule) -> list[list[str]]:
    """The operators of each function that has been cut out, in order of their names."""
    return [op_names(function) for function in compiled(mod).values()]


def _argument(kind: Type, seed: int) -> Any:
    if isinstance(kind, TupleType):
        return tuple(_argument(each, seed + number) for number, each in enumerate(kind.fields))
    assert isinstance(kind, TensorType)
    random = np.random.default_rng(seed)
    return np.asarray(random.normal(size=kind.static_shape) * 3).astype(kind.dtype)


def _same(wanted: Any, found: Any) -> None:
    if isinstance(wanted, Iterable) and isinstance(wanted, tuple):
        assert len(wanted) == len(found)
        for a, b in zip(wanted, found):
            _same(a, b)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
