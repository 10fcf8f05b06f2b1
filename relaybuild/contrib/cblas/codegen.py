"""Turns a region of matrix products into C that calls a BLAS; knows no buffers, no packed functions."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.cblas.patterns import PATTERNS, supports
from relaybuild.contrib.cblas.products import Loop, Product, product_of
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.op import Op
from relaybuild.partition.backend import CodegenOptions, GeneratedCode
from relaybuild.partition.csource import Buffer, CSourceCodegen
from relaybuild.partition.pattern_parts import added

_PATTERN_NAMES = frozenset(entry.name for entry in PATTERNS)


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The C of one region. Raises UnsupportedError for a body that is not dataflow, and for calls of anything that the
    backend does not take."""
    return _BlasCodegen(function, options).generate()


class _BlasCodegen(CSourceCodegen):
    def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        answer = supports(call)
        if answer is not True:
            raise self.unsupported(call, f"'{call.op_name}'" + (f": {answer}" if answer else ""))
        a, b = inputs
        return self._product(call, a, b, None, outputs[0])

    def emit_composite(self, call: Call, name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        if name not in _PATTERN_NAMES:
            raise self.unsupported(call, f"'{name}'")
        assert isinstance(call.op, Function)
        addition = call.op.body
        assert isinstance(addition, Call)
        product = next(each for each in addition.args if isinstance(each, Call) and isinstance(each.op, Op))
        given: dict[Expr, Buffer] = dict(zip(call.op.params, inputs, strict=True))
        a, b, bias = (given[each] for each in (*product.args, added(addition, product)))
        return self._product(product, a, b, bias, outputs[0])

    def _product(self, call: Call, a: Buffer, b: Buffer, bias: Buffer | None, out: Buffer) -> str:
        product = product_of(call)
        if not out.num_elements:
            return ""
        self.include('"runtime/blas.h"')
        is_added = bias is not None or _is_vector(product)
        lines = [self._filling(product, bias, out)] if is_added else []
        body = _vector_call(product, out) if _is_vector(product) else _matrix_call(product, out, is_added)
        return "\n".join([*lines, *_looped(product, a, b, out, body)])

    def _filling(self, product: Product, bias: Buffer | None, out: Buffer) -> str:
        """The statement that puts into the result what the product is added to."""
        if bias is None:
            return f"memset({out.name}, 0, {out.num_bytes});"
        rows = out.num_elements // product.columns
        if rows == 1:
            return f"memcpy({out.name}, {bias.name}, {bias.num_bytes});"
        body = [
            f"for (int64_t row = 0; row < {rows}; ++row) {{",
            f"  memcpy(out + row * {product.columns}, bias, {bias.num_bytes});",
            "}",
        ]
        parameters = f"const {bias.ctype} *restrict bias, {out.ctype} *restrict out"
        name = self.define(parameters, body, f"The bias in each of {rows} rows")
        return f"{name}({bias.name}, {out.name});"


def _is_vector(product: Product) -> bool:
    """Whether the first operand is one row, for which libraries have a function of its own; it ignores empty ones."""
    return product.rows == 1 and product.inner > 0


def _vector_call(product: Product, out: Buffer) -> list[str]:
    shape = (product.columns, product.inner) if product.b_transposed else (product.inner, product.columns)
    transposed = "CblasNoTrans" if product.b_transposed else "CblasTrans"
    return [
        f"cblas_{_prefix(out)}gemv(CblasRowMajor, {transposed}, {shape[0]}, {shape[1]}, 1, b, {shape[1]}, a, 1, 1, "
        "out, 1);"
    ]


def _matrix_call(product: Product, out: Buffer, is_added: bool) -> list[str]:
    transposed = ["CblasTrans" if each else "CblasNoTrans" for each in (product.a_transposed, product.b_transposed)]
    a_row = max(product.rows if product.a_transposed else product.inner, 1)
    b_row = max(product.inner if product.b_transposed else product.columns, 1)
    return [
        f"cblas_{_prefix(out)}gemm(CblasRowMajor, {', '.join(transposed)},",
        f"            {product.rows}, {product.columns}, {product.inner}, 1, a, {a_row}, b, {b_row}, {int(is_added)}, "
        f"out, {product.columns});",
    ]


def _prefix(out: Buffer) -> str:
    return "s" if out.type.dtype == "float32" else "d"


def _looped(product: Product, a: Buffer, b: Buffer, out: Buffer, body: Sequence[str]) -> list[str]:
    """The statements for every round of the loops, `a`, `b` and `out` being where its matrices begin."""
    loops = product.loops
    operands = (
        (a, "const ", "a", [loop.a_step for loop in loops]),
        (b, "const ", "b", [loop.b_step for loop in loops]),
        (out, "", "out", _result_steps(loops, product.rows * product.columns)),
    )
    counters = [f"i{number}" for number in range(len(loops))]
    heads = [
        f"for (int64_t {counter} = 0; {counter} < {loop.extent}; ++{counter}) {{"
        for loop, counter in zip(loops, counters)
    ]
    heads = heads or ["{"]
    places = [
        f"{const}{each.ctype} *{name} = {' + '.join([each.name, *_terms(counters, steps)])};"
        for each, const, name, steps in operands
    ]
    indent = "  " * len(heads)
    return [
        *("  " * depth + head for depth, head in enumerate(heads)),
        *(indent + line for line in (*places, *body)),
        *("  " * depth + "}" for depth in reversed(range(len(heads)))),
    ]


def _result_steps(loops: Sequence[Loop], step: int) -> list[int]:
    steps: list[int] = []
    for loop in reversed(loops):
        steps.append(step)
        step *= loop.extent
    return steps[::-1]


def _terms(counters: Sequence[str], steps: Sequence[int]) -> list[str]:
    return [f"{counter} * {step}" for counter, step in zip(counters, steps) if step]
