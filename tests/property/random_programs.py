"""Random well-typed programs for property tests, with arguments to run them on; knows nothing of the properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType

SHAPE = (2, 4, 3, 3)
CHANNELS = SHAPE[1]
KIND = TensorType(SHAPE, "float32")
NAMES = st.sampled_from(["x", "y", "x1", "a.b", "1", "", 'q"', "let"])


class Programs:
    """Grows one program: every value in `values` has the type KIND and is in scope."""

    def __init__(self, draw: Callable[[Any], Any], values: list[Expr]) -> None:
        self.draw = draw
        self.values = values

    def pick(self) -> Expr:
        picked: Expr = self.draw(st.sampled_from(self.values))
        return picked

    def weight(self, *shape: int) -> Constant:
        seed = self.draw(st.integers(0, 3))
        return const((np.random.default_rng(seed).random(shape) + 0.5).astype("float32"))

    def scalar(self) -> Constant:
        return const(self.draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0])), "float32")

    def expression(self, steps: int, depth: int = 0) -> Expr:
        """A value of type KIND after so many steps."""
        choices = [self.unary, self.binary, self.shape, self.scaled, self.normalised, self.parts, self.clip]
        nested = [self.let, self.branch, self.closure] if depth < 2 else []
        for _ in range(steps):
            step = self.draw(st.sampled_from([*choices, *choices, *nested]))
            self.values.append(step(depth) if step in nested else step())
        return call_op("add", [self.values[-1], self.pick()])

    def unary(self) -> Expr:
        name = self.draw(st.sampled_from(["nn.relu", "tanh", "sigmoid", "negative", "copy", "nn.dropout"]))
        return call_op(name, [self.pick()])

    def binary(self) -> Expr:
        name = self.draw(st.sampled_from(["add", "multiply", "subtract", "maximum"]))
        other = self.draw(st.sampled_from([self.pick, self.scalar, lambda: self.weight(CHANNELS, 1, 1)]))
        operands = [self.pick(), other()]
        return call_op(name, operands if self.draw(st.booleans()) else operands[::-1])

    def shape(self) -> Expr:
        x = self.pick()
        flat = call_op("reshape", [x], newshape=(2, -1, 3))
        turned = call_op("transpose", [x], axes=(0, 2, 3, 1))
        back = call_op("transpose", [turned], axes=(0, 3, 1, 2))
        return self.draw(st.sampled_from([call_op("reshape", [flat], newshape=SHAPE), back]))

    def scaled(self) -> Expr:
        conv: Expr = call_op("nn.conv2d", [self.pick(), self.weight(CHANNELS, CHANNELS, 1, 1)])
        if self.draw(st.booleans()):
            conv = call_op("nn.bias_add", [conv, self.weight(CHANNELS)])
        if self.draw(st.booleans()):
            self.values.append(conv)
        scale = self.draw(st.sampled_from([self.weight(CHANNELS, 1, 1), self.scalar(), self.weight(3)]))
        return call_op("tanh", [call_op("multiply", [conv, scale])])

    def normalised(self) -> Expr:
        norm = call_op("nn.batch_norm", [self.pick(), *(self.weight(CHANNELS) for _ in range(4))])
        return TupleGetItem(norm, 0)

    def parts(self) -> Expr:
        parts = call_op("split", [self.pick()], indices_or_sections=2, axis=1)
        order = self.draw(st.permutations([0, 1]))
        return call_op("concatenate", [Tuple([TupleGetItem(parts, index) for index in order])], axis=1)

    def clip(self) -> Expr:
        limits = st.sampled_from([None, -1.0, 0.0, 0.5, 6.0])
        return call_op("clip", [self.pick()], a_min=self.draw(limits), a_max=self.draw(limits))

    def inner(self, depth: int, *extra: Expr) -> Expr:
        scope = Programs(self.draw, [*self.values, *extra])
        return scope.expression(self.draw(st.integers(0, 3)), depth + 1)

    def let(self, depth: int) -> Expr:
        name = Var(self.draw(NAMES), KIND if self.draw(st.booleans()) else None)
        value = self.inner(depth)
        if not name.has_type:
            name.set_checked_type(KIND)
        return Let(name, value, self.inner(depth, name))

    def branch(self, depth: int) -> Expr:
        cond = call_op("less", [call_op("sum", [self.pick()]), self.scalar()])
        return If(cond, self.inner(depth), self.inner(depth))

    def closure(self, depth: int) -> Expr:
        param = var(self.draw(NAMES), KIND)
        function = Function([param], self.inner(depth, param))
        first = Call(function, [self.pick()])
        return call_op("add", [first, Call(function, [self.pick()])]) if self.draw(st.booleans()) else first


@st.composite
def modules(draw: Callable[[Any], Any]) -> IRModule:
    """A module whose main takes two arrays of type KIND and returns a tuple of two."""
    params = [var(draw(NAMES), KIND), var(draw(NAMES), KIND)]
    programs = Programs(draw, list(params))
    result = programs.expression(draw(st.integers(0, 8)))
    return IRModule({"main": Function(params, Tuple([result, programs.pick()]))})


def arguments() -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
    """Two arrays for such a module."""
    random = np.random.default_rng(7)
    return tuple(random.normal(size=SHAPE).astype("float32") for _ in range(2))
