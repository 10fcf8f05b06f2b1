"""Turns a region into a C unit that describes it to the runtime beside this file; knows neither oneDNN nor patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaybuild.contrib.dnnl.operations import Operand, Operation, PostOp, operation_of
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order_over
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.c_text import Port, c_string, infos_pointer, tensor_infos
from relaybuild.partition.c_values import c_array, c_number


@dataclass(frozen=True)
class _Value:
    """A tensor of the region; `source` is the name in the runtime's header, after RB_DNNL_."""

    source: str
    num_elements: int
    literal: Constant | None = None


@dataclass(frozen=True)
class _Step:
    """An operation, what it is called, and the values of its nodes by their ids."""

    title: str
    operation: Operation
    number_of: dict[int, int]
    result: int


@dataclass
class _Region:
    """A function's body as a list of operations over numbered values, the inputs first."""

    inputs: list[TensorType] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    types: list[TensorType] = field(default_factory=list)

    def add(self, source: str, kind: TensorType, literal: Constant | None = None) -> int:
        """A further value; its number."""
        self.values.append(_Value(source, kind.num_elements, literal))
        self.types.append(kind)
        return len(self.values) - 1


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The unit of one region. Raises UnsupportedError for what is neither dataflow nor one of the backend's calls."""
    region = _read(function, options)
    unit = SourceUnit(options.symbol, _text(region, options), hot=False)
    return GeneratedCode(units=(unit,), stateful=True)


def _read(function: Function, options: CodegenOptions) -> _Region:
    region = _Region()
    numbers: dict[int, tuple[int, ...]] = {}
    for param in function.params:
        kinds = flat_types(param.checked_type)
        start = len(region.values)
        for kind in kinds:
            region.add("WEIGHT" if len(region.values) in options.constants else "INPUT", kind)
        numbers[id(param)] = tuple(range(start, len(region.values)))
        region.inputs += kinds
    order = list(post_order_over([function.body], _operands))
    bound = {id(node.var): node.value for node in order if isinstance(node, Let)}
    for node in order:
        if id(node) in bound:
            numbers[id(node)] = numbers[id(bound[id(node)])]
        elif id(node) not in numbers:
            numbers[id(node)] = _numbers_of(node, region, numbers, options)
    region.outputs = numbers[id(function.body)]
    return region


def _operands(node: Expr) -> Sequence[Expr]:
    """What a node is computed from: composite functions are not looked into."""
    return node.args if isinstance(node, Call) else node.children()


def _numbers_of(
    node: Expr, region: _Region, numbers: dict[int, tuple[int, ...]], options: CodegenOptions
) -> tuple[int, ...]:
    """The values that a node is made of."""
    if isinstance(node, Call):
        return (_add_call(node, region, numbers),)
    if isinstance(node, Constant):
        return (region.add("LITERAL", node.tensor_type, node),)
    if isinstance(node, Tuple):
        return tuple(number for each in node.fields for number in numbers[id(each)])
    if isinstance(node, Let):
        return numbers[id(node.body)]
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value.checked_type, TupleType):
        fields = node.tuple_value.checked_type.fields
        start = sum(len(flat_types(each)) for each in fields[: node.index])
        return numbers[id(node.tuple_value)][start : start + len(flat_types(fields[node.index]))]
    raise UnsupportedError(
        f"region '{options.symbol}' has a {type(node).__name__}, for which oneDNN has nothing",
        where=str(node.span) if node.span else None,
    )


def _add_call(call: Call, region: _Region, numbers: dict[int, tuple[int, ...]]) -> int:
    number_of = {id(arg): numbers[id(arg)][0] for arg in call.args}
    body: Expr = call
    title = call.op_name
    if isinstance(call.op, Function):
        number_of = {id(param): number_of[id(arg)] for param, arg in zip(call.op.params, call.args, strict=True)}
        body = call.op.body
        title = str(call.op.attrs.get("Composite"))
    assert isinstance(body, Call)
    result = region.add("RESULT", call.tensor_type)
    region.steps.append(_Step(title, operation_of(body), number_of, result))
    return result


def _text(region: _Region, options: CodegenOptions) -> str:
    symbol = options.symbol
    titles = ", ".join(dict.fromkeys(step.title for step in region.steps))
    sections = [
        [f"/* Region {symbol}: {titles}. */", "#include <math.h>", '#include "runtime/dnnl_runtime.h"'],
        _value_lines(region),
        ["static const RbDnnlOperation operations[] = {", *_operation_lines(region), "};"],
        [f"static const int32_t outputs[] = {{{', '.join(map(str, region.outputs))}}};"],
        [
            "static const RbDnnlRegion region = {",
            f"    .num_inputs = {len(region.inputs)},",
            f"    .num_values = {len(region.values)},",
            f"    .num_operations = {len(region.steps)},",
            f"    .num_outputs = {len(region.outputs)},",
            "    .values = values,",
            "    .operations = operations,",
            "    .outputs = outputs,",
            "};",
        ],
        _function_lines(region, options),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _value_lines(region: _Region) -> list[str]:
    arrays: list[str] = []
    rows: list[str] = []
    for number, value in enumerate(region.values):
        data = ""
        if value.literal is not None:
            lines, address = c_array(f"literal_{number}", value.literal.data)
            arrays += lines
            data = f", {address}"
        rows.append(f"    {{RB_DNNL_{value.source}, {value.num_elements}{data or ', 0'}}},")
    return [*arrays, "static const RbDnnlValue values[] = {", *rows, "};"]


def _operation_lines(region: _Region) -> list[str]:
    lines: list[str] = []
    for step in region.steps:
        lines += [f"    /* {step.title} */", "    {", *(f"        {line}" for line in _fields(step)), "    },"]
    return lines


def _fields(step: _Step) -> list[str]:
    operation = step.operation

    def operand(name: str, given: Operand | None) -> list[str]:
        if given is None:
            return []
        return [f".{name} = {_operand_text(step.number_of[id(given.node)], given.shape, given.is_transposed)},"]

    posts = [_post_op_text(each, step.number_of) for each in operation.post_ops]
    return [
        f".kind = RB_DNNL_{operation.kind},",
        *operand("src", operation.src),
        *operand("weights", operation.weights),
        *operand("bias", operation.bias),
        f".dst = {_operand_text(step.result, operation.dst_shape, False)},",
        *([] if operation.kind == "PRODUCT" else _window_lines(operation)),
        *([f".num_post_ops = {len(posts)},", f".post_ops = {{{', '.join(posts)}}},"] if posts else []),
    ]


def _window_lines(operation: Operation) -> list[str]:
    found = {
        "strides": operation.strides,
        "dilation": operation.dilation,
        "padding": operation.padding,
        "window": operation.window,
    }
    return [f".{name} = {{{', '.join(map(str, values))}}}," for name, values in found.items() if values]


def _operand_text(value: int, shape: Sequence[int], is_transposed: bool) -> str:
    extents = ", ".join(map(str, shape))
    return f"{{{value}, {len(shape)}, {{{extents}}}, {int(is_transposed)}}}"


def _post_op_text(post_op: PostOp, number_of: dict[int, int]) -> str:
    numbers = [c_number(each, "float32") for each in (post_op.alpha, post_op.beta)]
    value = 0 if post_op.node is None else number_of[id(post_op.node)]
    return f"{{RB_DNNL_{post_op.kind}, {', '.join(numbers)}, {value}}}"


def _function_lines(region: _Region, options: CodegenOptions) -> list[str]:
    symbol = options.symbol
    inputs = [Port(name, kind) for name, kind in zip(options.inputs, region.inputs, strict=True)]
    kinds = [region.types[number] for number in region.outputs]
    outputs = [Port(name, kind) for name, kind in zip(options.outputs, kinds, strict=True)]
    return [
        *tensor_infos("input_infos", inputs),
        *tensor_infos("output_infos", outputs),
        "static const RbSignature signature = {",
        f"    {c_string(symbol)},",
        f"    {len(inputs)},",
        f"    {len(outputs)},",
        f"    {infos_pointer('input_infos', inputs)},",
        f"    {infos_pointer('output_infos', outputs)},",
        "};",
        "",
        f"RB_EXPORT int32_t __tvm_ffi_{symbol}(void *self, const RbValue *args, int32_t num_args, RbValue *result) {{",
        f"  void *data[{len(inputs) + len(outputs)}];",
        "  (void)result;",
        "  if (rb_unpack(&signature, args, num_args, data)) {",
        "    return -1;",
        "  }",
        "  return rb_dnnl_run(&region, self, data);",
        "}",
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
