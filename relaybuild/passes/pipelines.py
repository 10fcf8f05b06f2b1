"""The orders in which passes run; each entry stands where it does for a reason. Knows no backend.

No pass of a pipeline evaluates arithmetic on weights, so that what comes out depends on the program's structure alone.
"""

from __future__ import annotations

from relaybuild.passes.canonicalize_ops import CanonicalizeOps
from relaybuild.passes.dead_code_elimination import DeadCodeElimination
from relaybuild.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.fold_scale_axis import FoldScaleAxis
from relaybuild.passes.infer_type import InferType
from relaybuild.passes.infra import Sequential
from relaybuild.passes.simplify_expr import SimplifyExpr
from relaybuild.passes.simplify_inference import SimplifyInference


def default_pipeline() -> Sequential:
    """What every model goes through before partitioning; the context's level says which of it runs."""
    passes = (
        # all others look at types, and keep them
        InferType(),
        # before anything looks for multiplications and additions: batch norm becomes both; other norms are left whole,
        # for backends have kernels or forms of their own for them
        SimplifyInference(norms=False),
        # fewer operators for the rules below
        CanonicalizeOps(),
        # shape arithmetic and decided branches, so that the rules below see constants
        FoldConstant(fold_weights=False),
        # brings scales next to the operators they scale
        SimplifyExpr(),
        # needs the scales of batch norms as multiplications behind convolutions
        FoldScaleAxis(read_weights=False),
        # gathers the biases and shifts which scales had kept apart
        SimplifyExpr(),
        # sums of scalars that gathering made
        FoldConstant(fold_weights=False),
        # last of those that make equal nodes
        EliminateCommonSubexpr(),
        # what nothing uses by now
        DeadCodeElimination(),
    )
    return Sequential(passes, name="default")
