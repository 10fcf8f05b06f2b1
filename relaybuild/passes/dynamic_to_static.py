"""DynamicToStatic: operators whose shapes are arguments become those whose shapes are attributes, where they are known.

    dyn.reshape(x, Tensor[(2,), int64](6, 4))  ->  reshape(x, newshape=[6, 4])

Shapes are known where they are computed from small constants and from the shapes of tensors of static type, through
any operators. Each operator says itself what its static form is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.errors import TypeCheckError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, StaticForm
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.passes._definitions import Definitions, rewrite_definitions
from relaybuild.passes._exprs import ConstantExprs, effect_free, observes_effects, tensor_type
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo

MOST_ELEMENTS = 64
"""Larger tensors are no shapes."""


@dataclass(frozen=True, repr=False)
class DynamicToStatic(FunctionPass):
    """Types become more precise on the way."""

    info: ClassVar[PassInfo] = PassInfo("DynamicToStatic", 2, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return rewrite_definitions(ctx, func, _Shapes(observes_effects(func)).static)


@dataclass
class _Shapes:
    """The values of small tensors, by the id of the node; the node is kept with its value.

    With `effects`, only of those that can be left out without losing one.
    """

    effects: bool
    pure: ConstantExprs = field(default_factory=effect_free)
    known: dict[int, tuple[Expr, Any]] = field(default_factory=dict)

    def static(self, node: Expr, definitions: Definitions) -> Expr:
        """The static form of a call, or the node itself."""
        result = node
        if isinstance(node, Call) and isinstance(node.op, Op) and node.op.static_form is not None:
            values = [self._value(arg, definitions) for arg in node.args]
            result = _static_form(node, node.op.static_form, values)
        value = self._evaluated(result, definitions)
        if value is not None:
            self.known[id(result)] = (result, value)
        return result

    def _value(self, node: Expr, definitions: Definitions) -> Any:
        found = self.known.get(id(node)) or self.known.get(id(definitions.bound_to(node)))
        return None if found is None else found[1]

    def _evaluated(self, node: Expr, definitions: Definitions) -> Any:
        if isinstance(node, Constant):
            return node.data if not node.is_weight and node.array.size <= MOST_ELEMENTS else None
        if isinstance(node, Call) and node.op_name == "shape_of":
            return _shape(node) if not self.effects or self.pure.holds(node) else None
        values = [self._value(child, definitions) for child in node.children()]
        if not values or any(value is None for value in values) or not _is_small(node):
            return None
        if isinstance(node, Tuple):
            return tuple(values)
        if isinstance(node, TupleGetItem):
            return values[0][node.index]
        if isinstance(node, Call) and isinstance(node.op, Op):
            return node.op.evaluate(values, node.attrs if node.attrs is not None else node.op.make_attrs({}))
        return None


def _static_form(node: Call, form: StaticForm, values: Sequence[Any]) -> Expr:
    try:
        return form(node, values) or node
    except TypeCheckError:
        # the static operator may need numbers for extents of the data that are unknown
        return node


def _shape(node: Call) -> Any:
    kind, attrs = tensor_type(node.args[0]), node.attrs
    dtype = getattr(attrs, "dtype", "int64")
    return np.array(kind.static_shape, dtype) if kind is not None and kind.is_static else None


def _is_small(node: Expr) -> bool:
    kind = node.checked_type if node.has_type else None
    fields = kind.fields if isinstance(kind, TupleType) else (kind,)
    return all(
        isinstance(item, TensorType) and item.is_static and item.num_elements <= MOST_ELEMENTS for item in fields
    )
