"""Parts of patterns that look at types and values: calls that a backend takes, sums, numbers; knows no backend.

A bias is a vector along one axis of what it is added to, written as `add` or as `nn.bias_add`:

    with_bias(taken("nn.dense", supports), axis=-1)

and `added(call, value)` says afterwards what such a call adds to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.op import get_op
from relaybuild.ir.ops.bias_add import BiasAddAttrs
from relaybuild.ir.pattern import CallPattern, ConstantPattern, DFPattern, Graph, OpPattern, wildcard
from relaybuild.ir.pattern.matcher import Subject, Way
from relaybuild.ir.types import TensorType


def is_vector_along(kind: TensorType, result: TensorType, axis: int) -> bool:
    """Whether a tensor that is broadcast to `result` has one element for each place along an axis of it.

    No vector lies along an axis that the result does not have: a sum may be of any rank.
    """
    if not -result.rank <= axis < result.rank:
        return False
    place = axis % result.rank - (result.rank - kind.rank)
    along = kind.shape[place] if place >= 0 else 1
    others = (extent for number, extent in enumerate(kind.shape) if number != place)
    return kind.rank <= result.rank and along == result.shape[axis] and all(extent == 1 for extent in others)


def taken(op_name: str, supports: Callable[[Call], bool | str], *args: DFPattern) -> DFPattern:
    """A call of an operator of which a predicate holds, such as a backend's; over anything, unless `args` are given."""
    op = get_op(op_name)
    return _Taken(OpPattern(op), args or tuple(wildcard() for _ in range(op.num_inputs)), supports)


def is_number(value: float) -> DFPattern:
    """A constant of one element, which is this number to within six digits; it stays within what is cut out."""
    return _Number(value)


def with_bias(value: DFPattern, axis: int) -> DFPattern:
    """A pattern's value, of which nothing else is made, plus a vector along an axis of it."""
    bias = wildcard()
    return _Addition(OpPattern(get_op("add")), (value, bias), axis) | _Addition(
        OpPattern(get_op("nn.bias_add")), (value, bias), axis
    )


def with_sum(value: DFPattern) -> DFPattern:
    """A pattern's value, of which nothing else is made, plus anything of its type."""
    return _Addition(OpPattern(get_op("add")), (value, wildcard()), None)


def added(call: Call, value: Expr) -> Expr:
    """The operand that an addition adds to one of its operands, `value`."""
    first, second = call.args
    return second if first is value else first


@dataclass(frozen=True, eq=False)
class _Taken(CallPattern):
    """A call of which a predicate holds."""

    supports: Callable[[Call], bool | str] = bool

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        ways = super().ways(subject, graph)
        return ways if ways and isinstance(subject, Call) and self.supports(subject) is True else ()

    def wants(self) -> str:
        return f"{super().wants()} that the backend takes"

    def found(self, subject: Subject) -> str:
        reason = self.supports(subject) if isinstance(subject, Call) else False
        return f"{super().found(subject)}: {reason}" if isinstance(reason, str) else super().found(subject)


@dataclass(frozen=True, eq=False)
class _Number(ConstantPattern):
    """A constant of one element near `value`."""

    value: float = 0.0

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, Constant) or subject.tensor_type.num_elements != 1:
            return ()
        return ((),) if isclose(float(subject.data.reshape(-1)[0]), self.value, rel_tol=1e-6) else ()

    def wants(self) -> str:
        return f"the number {self.value:.7g}"


@dataclass(frozen=True, eq=False)
class _Addition(CallPattern):
    """An addition to what the first part matches; along `axis`, or of a tensor of the result's type for None."""

    axis: int | None = None

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return tuple(way for way in super().ways(subject, graph) if self._fits(subject, way, graph))

    def _fits(self, subject: Subject, way: Way, graph: Graph) -> bool:
        _, (_, value), (_, other) = way
        # what is added may itself be made of the value, which would be computed twice
        if len(graph.users[id(value)]) > 1:
            return False
        operands = [each for each in (subject, value, other) if isinstance(each, Expr) and each.has_type]
        kinds = [each.checked_type for each in operands if isinstance(each.checked_type, TensorType)]
        if len(kinds) < 3 or kinds[0] != kinds[1]:
            return False
        result, _, addend = kinds
        if self.axis is None:
            return addend == result
        if isinstance(subject, Call) and isinstance(subject.attrs, BiasAddAttrs):
            return subject.attrs.axis % result.rank == self.axis % result.rank
        return is_vector_along(addend, result, self.axis)

    def wants(self) -> str:
        what = "of the same type" if self.axis is None else f"of a vector along axis {self.axis}"
        return f"an addition {what} to a value that is used once"
