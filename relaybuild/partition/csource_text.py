"""The C text of a region around the statements of its calls; knows neither operators nor how tensors were placed.

The unit of a region S, in the order in which it stands there:

    includes, declarations           what the statements need: functions, macros, tables
    S_const_0 ...                    the constants that stand in the function's body
    S_(inputs, outputs, buffers)     the region function: the statements
    S_call(self, data)               the same over addresses by number; finds the buffers
    S_wrapper_(DLTensor *, ...)      the same over tensors, which the caller has checked
    __tvm_ffi_S                      the same as a packed function, which checks its arguments
    S_create, S_destroy              an instance's buffers, where the region needs any
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.lower.memory_plan import ALIGNMENT
from relaybuild.partition.c_text import Port, c_string, infos_pointer, tensor_infos
from relaybuild.partition.csource_layout import Buffer, RegionLayout

_WIDTH = 120
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class RegionText:
    """A region's unit around the statements of its calls.

    `inputs` and `outputs` are the names of its tensors, for messages; `is_cpp` is true of a unit in C++.
    """

    symbol: str
    layout: RegionLayout
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_cpp: bool

    def text(self, body: Sequence[str], includes: Sequence[str], declarations: Sequence[str]) -> str:
        """The unit: `body` are the lines of all calls, `declarations` what they need behind the includes."""
        symbol, words = self.symbol, set(_WORD.findall("\n".join(body)))
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
        names = [step.name for step in self.layout.steps]
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
        head = f"static int32_t {self.symbol}_("
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
        layout, symbol = self.layout, self.symbol
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
        text = f"out of memory: region '{self.symbol}' needs {self.layout.buffer_bytes} bytes of buffers"
        return f"rb_raise({c_string(text)})"

    def _wrapper(self) -> list[str]:
        layout, symbol = self.layout, self.symbol
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
        layout = self.layout
        inputs = [Port(name, each.type) for name, each in zip(self.inputs, layout.inputs, strict=True)]
        outputs = [Port(name, each.type) for name, each in zip(self.outputs, layout.outputs, strict=True)]
        return packed_function(self.symbol, inputs, outputs, self._linkage())

    def _state(self) -> list[str]:
        symbol, linkage = self.symbol, self._linkage()
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
        return 'extern "C" ' if self.is_cpp else ""


def packed_function(symbol: str, inputs: Sequence[Port], outputs: Sequence[Port], linkage: str = "") -> list[str]:
    """Lines that define the packed function of a region S over `int32_t S_call(void *self, void *const *data)`.

    `data` has the addresses of the inputs, then of the outputs, all checked.
    """
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
        f"{_wrapped(f'{linkage}RB_EXPORT int32_t __tvm_ffi_{symbol}(', parameters)}) {{",
        f"  void *data[{max(len(inputs) + len(outputs), 1)}];",
        "  (void)result;",
        f"  if (rb_unpack(&{symbol}_signature, args, num_args, data)) {{",
        "    return -1;",
        "  }",
        f"  return {symbol}_call(self, data);",
        "}",
    ]


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
