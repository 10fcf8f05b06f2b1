"""The base of code generators that write C: buffers, the region function, its wrapper, the packed function.

A vendor derives a class from it that says what one call is in C. It knows no operator.

The unit of a region S, in the order in which it stands there:

    includes, what was declared      whatever the vendor's calls need: functions, macros, tables
    S_const_0 ...                    the constants that stand in the function's body
    S_(inputs, outputs, buffers)     the region function: one statement for each call
    S_call(self, data)              the same over addresses by number; finds the buffers
    S_wrapper_(DLTensor *, ...)      the same over tensors, which the caller has checked
    __tvm_ffi_S                      the same as a packed function, which checks its arguments
    S_create, S_destroy              an instance's buffers, where the region needs any
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from relaybuild.errors import UnsupportedError, UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.input_shapes import leaves
from relaybuild.ir.op import Op
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order_over
from relaybuild.lower.memory_plan import ALIGNMENT, Lifetime, plan
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.c_text import Port, c_string, infos_pointer, tensor_infos
from relaybuild.partition.c_values import c_array, c_type
from relaybuild.target import chosen

_WIDTH = 120
_WORD = re.compile(r"\w+")


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
class _Step:
    call: Call
    inputs: tuple[_Value, ...]
    outputs: tuple[_Value, ...]


class CSourceCodegen(ABC):
    """Writes one region as C. Derive, implement `emit_call`, and hand `generate` to a `Backend`:

        def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
            return MyCodegen(function, options).generate()

    or register it, in a script:

        @relaybuild.register_func("relay.ext.mycompiler")
        def generate(function: Function) -> GeneratedCode:
            return MyCodegen(function).generate()

    `language` is "c" (C11) or "c++" (C++17). The region's body is dataflow: calls of operators and of composite
    functions, tuples and their fields, constants, lets. All shapes are numbers.

    Raises UnsupportedError for a body with anything else in it.
    """

    language: ClassVar[str] = "c"

    def __init__(self, function: Function, options: CodegenOptions | None = None) -> None:
        """Without options the function's own attributes and parameters say what its symbol and tensors are called."""
        self.function = function
        self.options = options or _own_options(function)
        self.symbol = self.options.symbol
        self._includes: dict[str, None] = {}
        self._declarations: dict[str, None] = {}
        self._functions: dict[tuple[str, str], str] = {}

    @abstractmethod
    def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        """The C statements of one call of an operator, a line each; whatever fails in them returns `rb_raise(...)`.

        `inputs` are the call's arguments, the fields of tuples one by one; `outputs` are its results. No output shares
        memory with another buffer.
        """

    def emit_composite(self, call: Call, name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        """The same for a call of the composite function of a pattern, whose name is given; `call.op` is the function.

        Backends with patterns override it.
        """
        raise self.unsupported(call, f"the composite function '{name}'")

    def include(self, header: str) -> None:
        """Include a header, written with its quotes or angle brackets, once."""
        self._includes.setdefault(f"#include {header}")

    def declare(self, text: str) -> None:
        """Put C text before the region function, once; it stays in the order in which it came."""
        if text:
            self._declarations.setdefault(text.strip("\n"))

    def define(self, parameters: str, body: Iterable[str], comment: str = "") -> str:
        """Define a static function that returns nothing; its name. Functions that are equal but for that are one."""
        text = "\n".join(["{", *(f"  {line}" for line in body), "}"])
        known = self._functions.get((parameters, text))
        if known is None:
            known = self._functions[parameters, text] = f"{self.symbol}_{len(self._functions)}"
            head = [f"/* {comment} */"] if comment else []
            self.declare("\n".join([*head, f"static void {known}({parameters}) {text}"]))
        return known

    def generate(self) -> GeneratedCode:
        """The region's unit, and whether its instances keep buffers."""
        layout = _read(self)
        body = [line for step in layout.steps for line in self._statements(step)]
        body += [f"memcpy({out.name}, {value.name}, {out.num_bytes});" for value, out in layout.copies if out.num_bytes]
        text = _Writer(self, layout).text(body, list(self._includes), list(self._declarations))
        unit = SourceUnit(self.symbol, text, hot=True, language=self.language)
        return GeneratedCode(units=(unit,), stateful=layout.buffer_bytes > 0)

    def unsupported(self, node: Expr, what: str) -> UnsupportedError:
        """The error for a node that a generator has no C for; `what` names it."""
        return UnsupportedError(
            f"the code generator of region '{self.symbol}' has no C for {what}",
            where=str(node.span) if node.span else None,
        )

    def _statements(self, step: _Step) -> list[str]:
        call = step.call
        inputs = [value.buffer() for value in step.inputs]
        outputs = [value.buffer() for value in step.outputs]
        if isinstance(call.op, Op):
            text = self.emit_call(call, inputs, outputs)
        else:
            text = self.emit_composite(call, _composite_name(call), inputs, outputs)
        return text.strip("\n").splitlines()


def _own_options(function: Function) -> CodegenOptions:
    symbol = function.attrs.get("global_symbol")
    if not isinstance(symbol, str):
        raise UserError(f"found the attribute 'global_symbol' {symbol!r}, expected the symbol of a region")
    inputs = [name for param in function.params for name, _ in leaves(param.name_hint, param.checked_type)]
    outputs = tuple(f"out{number}" for number, _ in enumerate(flat_types(function.body.checked_type)))
    return CodegenOptions(symbol, symbol, chosen(None), (), tuple(inputs), outputs)


@dataclass(frozen=True)
class _Layout:
    """What a region consists of, and where everything lies."""

    steps: tuple[_Step, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: Mapping[str, Sequence[str]]
    """Lines that define each, by its name."""
    placed: tuple[tuple[Buffer, int], ...]
    """What lies among the buffers, and at which byte."""
    buffer_bytes: int
    copies: tuple[tuple[Buffer, Buffer], ...]
    """Values that are no call's own output: from, to."""


def _read(generator: CSourceCodegen) -> _Layout:
    reader = _Reader(generator)
    results = reader.read()
    outputs, copies = _place_outputs(results)
    placed, total = _place_buffers(reader.steps)
    return _Layout(
        tuple(reader.steps),
        tuple(value.buffer() for value in reader.inputs),
        outputs,
        reader.constants,
        placed,
        total,
        tuple((value.buffer(), out) for value, out in copies),
    )


class _Reader:
    """Follows a function's body, operands first, and notes which tensors each node's value is made of."""

    def __init__(self, generator: CSourceCodegen) -> None:
        self.steps: list[_Step] = []
        self.inputs: list[_Value] = []
        self.constants: dict[str, list[str]] = {}
        self._generator = generator
        self._function = generator.function
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
        if isinstance(node, Call) and (isinstance(node.op, Op) or _composite_name(node)):
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
        raise self._generator.unsupported(node, what)

    def _call(self, call: Call) -> tuple[_Value, ...]:
        number = len(self.steps)
        inputs = tuple(value for each in call.args for value in self._values[id(each)])
        for value in inputs:
            value.last = number
        outputs = tuple(_Value(kind, number, number) for kind in self._tensors(call))
        self.steps.append(_Step(call, inputs, outputs))
        return outputs

    def _field(self, node: TupleGetItem) -> tuple[_Value, ...]:
        kind = node.tuple_value.checked_type
        assert isinstance(kind, TupleType)
        start = sum(len(flat_types(each)) for each in kind.fields[: node.index])
        return self._values[id(node.tuple_value)][start : start + len(flat_types(kind.fields[node.index]))]

    def _input(self, kind: TensorType) -> _Value:
        number = len(self.inputs)
        is_constant = number in self._generator.options.constants
        self.inputs.append(_Value(kind, -1, -1, f"in_{number}", is_constant))
        return self.inputs[-1]

    def _constant(self, node: Constant) -> _Value:
        key = (node.dtype, node.data.tobytes())
        address = self._addresses.get(key)
        if address is None:
            name = f"{self._generator.symbol}_const_{len(self.constants)}"
            self.constants[name], address = c_array(name, node.data)
            self._addresses[key] = address
        return _Value(node.tensor_type, -1, -1, address, is_constant=True)

    def _tensors(self, node: Expr) -> tuple[TensorType, ...]:
        found = flat_types(node.checked_type)
        for kind in found:
            if not kind.is_static:
                raise self._generator.unsupported(node, f"a tensor of type {kind}: its shape must be numbers")
        return found


def _operands(node: Expr) -> Sequence[Expr]:
    """What a node's value is made of; a composite function is its vendor's to look into."""
    return node.args if isinstance(node, Call) and _composite_name(node) else node.children()


def _composite_name(call: Call) -> str:
    """The name of the composite function that is called, or "" where none is."""
    name = call.op.attrs.get("Composite") if isinstance(call.op, Function) else None
    return str(name) if name else ""


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


def _place_buffers(steps: Sequence[_Step]) -> tuple[tuple[tuple[Buffer, int], ...], int]:
    """Names and places for what lies in no output, and the bytes that all takes."""
    values = [value for step in steps for value in step.outputs if not value.name]
    for number, value in enumerate(values):
        value.name = f"buf_{number}"
    buffers = [value.buffer() for value in values]
    offsets, total = plan(
        [Lifetime(max(each.num_bytes, 1), value.first, value.last) for each, value in zip(buffers, values)]
    )
    return tuple(zip(buffers, offsets)), total


@dataclass(frozen=True)
class _Writer:
    """Writes the unit around the statements of a region."""

    generator: CSourceCodegen
    layout: _Layout

    def text(self, body: Sequence[str], includes: Sequence[str], declarations: Sequence[str]) -> str:
        symbol, words = self.generator.symbol, set(_WORD.findall("\n".join(body)))
        sections = [
            [f"/* Region {symbol}: {self._operators()}. */", *self._includes(includes)],
            *([text] for text in declarations),
            [line for name, lines in self.layout.constants.items() if name in words for line in lines],
            self._region_function(body, words),
            self._call_function(),
            self._wrapper(),
            self._packed_function(),
            self._state() if self.layout.buffer_bytes else [],
        ]
        return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"

    def _operators(self) -> str:
        names = [step.call.op_name or _composite_name(step.call) for step in self.layout.steps]
        return ", ".join(dict.fromkeys(names)).replace("*/", "* /") or "no calls"

    def _includes(self, asked: Sequence[str]) -> list[str]:
        standard = ["#include <math.h>", "#include <stdint.h>", "#include <stdlib.h>", "#include <string.h>"]
        own = '#include "relaybuild/packed.h"'
        return [*standard, own, *(line for line in asked if line not in (*standard, own))]

    def _region_function(self, body: Sequence[str], words: Container[str]) -> list[str]:
        layout = self.layout
        buffers = [f"{each.ctype} *{each.name} = ({each.ctype} *)(buffers + {at});" for each, at in layout.placed]
        unread = [f"(void){each.name};" for each in self._named() if each.name not in words]
        parameters = [
            *(f"const {each.ctype} *{each.name}" for each in layout.inputs),
            *(f"{each.ctype} *{each.name}" for each in layout.outputs),
            *(["unsigned char *buffers"] if layout.buffer_bytes else []),
        ]
        head = f"static int32_t {self.generator.symbol}_("
        return [
            f"{_wrapped(head, parameters or ['void'])}) {{",
            *(f"  {line}" if line else "" for line in (*buffers, *unread, *body)),
            "  return 0;",
            "}",
        ]

    def _named(self) -> tuple[Buffer, ...]:
        """What the region function has a variable for."""
        return (*self.layout.inputs, *self.layout.outputs, *(each for each, _ in self.layout.placed))

    def _call_function(self) -> list[str]:
        layout, symbol = self.layout, self.generator.symbol
        arguments = [
            *(f"(const {each.ctype} *)data[{number}]" for number, each in enumerate(layout.inputs)),
            *(f"({each.ctype} *)data[{number}]" for number, each in enumerate(layout.outputs, len(layout.inputs))),
            *(["buffers"] if layout.buffer_bytes else []),
        ]
        head = f"static int32_t {symbol}_call(void *self, void *const *data) {{"
        if not layout.buffer_bytes:
            return [
                head,
                "  (void)self;",
                *(["  (void)data;"] if not arguments else []),
                f"{_wrapped(f'  return {symbol}_(', arguments)});",
                "}",
            ]
        return [
            "/* `self` is the buffers, or NULL: then they are made for this call. */",
            head,
            f"  unsigned char *buffers = (unsigned char *)(self ? self : {self._allocation()});",
            "  if (!buffers) {",
            f"    return {self._no_memory()};",
            "  }",
            f"{_wrapped(f'  const int32_t status = {symbol}_(', arguments)});",
            "  if (!self) {",
            "    free(buffers);",
            "  }",
            "  return status;",
            "}",
        ]

    def _allocation(self) -> str:
        return f"aligned_alloc({ALIGNMENT}, {self.layout.buffer_bytes})"

    def _no_memory(self) -> str:
        text = f"out of memory: region '{self.generator.symbol}' needs {self.layout.buffer_bytes} bytes of buffers"
        return f"rb_raise({c_string(text)})"

    def _wrapper(self) -> list[str]:
        layout, symbol = self.layout, self.generator.symbol
        names = [each.name for each in (*layout.inputs, *layout.outputs)]
        parameters = [f"DLTensor *{name}" for name in names] or ["void"]
        addresses = [f"(char *){name}->data + {name}->byte_offset," for name in names] or ["NULL,"]
        return [
            f"{_wrapped(f'{self._linkage()}RB_HIDDEN int32_t {symbol}_wrapper_(', parameters)}) {{",
            "  void *data[] = {",
            *(f"      {address}" for address in addresses),
            "  };",
            f"  return {symbol}_call(NULL, data);",
            "}",
        ]

    def _packed_function(self) -> list[str]:
        layout, symbol, options = self.layout, self.generator.symbol, self.generator.options
        inputs = [Port(name, each.type) for name, each in zip(options.inputs, layout.inputs, strict=True)]
        outputs = [Port(name, each.type) for name, each in zip(options.outputs, layout.outputs, strict=True)]
        inputs_name, outputs_name = f"{symbol}_inputs", f"{symbol}_outputs"
        parameters = ["void *self", "const RbValue *args", "int32_t num_args", "RbValue *result"]
        return [
            *tensor_infos(inputs_name, inputs),
            *tensor_infos(outputs_name, outputs),
            f"static const RbSignature {symbol}_signature = {{",
            f"    {c_string(symbol)},",
            f"    {len(inputs)},",
            f"    {len(outputs)},",
            f"    {infos_pointer(inputs_name, inputs)},",
            f"    {infos_pointer(outputs_name, outputs)},",
            "};",
            "",
            f"{_wrapped(f'{self._linkage()}RB_EXPORT int32_t __tvm_ffi_{symbol}(', parameters)}) {{",
            f"  void *data[{max(len(inputs) + len(outputs), 1)}];",
            "  (void)result;",
            f"  if (rb_unpack(&{symbol}_signature, args, num_args, data)) {{",
            "    return -1;",
            "  }",
            f"  return {symbol}_call(self, data);",
            "}",
        ]

    def _state(self) -> list[str]:
        symbol, linkage = self.generator.symbol, self._linkage()
        return [
            f"{linkage}RB_HIDDEN int32_t {symbol}_create(const RbRegion *region, void **self) {{",
            "  (void)region;",
            f"  *self = {self._allocation()};",
            f"  return *self ? 0 : {self._no_memory()};",
            "}",
            "",
            f"{linkage}RB_HIDDEN void {symbol}_destroy(void *self) {{",
            "  free(self);",
            "}",
        ]

    def _linkage(self) -> str:
        return 'extern "C" ' if self.generator.language == "c++" else ""


def _wrapped(head: str, items: Sequence[str]) -> str:
    """`head` and items between commas, over as many lines as needed, later ones under the first item."""
    lines = [head]
    for number, item in enumerate(items):
        word = item if number == len(items) - 1 else f"{item},"
        if number and len(lines[-1]) + len(word) + 4 > _WIDTH:
            lines.append(" " * len(head) + word)
        else:
            lines[-1] += word if not number else f" {word}"
    return "\n".join(lines)
