"""What a region consists of and where its tensors lie: parameters, outputs, constants, buffers; knows no operator.

A call writes its result into the output that it is, if it is one. What is neither input nor output lies among the
buffers, which share memory where their lifetimes allow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.op import Op
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order_over
from relaybuild.lower.memory_plan import Lifetime, plan
from relaybuild.partition.backend import flat_types
from relaybuild.partition.c_values import c_array, c_type


@dataclass(frozen=True)
class Buffer:
    """A tensor as the region function sees it: `name` is a C expression for the address of its first element.

    Elements lie in row-major order. `is_constant` is true where they are the same at every call: in a constant of the
    body, or in an input that is a weight.
    """

    name: str
    type: TensorType
    is_constant: bool = False

    @property
    def ctype(self) -> str:
        """The C type of an element."""
        return c_type(self.type.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, all numbers."""
        return self.type.static_shape

    @property
    def num_elements(self) -> int:
        """How many elements it has, perhaps none."""
        return self.type.num_elements

    @property
    def num_bytes(self) -> int:
        """What all elements take."""
        return self.type.num_elements * self.type.itemsize


@dataclass(frozen=True)
class Step:
    """One call, the tensors that it reads, and those that it writes."""

    call: Call
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]

    @property
    def name(self) -> str:
        """The operator's name, or the composite function's."""
        return self.call.op_name or composite_name(self.call)


@dataclass(frozen=True)
class RegionLayout:
    """What a region consists of, and where everything lies."""

    steps: tuple[Step, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: Mapping[str, Sequence[str]]
    """Lines that define each, by its name."""
    placed: tuple[tuple[Buffer, int], ...]
    """What lies among the buffers, and at which byte."""
    buffer_bytes: int
    copies: tuple[tuple[Buffer, Buffer], ...]
    """Values that are no call's own output: from, to."""


def read_layout(function: Function, symbol: str, constants: Collection[int]) -> RegionLayout:
    """The layout of a region's function; inputs whose numbers are in `constants` are the same at every call.

    Raises UnsupportedError for a body that is not dataflow, and for shapes that are not numbers.
    """
    reader = _Reader(function, symbol, constants)
    results = reader.read()
    outputs, copies = _place_outputs(results)
    placed, total = _place_buffers(reader.steps)
    return RegionLayout(
        tuple(step.placed() for step in reader.steps),
        tuple(value.buffer() for value in reader.inputs),
        outputs,
        reader.constants,
        placed,
        total,
        tuple((value.buffer(), out) for value, out in copies),
    )


def no_code(symbol: str, node: Expr, what: str) -> UnsupportedError:
    """The error for a node of a region that there is no C for."""
    return UnsupportedError(
        f"the code generator of region '{symbol}' has no C for {what}", where=str(node.span) if node.span else None
    )


def composite_name(call: Call) -> str:
    """The name of the composite function that is called, or "" where none is."""
    name = call.op.attrs.get("Composite") if isinstance(call.op, Function) else None
    return str(name) if name else ""


@dataclass(eq=False)
class _Value:
    """A tensor while the function is read: the step that makes it, the last one that reads it, where it comes to lie.

    Without a `name` it is made by a step and has no place yet.
    """

    type: TensorType
    first: int
    last: int
    name: str = ""
    is_constant: bool = False

    def buffer(self) -> Buffer:
        return Buffer(self.name, self.type, self.is_constant)


@dataclass(frozen=True)
class _OpenStep:
    """A step whose tensors may have no place yet."""

    call: Call
    inputs: tuple[_Value, ...]
    outputs: tuple[_Value, ...]

    def placed(self) -> Step:
        inputs, outputs = (tuple(value.buffer() for value in each) for each in (self.inputs, self.outputs))
        return Step(self.call, inputs, outputs)


class _Reader:
    """Follows a function's body, operands first, and notes which tensors each node's value is made of."""

    def __init__(self, function: Function, symbol: str, weights: Collection[int]) -> None:
        self.steps: list[_OpenStep] = []
        self.inputs: list[_Value] = []
        self.constants: dict[str, list[str]] = {}
        self._function = function
        self._symbol = symbol
        self._weights = weights
        self._values: dict[int, tuple[_Value, ...]] = {}
        self._addresses: dict[tuple[str, bytes], str] = {}

    def read(self) -> tuple[_Value, ...]:
        """The tensors of the function's result."""
        for param in self._function.params:
            self._values[id(param)] = tuple(self._input(kind) for kind in self._tensors(param))
        order = list(post_order_over([self._function.body], _operands))
        let_values = {id(node.var): node.value for node in order if isinstance(node, Let)}
        for node in order:
            if id(node) in let_values:
                self._values[id(node)] = self._values[id(let_values[id(node)])]
            elif id(node) not in self._values:
                self._values[id(node)] = self._value(node)
        return self._values[id(self._function.body)]

    def _value(self, node: Expr) -> tuple[_Value, ...]:
        if isinstance(node, Call) and (isinstance(node.op, Op) or composite_name(node)):
            return self._call(node)
        if isinstance(node, Constant):
            return (self._constant(node),)
        if isinstance(node, Tuple):
            return tuple(value for each in node.fields for value in self._values[id(each)])
        if isinstance(node, TupleGetItem):
            return self._field(node)
        if isinstance(node, Let):
            return self._values[id(node.body)]
        what = f"the variable '{node.name_hint}'" if isinstance(node, Var) else f"a {type(node).__name__}"
        raise no_code(self._symbol, node, what)

    def _call(self, call: Call) -> tuple[_Value, ...]:
        number = len(self.steps)
        inputs = tuple(value for each in call.args for value in self._values[id(each)])
        for value in inputs:
            value.last = number
        outputs = tuple(_Value(kind, number, number) for kind in self._tensors(call))
        self.steps.append(_OpenStep(call, inputs, outputs))
        return outputs

    def _field(self, node: TupleGetItem) -> tuple[_Value, ...]:
        kind = node.tuple_value.checked_type
        assert isinstance(kind, TupleType)
        start = sum(len(flat_types(each)) for each in kind.fields[: node.index])
        return self._values[id(node.tuple_value)][start : start + len(flat_types(kind.fields[node.index]))]

    def _input(self, kind: TensorType) -> _Value:
        number = len(self.inputs)
        is_constant = number in self._weights
        self.inputs.append(_Value(kind, -1, -1, f"in_{number}", is_constant))
        return self.inputs[-1]

    def _constant(self, node: Constant) -> _Value:
        key = (node.dtype, node.data.tobytes())
        address = self._addresses.get(key)
        if address is None:
            name = f"{self._symbol}_const_{len(self.constants)}"
            self.constants[name], address = c_array(name, node.data)
            self._addresses[key] = address
        return _Value(node.tensor_type, -1, -1, address, is_constant=True)

    def _tensors(self, node: Expr) -> tuple[TensorType, ...]:
        found = flat_types(node.checked_type)
        for kind in found:
            if not kind.is_static:
                raise no_code(self._symbol, node, f"a tensor of type {kind}: its shape must be numbers")
        return found


def _operands(node: Expr) -> Sequence[Expr]:
    """What a node's value is made of; a composite function is its vendor's to look into."""
    return node.args if isinstance(node, Call) and composite_name(node) else node.children()


def _place_outputs(results: Sequence[_Value]) -> tuple[tuple[Buffer, ...], list[tuple[_Value, Buffer]]]:
    """The outputs, in which calls write their results at once, and what has to be copied into them."""
    outputs = tuple(Buffer(f"out_{number}", value.type) for number, value in enumerate(results))
    copies: list[tuple[_Value, Buffer]] = []
    for value, output in zip(results, outputs):
        if value.name:
            copies.append((value, output))
        else:
            value.name = output.name
    return outputs, copies


def _place_buffers(steps: Sequence[_OpenStep]) -> tuple[tuple[tuple[Buffer, int], ...], int]:
    """Names and places for what lies in no output, and the bytes that all takes."""
    values = [value for step in steps for value in step.outputs if not value.name]
    for number, value in enumerate(values):
        value.name = f"buf_{number}"
    buffers = [value.buffer() for value in values]
    offsets, total = plan(
        [Lifetime(max(each.num_bytes, 1), value.first, value.last) for each, value in zip(buffers, values)]
    )
    return tuple(zip(buffers, offsets)), total
