"""Turns a region into a C unit that describes it to the runtime beside this file; does not know oneDNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.contrib.dnnl.operations import Operand, Operation, PostOp, operation_of
from relaybuild.contrib.dnnl.patterns import PATTERNS
from relaybuild.contrib.dnnl.supports import supports
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.op import Op
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit
from relaybuild.partition.c_text import Port
from relaybuild.partition.c_values import c_number
from relaybuild.partition.csource_layout import Buffer, RegionLayout, Step, no_code, read_layout
from relaybuild.partition.csource_text import packed_function

_PATTERN_NAMES = frozenset(entry.name for entry in PATTERNS)


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The unit of one region. Raises UnsupportedError for a body that is not dataflow, and for calls of anything that
    the backend does not take."""
    layout = read_layout(function, options.symbol, options.constants)
    for step in layout.steps:
        _check(step, options.symbol)
    unit = SourceUnit(options.symbol, _text(layout, options), hot=False)
    return GeneratedCode(units=(unit,), stateful=True)


def _check(step: Step, symbol: str) -> None:
    """Raise for a call that only a mark made by hand can have brought here."""
    call = step.call
    answer = supports(call) if isinstance(call.op, Op) else step.name in _PATTERN_NAMES
    if answer is not True:
        raise no_code(symbol, call, f"'{step.name}'" + (f": {answer}" if answer else ""))


@dataclass(frozen=True)
class _Value:
    """A tensor of the region; `source` is the name in the runtime's header, after RB_DNNL_."""

    buffer: Buffer
    source: str

    def text(self) -> str:
        """Its RbDnnlValue."""
        data = self.buffer.name if self.source == "LITERAL" else "0"
        return f"{{RB_DNNL_{self.source}, {self.buffer.num_elements}, {data}}}"


def _values(layout: RegionLayout) -> dict[str, _Value]:
    """All tensors by name: the inputs in order, then constants and results as they come up."""
    found = {each.name: _Value(each, "WEIGHT" if each.is_constant else "INPUT") for each in layout.inputs}
    for step in layout.steps:
        for each in step.inputs:
            found.setdefault(each.name, _Value(each, "LITERAL"))
        for each in step.outputs:
            found[each.name] = _Value(each, "RESULT")
    for each, _ in layout.copies:
        found.setdefault(each.name, _Value(each, "LITERAL"))
    return found


def _text(layout: RegionLayout, options: CodegenOptions) -> str:
    symbol = options.symbol
    values = _values(layout)
    number_of = {name: number for number, name in enumerate(values)}
    copied = {out.name: value.name for value, out in layout.copies}
    outputs = [number_of[copied.get(each.name, each.name)] for each in layout.outputs]
    titles = ", ".join(dict.fromkeys(step.name for step in layout.steps))
    sections = [
        [f"/* Region {symbol}: {titles}. */", "#include <math.h>", '#include "runtime/dnnl_runtime.h"'],
        [line for lines in layout.constants.values() for line in lines],
        ["static const RbDnnlValue values[] = {", *(f"    {each.text()}," for each in values.values()), "};"],
        [
            "static const RbDnnlOperation operations[] = {",
            *(line for step in layout.steps for line in _operation_lines(step, number_of)),
            "};",
        ],
        [
            f"static const int32_t outputs[] = {{{', '.join(map(str, outputs))}}};",
            "",
            "static const RbDnnlRegion region = {",
            f"    .num_inputs = {len(layout.inputs)},",
            f"    .num_values = {len(values)},",
            f"    .num_operations = {len(layout.steps)},",
            f"    .num_outputs = {len(outputs)},",
            "    .values = values,",
            "    .operations = operations,",
            "    .outputs = outputs,",
            "};",
        ],
        _functions(layout, options),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _operation_lines(step: Step, number_of: Mapping[str, int]) -> list[str]:
    """The RbDnnlOperation of a call."""
    call, body = step.call, step.call
    names = {id(node): value.name for node, value in zip(call.args, step.inputs, strict=True)}
    if isinstance(call.op, Function):
        assert isinstance(call.op.body, Call)
        body = call.op.body
        names = {id(param): value.name for param, value in zip(call.op.params, step.inputs, strict=True)}
    operation = operation_of(body)
    numbers = {node: number_of[name] for node, name in names.items()}
    fields = _fields(operation, numbers, number_of[step.outputs[0].name])
    return [f"    /* {step.name} */", "    {", *(f"        {line}," for line in fields), "    },"]


def _fields(operation: Operation, numbers: Mapping[int, int], result: int) -> list[str]:
    """Initializers of an operation's fields; `numbers` are those of values by the ids of nodes."""

    def operand(name: str, given: Operand | None) -> list[str]:
        if given is None:
            return []
        return [f".{name} = {_operand(numbers[id(given.node)], given.shape, given.is_transposed)}"]

    posts = [_post_op(each, numbers) for each in operation.post_ops]
    return [
        f".kind = RB_DNNL_{operation.kind}",
        *operand("src", operation.src),
        *operand("weights", operation.weights),
        *operand("bias", operation.bias),
        f".dst = {_operand(result, operation.dst_shape, False)}",
        *([] if operation.kind == "PRODUCT" else _window(operation)),
        *([f".num_post_ops = {len(posts)}", f".post_ops = {{{', '.join(posts)}}}"] if posts else []),
    ]


def _window(operation: Operation) -> list[str]:
    found = {
        "strides": operation.strides,
        "dilation": operation.dilation,
        "padding": operation.padding,
        "window": operation.window,
    }
    return [f".{name} = {{{', '.join(map(str, values))}}}" for name, values in found.items() if values]


def _operand(value: int, shape: Sequence[int], is_transposed: bool) -> str:
    extents = ", ".join(map(str, shape))
    return f"{{{value}, {len(shape)}, {{{extents}}}, {int(is_transposed)}}}"


def _post_op(post_op: PostOp, numbers: Mapping[int, int]) -> str:
    alpha, beta = (c_number(each, "float32") for each in (post_op.alpha, post_op.beta))
    value = 0 if post_op.node is None else numbers[id(post_op.node)]
    return f"{{RB_DNNL_{post_op.kind}, {alpha}, {beta}, {value}}}"


def _functions(layout: RegionLayout, options: CodegenOptions) -> list[str]:
    symbol = options.symbol
    inputs = [Port(name, each.type) for name, each in zip(options.inputs, layout.inputs, strict=True)]
    outputs = [Port(name, each.type) for name, each in zip(options.outputs, layout.outputs, strict=True)]
    return [
        f"static int32_t {symbol}_call(void *self, void *const *data) {{",
        "  return rb_dnnl_run(&region, self, data);",
        "}",
        "",
        *packed_function(symbol, inputs, outputs),
        "",
        f"RB_HIDDEN int32_t {symbol}_create(const RbRegion *described, void **self) {{",
        "  (void)described;",
        "  return rb_dnnl_create(&region, self);",
        "}",
        "",
        f"RB_HIDDEN void {symbol}_destroy(void *self) {{",
        "  rb_dnnl_destroy(self);",
        "}",
    ]
