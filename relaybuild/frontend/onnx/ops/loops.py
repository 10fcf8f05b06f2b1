"""Loops: written out step by step where the steps are known at import, else a function that calls itself last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import GraphProto

from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, Var
from relaybuild.ir.types import FuncType, TensorType, TupleType

_MOST_NODES = 20_000
"""How many nodes a loop is written out to."""


@converter("Loop")
def loop(node: Node) -> Sequence[Expr]:
    """States after the last step, then what the steps collect, for which the number of steps must be known."""
    found = _Loop(node, node.graph_attr("body"), [node.get(index) for index in range(2, len(node.inputs))])
    found.check()
    most, is_on = found.known_limits()
    if most == 0 or is_on is False:
        return [*found.states, *found.nothing_collected()]
    if most is not None and is_on and (result := found.written_out(most)) is not None:
        return result
    if any(node.outputs[len(found.states) :]):
        why = "is large" if most is not None and is_on else "is computed from the model's inputs"
        raise node.unsupported(
            f"a loop whose number of steps {why}, and which collects values of them (output {len(found.states)} and"
            " on),"
        )
    return found.called()


@dataclass(frozen=True)
class _Loop:
    """A loop and the states that it begins with."""

    node: Node
    body: GraphProto
    states: Sequence[Expr]

    def check(self) -> None:
        """Raise UserError where the body does not have the inputs and outputs of a loop's."""
        count = len(self.states)
        if len(self.body.input) != count + 2 or len(self.body.output) < count + 1:
            raise self.node.fail(
                f"its body has {len(self.body.input)} inputs and {len(self.body.output)} outputs, expected {count + 2}"
                f" inputs and {count + 1} outputs or more"
            )

    def known_limits(self) -> tuple[float | None, bool | None]:
        """(steps at most, whether there is a first one), each None where that is computed from the model's inputs."""
        node = self.node
        most: float | None = math.inf if node.find(0) is None else None
        if node.find(0) is not None and node.folder.is_closed(node.get(0)):
            most = max(int(node.scalar(0, "M")), 0)
        is_on: bool | None = True if node.find(1) is None else None
        if node.find(1) is not None and node.folder.is_closed(node.get(1)):
            is_on = bool(node.scalar(1, "cond"))
        return most, is_on

    def written_out(self, most: float) -> Sequence[Expr] | None:
        """The outputs by all steps; None where it is not known how many there are, or where there are many."""
        states, collected = self.states, []
        step, budget = 0, _MOST_NODES
        while step < most:
            budget -= len(self.body.node) + 1
            if budget < 0:
                return None
            go, states, others = self.step(self.node.const(step, "int64"), self.node.const(True, "bool"), states, {})
            collected.append(others)
            step += 1
            if not self.node.folder.is_closed(go) and step < most:
                return None
            if step < most and not self.node.folder.evaluate(go):
                break
        return [*states, *(self.node.stack(parts, 0) for parts in zip(*collected))]

    def nothing_collected(self) -> Sequence[Expr]:
        """What no step has collected: tensors without elements, of the shapes that a step would give."""
        node, count = self.node, len(self.states)
        if not any(node.outputs[count:]):
            return []
        _, _, first = self.step(node.const(0, "int64"), node.const(True, "bool"), self.states, {})
        kinds = [each.tensor_type for each in first]
        return [node.call("full", shape=(0, *kind.static_shape), fill_value=0, dtype=kind.dtype) for kind in kinds]

    def called(self) -> Sequence[Expr]:
        """The states, by a function that calls itself for the next step, in whose place the host has a loop."""
        node, span = self.node, self.node.span
        outer = {name: value for name, value in node.outer(self.body).items() if not isinstance(value, Constant)}
        held = {name: Var(name, value.checked_type, span) for name, value in outer.items()}
        step, go = Var("step", _SCALAR_INT, span), Var("go", _SCALAR_BOOL, span)
        states = [Var(f"state{index}", state.checked_type, span) for index, state in enumerate(self.states)]
        again, after, _ = self.step(step, go, states, held)
        self._check_types(after)

        kinds = tuple(each.checked_type for each in (step, go, *states))
        function = Var("loop", FuncType(kinds, TupleType(kinds[2:])), span)
        limit = None if node.find(0) is None else node.cast(node.reshape(node.get(0), ()), "int64")
        if limit is not None and not isinstance(limit, Constant):
            outer["limit of steps"], limit = limit, held.setdefault("limit of steps", Var("limit", _SCALAR_INT, span))
        goes_on = go if limit is None else node.call("logical_and", go, node.call("less", step, limit))
        following = Call(function, [node.call("add", step, node.const(1, "int64")), again, *after], None, span)
        body = If(goes_on, following, Tuple(states, span), span)
        begins = node.const(True, "bool") if node.find(1) is None else node.reshape(node.get(1), ())
        first = Call(function, [node.const(0, "int64"), begins, *self.states], None, span)
        whole: Expr = Let(function, Function([step, go, *states], body, TupleType(kinds[2:]), span=span), first, span)
        for name, value in outer.items():
            whole = Let(held[name], value, whole, span)
        return node.fields(whole, len(states))

    def step(
        self, number: Expr, go: Expr, states: Sequence[Expr], held: Mapping[str, Expr]
    ) -> tuple[Expr, Sequence[Expr], Sequence[Expr]]:
        """(whether another step follows, the states after one, what it collects); `held` replaces outer values."""
        names = [value.name for value in self.body.input]
        outputs = self.node.inline(self.body, {**held, **dict(zip(names, (number, go, *states)))})
        return self.node.reshape(outputs[0], ()), outputs[1 : len(states) + 1], outputs[len(states) + 1 :]

    def _check_types(self, after: Sequence[Expr]) -> None:
        for index, (old, new) in enumerate(zip(self.states, after)):
            if old.checked_type != new.checked_type:
                raise self.node.unsupported(
                    f"a loop whose number of steps is not known, of which state {index} is a {old.checked_type} before"
                    f" a step and a {new.checked_type} after it"
                )


@converter("Scan", since=9)
def scan(node: Node) -> Sequence[Expr]:
    """States after the last step, then what the steps collect, over sequences that are known in length."""
    body, count = node.graph_attr("body"), node.int_attr("num_scan_inputs")
    inputs = node.all_inputs()
    states, collected = inputs[: len(inputs) - count], []
    outputs = len(body.output) - len(states)
    if not 0 < count <= len(inputs) or len(body.input) != len(inputs) or outputs < 0:
        raise node.fail(
            f"its body has {len(body.input)} inputs and {len(body.output)} outputs, and num_scan_inputs is {count}:"
            f" that does not go with {len(inputs)} inputs"
        )
    sequences = [
        _elements(node, data, axis, bool(reverse))
        for data, axis, reverse in zip(inputs[-count:], *_ways(node, "scan_input", count))
    ]
    steps = len(sequences[0])
    if any(len(each) != steps for each in sequences):
        raise node.fail(f"its sequences are of different lengths: {', '.join(str(len(each)) for each in sequences)}")
    if not steps or steps * (len(body.node) + 1) > _MOST_NODES:
        raise node.unsupported(f"a Scan of {steps} steps of {len(body.node)} nodes")
    names = [value.name for value in body.input]
    for elements in zip(*sequences):
        results = node.inline(body, dict(zip(names, (*states, *elements))))
        states = list(results[: len(states)])
        collected.append(results[len(states) :])
    ways = zip(zip(*collected), *_ways(node, "scan_output", outputs))
    return [*states, *(_stacked(node, parts, axis, bool(reverse)) for parts, axis, reverse in ways)]


def _ways(node: Node, what: str, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Along which axes sequences go, and whether from the end."""
    found = tuple(node.find_ints_attr(f"{what}_{name}") or (0,) * count for name in ("axes", "directions"))
    if any(len(each) != count for each in found):
        raise node.fail(f"attributes '{what}_axes' and '{what}_directions' do not have {count} elements each")
    return found[0], found[1]


def _elements(node: Node, data: Expr, axis: int, is_reverse: bool) -> list[Expr]:
    shape = data.tensor_type.static_shape
    place = node.axis(axis, len(shape))
    rest = (*shape[:place], *shape[place + 1 :])
    found = [node.reshape(part, rest) for part in node.parts(data, (1,) * shape[place], place)]
    return found[::-1] if is_reverse else found


def _stacked(node: Node, parts: Sequence[Expr], axis: int, is_reverse: bool) -> Expr:
    place = node.axis(axis, parts[0].tensor_type.rank + 1)
    return node.stack(parts[::-1] if is_reverse else parts, place)


_SCALAR_INT, _SCALAR_BOOL = TensorType((), "int64"), TensorType((), "bool")
