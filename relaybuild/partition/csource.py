"""The base of code generators that write C: a vendor derives a class that says what one call is. It knows no operator.

`csource_layout.py` says where the tensors of a region lie, `csource_text.py` what its unit is made of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from relaybuild.errors import UnsupportedError, UserError
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.input_shapes import leaves
from relaybuild.ir.op import Op
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.csource_layout import Buffer as Buffer
from relaybuild.partition.csource_layout import Step, composite_name, no_code, read_layout
from relaybuild.partition.csource_text import RegionText
from relaybuild.target import chosen


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
        """Define a static function that returns nothing; its name. Functions of equal parameters and bodies are one."""
        text = "\n".join(["{", *(f"  {line}" for line in body), "}"])
        known = self._functions.get((parameters, text))
        if known is None:
            known = self._functions[parameters, text] = f"{self.symbol}_{len(self._functions)}"
            head = [f"/* {comment} */"] if comment else []
            self.declare("\n".join([*head, f"static void {known}({parameters}) {text}"]))
        return known

    def generate(self) -> GeneratedCode:
        """The region's unit, and whether its instances keep buffers."""
        layout = read_layout(self.function, self.symbol, self.options.constants)
        body = [line for step in layout.steps for line in self._statements(step)]
        body += [f"memcpy({out.name}, {value.name}, {out.num_bytes});" for value, out in layout.copies if out.num_bytes]
        region = RegionText(self.symbol, layout, self.options.inputs, self.options.outputs, self.language == "c++")
        text = region.text(body, list(self._includes), list(self._declarations))
        unit = SourceUnit(self.symbol, text, hot=True, language=self.language)
        return GeneratedCode(units=(unit,), stateful=layout.buffer_bytes > 0)

    def unsupported(self, node: Expr, what: str) -> UnsupportedError:
        """The error for a node that a generator has no C for; `what` names it."""
        return no_code(self.symbol, node, what)

    def _statements(self, step: Step) -> list[str]:
        emit = self.emit_call if isinstance(step.call.op, Op) else self._emit_composite
        return emit(step.call, step.inputs, step.outputs).strip("\n").splitlines()

    def _emit_composite(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        return self.emit_composite(call, composite_name(call), inputs, outputs)


def _own_options(function: Function) -> CodegenOptions:
    symbol = function.attrs.get("global_symbol")
    if not isinstance(symbol, str):
        raise UserError(f"found the attribute 'global_symbol' {symbol!r}, expected the symbol of a region")
    inputs = [name for param in function.params for name, _ in leaves(param.name_hint, param.checked_type)]
    outputs = tuple(f"out{number}" for number, _ in enumerate(flat_types(function.body.checked_type)))
    return CodegenOptions(symbol, symbol, chosen(None), (), tuple(inputs), outputs)
