"""Recurrent layers, written out step by step: the length of the sequences is known when a model is imported.

The products with the inputs of all steps are one; a step has that with the state, and what is done by gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.ops._standard import standard
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

State: TypeAlias = "tuple[Expr, ...]"
"""What one step leaves to the next, [batch, hidden] each; the first is its output."""
Step: TypeAlias = "Callable[[_Direction, Expr, State], State]"
"""Makes a state of the input's part of all gates, [batch, gates * hidden], and the state before."""


@converter("RNN")
def rnn(node: Node) -> Sequence[Expr]:
    return _layer(node, ("Tanh",), gates=1, step=_rnn_step)


@converter("GRU")
def gru(node: Node) -> Sequence[Expr]:
    return _layer(node, ("Sigmoid", "Tanh"), gates=3, step=_gru_step)


@converter("LSTM")
def lstm(node: Node) -> Sequence[Expr]:
    return _layer(node, ("Sigmoid", "Tanh", "Tanh"), gates=4, step=_lstm_step, initials=(5, 6))


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: its weights, and how it computes.

    `weight` is [gates * hidden, inputs], `recurrent` [gates * hidden, hidden], `bias` [gates * hidden] what is added to
    the products with either; `reset_bias` is [hidden] and `peepholes` those of input, output and forget gate.
    """

    node: Node
    hidden: int
    activations: Sequence[Callable[[Expr], Expr]]
    weight: Expr
    recurrent: Expr
    bias: Expr | None
    reset_bias: Expr | None
    peepholes: Sequence[Expr]
    is_reverse: bool

    def activate(self, number: int, data: Expr) -> Expr:
        """Apply an activation of the layer to what is clipped first, if it is to be."""
        bound = self.node.float_attr("clip", 0.0)
        clipped = self.node.call("clip", data, a_min=-bound, a_max=bound) if bound else data
        return self.activations[number](clipped)

    def state_part(self, state: Expr) -> Expr:
        """The product of a state with the weights of all gates."""
        return self.node.call("nn.dense", state, self.recurrent)

    def gates(self, data: Expr) -> list[Expr]:
        """What is [batch, gates * hidden] by gate."""
        return self.node.parts(data, (self.hidden,) * (data.tensor_type.static_shape[1] // self.hidden), 1)

    def look(self, gate: Expr, number: int, cell: Expr) -> Expr:
        """A gate that sees the cell, too, where there are peepholes."""
        if not self.peepholes:
            return gate
        return self._sum(gate, self._product(self.peepholes[number], cell))

    def mixed(self, gate: Expr, left: Expr, right: Expr) -> Expr:
        """gate * left + (1 - gate) * right."""
        rest = self.node.call("subtract", self.node.like(1, gate), gate)
        return self._sum(self._product(gate, left), self._product(rest, right))

    def _sum(self, left: Expr, right: Expr) -> Expr:
        return self.node.call("add", left, right)

    def _product(self, left: Expr, right: Expr) -> Expr:
        return self.node.call("multiply", left, right)


def _rnn_step(way: _Direction, given: Expr, state: State) -> State:
    return (way.activate(0, way.node.call("add", given, way.state_part(state[0]))),)


def _gru_step(way: _Direction, given: Expr, state: State) -> State:
    """Update and reset gate, then the new state; with `linear_before_reset` what is reset is its product."""
    node, (hidden,) = way.node, state
    from_input = way.gates(given)
    both, last = node.parts(way.recurrent, (2 * way.hidden, way.hidden), 0)
    if is_linear := node.flag("linear_before_reset"):
        *from_state, product = way.gates(way.state_part(hidden))
    else:
        from_state = way.gates(node.call("nn.dense", hidden, both))
    update, reset = (way.activate(0, node.call("add", *pair)) for pair in zip(from_input, from_state))
    if is_linear:
        biased = product if way.reset_bias is None else node.call("nn.bias_add", product, way.reset_bias, axis=1)
        product = node.call("multiply", reset, biased)
    else:
        product = node.call("nn.dense", node.call("multiply", reset, hidden), last)
    new = way.activate(1, node.call("add", from_input[2], product))
    return (way.mixed(update, hidden, new),)


def _lstm_step(way: _Direction, given: Expr, state: State) -> State:
    """Input, output, forget and cell gate, in ONNX's order; the output gate sees the new cell."""
    node, (hidden, cell) = way.node, state
    enter, leave, keep, new = way.gates(node.call("add", given, way.state_part(hidden)))
    enter = way.activate(0, way.look(enter, 0, cell))
    new = way.activate(1, new)
    if node.flag("input_forget"):
        cell = way.mixed(enter, new, cell)
    else:
        keep = way.activate(0, way.look(keep, 2, cell))
        cell = node.call("add", node.call("multiply", keep, cell), node.call("multiply", enter, new))
    leave = way.activate(0, way.look(leave, 1, cell))
    return node.call("multiply", leave, way.activations[2](cell)), cell


def _layer(
    node: Node, activations: Sequence[str], gates: int, step: Step, initials: Sequence[int] = (5,)
) -> list[Expr]:
    """All outputs: those of all steps, [steps, directions, batch, hidden], and the last state's tensors, each
    [directions, batch, hidden]; where `layout` is 1 the batch comes first."""
    is_batch_first = node.flag("layout")
    _check_shapes(node, gates, initials, is_batch_first=is_batch_first)
    data = node.transpose(node.get(0), (1, 0, 2)) if is_batch_first else node.get(0)
    batch = data.tensor_type.static_shape[1]
    found = []
    for number, way in enumerate(_directions(node, activations)):
        state = tuple(_initial(node, index, number, batch, way.hidden, is_batch_first) for index in initials)
        found.append(_run(way, data, state, step))
    sequences, states = zip(*found)
    last = [_joined(node, [node.expand_dims(each, 0) for each in parts], 0) for parts in zip(*states)]
    outputs = [_joined(node, sequences, 1), *last]
    if not is_batch_first:
        return outputs
    return [node.transpose(outputs[0], (2, 0, 1, 3)), *(node.transpose(each, (1, 0, 2)) for each in last)]


def _check_shapes(node: Node, gates: int, initials: Sequence[int], *, is_batch_first: bool) -> None:
    """Raise UserError for inputs whose shapes do not belong together."""
    for index in (0, 2):
        if node.rank(index) != 3:
            raise node.fail(f"input {index} has shape {node.shape(index)}, expected rank 3")
    if 0 in (*node.shape(0), *node.shape(2)):
        raise node.unsupported("a layer or a sequence without elements")
    count, rows, _ = node.shape(2)
    hidden = rows // gates
    batch, inputs = node.shape(0)[0 if is_batch_first else 1], node.shape(0)[2]
    state = (batch, count, hidden) if is_batch_first else (count, batch, hidden)
    expected: dict[int, tuple[int, ...]] = {
        2: (count, gates * hidden, hidden),
        1: (count, rows, inputs),
        3: (count, 2 * rows),
        4: (batch,),
        **dict.fromkeys(initials, state),
        7: (count, 3 * hidden),
    }
    for index, shape in expected.items():
        if node.find(index) is not None and node.shape(index) != shape:
            raise node.fail(f"input {index} has shape {node.shape(index)}, expected {shape}")


def _run(way: _Direction, data: Expr, state: State, step: Step) -> tuple[Expr, State]:
    """The outputs of all steps, [steps, 1, batch, hidden], and the last state."""
    node = way.node
    steps, batch, _ = data.tensor_type.static_shape
    given = _input_parts(way, data)
    outputs: list[Expr] = [given[0]] * steps
    for time in reversed(range(steps)) if way.is_reverse else range(steps):
        new = step(way, given[time], state)
        if (is_within := _is_within(node, time, steps, batch)) is not None:
            output = node.call("where", is_within, new[0], node.like(0, new[0]))
            state = tuple(node.call("where", is_within, *pair) for pair in zip(new, state))
        else:
            output, state = new[0], new
        outputs[time] = node.reshape(output, (1, 1, batch, way.hidden))
    return _joined(node, outputs, 0), state


def _input_parts(way: _Direction, data: Expr) -> list[Expr]:
    """What the inputs add to all gates, and the bias, by step."""
    node = way.node
    steps, batch, inputs = data.tensor_type.static_shape
    product = node.call("nn.dense", node.reshape(data, (steps * batch, inputs)), way.weight)
    if way.bias is not None:
        product = node.call("nn.bias_add", product, way.bias, axis=1)
    return node.parts(product, (batch,) * steps, 0)


def _is_within(node: Node, time: int, steps: int, batch: int) -> Expr | None:
    """Whether each sequence, [batch, 1], has a step; None where all have."""
    lengths = node.find(4)
    if lengths is None:
        return None
    known = node.folder.evaluate(lengths)
    if known is not None and (known.reshape(-1) > time).all():
        return None
    counts = node.reshape(node.cast(lengths, "int64"), (batch, 1))
    return node.call("less", node.const(time, "int64"), counts)


def _directions(node: Node, activations: Sequence[str]) -> Iterator[_Direction]:
    """The directions that a layer has, each with its weights."""
    direction = node.str_attr("direction", "forward")
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if reverse is None:
        raise node.fail(f"direction is '{direction}', expected forward, reverse or bidirectional")
    count, _, hidden = node.shape(2)
    if count != len(reverse) or node.int_attr("hidden_size", hidden) != hidden:
        raise node.fail(f"weights of shape {node.shape(2)} do not fit direction '{direction}' or 'hidden_size'")
    functions = _activations(node, [*activations] * count)
    for number, is_reverse in enumerate(reverse):
        bias, reset_bias = _biases(node, number, hidden)
        peepholes = node.find(7)
        yield _Direction(
            node,
            hidden,
            functions[number * len(activations) : (number + 1) * len(activations)],
            _of_direction(node, node.get(1), number),
            _of_direction(node, node.get(2), number),
            bias,
            reset_bias,
            () if peepholes is None else node.parts(_of_direction(node, peepholes, number), (hidden,) * 3, 0),
            is_reverse,
        )


def _biases(node: Node, number: int, hidden: int) -> tuple[Expr | None, Expr | None]:
    """What is added whatever the gates are, and what the reset gate of a GRU is multiplied with."""
    given = node.find(3)
    if given is None:
        return None, None
    bias = _of_direction(node, given, number)
    rows = bias.tensor_type.static_shape[0] // 2
    of_input, of_state = node.parts(bias, (rows, rows), 0)
    if not node.flag("linear_before_reset"):
        return node.call("add", of_input, of_state), None
    sizes = rows - hidden, hidden
    (gates, new), (state_gates, reset) = (node.parts(each, sizes, 0) for each in (of_input, of_state))
    return _joined(node, [node.call("add", gates, state_gates), new], 0), reset


def _of_direction(node: Node, tensor: Expr, number: int) -> Expr:
    """One direction's part of a tensor, whose first axis is that of directions, without that axis."""
    count, *rest = tensor.tensor_type.static_shape
    return node.reshape(node.parts(tensor, (1,) * count, 0)[number], rest)


def _initial(node: Node, index: int, number: int, batch: int, hidden: int, is_batch_first: bool) -> Expr:
    """A direction's state before the first step: [batch, hidden], nought where the input is left out."""
    given = node.find(index)
    if given is None:
        return node.call("full", shape=(batch, hidden), fill_value=0, dtype=node.dtype(0))
    return _of_direction(node, node.transpose(given, (1, 0, 2)) if is_batch_first else given, number)


def _activations(node: Node, defaults: Sequence[str]) -> list[Callable[[Expr], Expr]]:
    """The activations of all directions, in order; those with parameters take the next of the attributes' lists."""
    names = node.strs_attr("activations", defaults)
    if len(names) != len(defaults):
        raise node.fail(f"{len(names)} activations, expected {len(defaults)}")
    alphas, betas = (iter(node.floats_attr(f"activation_{name}", ())) for name in ("alpha", "beta"))
    return [_activation(node, name, alphas, betas) for name in names]


def _activation(node: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Callable[[Expr], Expr]:
    """An activation by its name: the operator of that name with its defaults, where nothing is given."""
    attrs = {}
    for key, values in (("alpha", alphas), ("beta", betas)):
        if name in _PARAMETERS[key] and (value := next(values, None)) is not None:
            attrs[key] = value
    if name in ("Affine", "ScaledTanh"):
        return _scaled(node, attrs.get("alpha", 1.0), attrs.get("beta", 0.0 if name == "Affine" else 1.0), name)
    if name not in _ACTIVATIONS:
        raise node.unsupported(f"the activation '{name}'")
    return lambda data: standard(node, name, data, attrs)


def _scaled(node: Node, alpha: float, beta: float, name: str) -> Callable[[Expr], Expr]:
    """alpha * x + beta, or alpha * tanh(beta * x)."""

    def affine(data: Expr) -> Expr:
        return node.call("add", node.call("multiply", data, node.like(alpha, data)), node.like(beta, data))

    def scaled_tanh(data: Expr) -> Expr:
        inner = node.call("tanh", node.call("multiply", data, node.like(beta, data)))
        return node.call("multiply", inner, node.like(alpha, data))

    return affine if name == "Affine" else scaled_tanh


# the functions that the standard of these layers names
_PARAMETERS = {
    "alpha": ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"),
    "beta": ("Affine", "HardSigmoid", "ScaledTanh"),
}
_ACTIVATIONS = frozenset(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh", *_PARAMETERS["alpha"]))


def _joined(node: Node, parts: Sequence[Expr], axis: int) -> Expr:
    return parts[0] if len(parts) == 1 else node.call_tuple("concatenate", parts, axis=axis)
