"""SimplifyInference: normalisation with given statistics becomes a multiplication and an addition.

    nn.batch_norm(x, gamma, beta, mean, var)  ->  (x * scale + shift, mean, var)
        scale = gamma * rsqrt(var + epsilon), shift = beta - mean * scale
    nn.dropout(x)                             ->  x
    nn.layer_norm, nn.instance_norm, nn.group_norm(x, gamma, beta)
                                              ->  (x - mean(x)) * rsqrt(variance(x) + epsilon) * gamma + beta
    nn.l2_normalize(x)                        ->  x / sqrt(max(sum(x * x), eps))

Scale and shift are vectors over the parameters alone: where these are constants, no arithmetic on the data is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.norms import NORMS
from relaybuild.ir.ops import batch_norm
from relaybuild.passes._exprs import effect_free, observes_effects, projected, tensor_type
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class SimplifyInference(FunctionPass):
    """Replaces operators that differ between training and inference by what they are at inference.

    `norms` says whether normalisation by the data's own moments is written out as well.
    """

    info: ClassVar[PassInfo] = PassInfo("SimplifyInference", 0)
    norms: bool = True

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        effects, pure = observes_effects(func), effect_free()
        rules = {**_RULES, **(NORMS if self.norms else {})}

        def simplified(node: Expr) -> Expr:
            if isinstance(node, Call) and node.op_name in rules:
                # parameters may be left out, and change places
                keeps = effects and not all(pure.holds(arg) for arg in node.args[1:])
                return node if keeps or tensor_type(node.args[0]) is None else rules[node.op_name](node)
            return projected(node, effects=effects)

        result = rewrite_under(ctx, func, simplified)
        assert isinstance(result, Function)
        return result


def _dropout(call: Call) -> Expr:
    return call.args[0]


_RULES: dict[str, Callable[[Call], Expr]] = {"nn.batch_norm": batch_norm.decompose, "nn.dropout": _dropout}
