"""Turns a scalar expression into loop IR, for one element or a vector of them along one axis; knows no operator.

Shared sub-expressions become locals. A `select` on an index condition becomes a branch, so that a guarded load is made
only where its index is valid; a `select` on data is computed without branching.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UnsupportedError
from relaybuild.ir.scalar import UNARY
from relaybuild.lower.index import Axis, Index
from relaybuild.lower.loop_ir import Builder, Let
from relaybuild.lower.scalar import COMPARISONS, ScalarBuilder, ScalarExpr, walk

C_TYPES = {
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&&",
    "or": "||",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "shl": "<<",
    "shr": ">>",
    **COMPARISONS,
}
_VECTOR_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_VECTOR_MASKS = {"and": "&", "or": "|", "xor": "^"}
_VECTOR_CALLS = {name: f"rb_{name}" for name in ("max", "min", "pow", "mod", "floormod", "floordiv")}
_VECTOR_BINARY = {**_VECTOR_INFIX, **_VECTOR_MASKS, **_VECTOR_CALLS}
_VECTOR_UNARY = {name: f"rb_{name}" for name in UNARY}
_OWN_FORMS = frozenset({"neg", "not", "isnan", "isinf", "sign", "sigmoid", "rsqrt"})
_PARENTHESIS = re.compile(r"[()]")
_LIBM = {name: name for name in UNARY if name not in _OWN_FORMS} | {"abs": "fabs", "round": "nearbyint"}
"""The functions of libm; what `_OWN_FORMS` names is spelled out instead."""


def c_type(dtype: str) -> str:
    """The C type of an element; a dtype that C has not is an UnsupportedError."""
    if dtype not in C_TYPES:
        raise UnsupportedError(f"the host backend has no code for element type '{dtype}'")
    return C_TYPES[dtype]


def is_vectorizable(root: ScalarExpr, axis: Axis, scalars: ScalarBuilder) -> bool:
    """Whether `root` has a vector form along `axis`: what varies by lane is float32, by indices known when compiled."""
    return root.dtype == "float32" and all(_has_vector_form(node, axis, scalars) for node in walk(root))


def _has_vector_form(node: ScalarExpr, axis: Axis, scalars: ScalarBuilder) -> bool:
    if not scalars.depends_on(node, axis):
        return node.dtype in ("float32", "bool") or node.op in ("const", "load", "index")
    if node.op in ("anchor", "vector", "picked"):
        return node.dtype == "float32"
    if node.op == "load":
        names = node.data[1].run_time_names()
        by_lane = any(scalars.depends_on(scalars.run_time_indices[name], axis) for name in names)
        return node.dtype == "float32" and not by_lane
    if node.op == "binary" and node.data in COMPARISONS:
        return node.args[0].dtype == "float32"
    known = {"unary": _VECTOR_UNARY, "binary": _VECTOR_BINARY}
    if node.op in known:
        return node.data in known[node.op] and node.dtype in ("float32", "bool")
    return node.op == "select" and node.dtype == "float32"


@dataclass
class Emitter:
    """Emits one expression for `lanes` elements along `axis` (1 lane: a plain scalar).

    `pointers[k]` is the C name of operand k; `anchor` is the C expression of the template's value; `scalars` is the
    builder that made the expression.
    """

    builder: Builder
    pointers: Sequence[str]
    scalars: ScalarBuilder
    lanes: int = 1
    axis: Axis | None = None
    anchor: str = ""
    _names: dict[int, str] = field(default_factory=dict)

    def emit(self, root: ScalarExpr) -> str:
        """Statements that compute `root`; returns the C expression of its value."""
        order = list(walk(root)) if not _has_branch(root) else []
        uses = _count_uses(root)
        for node in order:
            self._emit_node(node, uses)
        return self._names[id(root)] if order else self._emit_scoped(root, uses)

    def _emit_scoped(self, root: ScalarExpr, uses: dict[int, int]) -> str:
        """As `emit`, opening a branch at each `select` on an index condition."""
        pending: list[tuple[ScalarExpr, bool]] = [(root, False)]
        while pending:
            node, expanded = pending.pop()
            if id(node) in self._names:
                continue
            if node.op == "select" and _is_guard(node.args[0]):
                self._emit_branch(node, uses)
            elif expanded:
                self._emit_node(node, uses)
            else:
                pending.append((node, True))
                pending.extend((arg, False) for arg in reversed(node.args))
        return self._names[id(root)]

    def _emit_branch(self, node: ScalarExpr, uses: dict[int, int]) -> None:
        cond, chosen, other = node.args
        condition = self._emit_scoped(cond, uses)
        name = self.builder.declare("rb_v" if self._is_vector(node) else c_type(node.dtype), "v")
        outer = dict(self._names)
        with self.builder.branch(condition) as branch:
            self.builder.assign(name, self._value(chosen, node, uses))
        self._names = dict(outer)
        with self.builder.block(branch.otherwise):
            self.builder.assign(name, self._value(other, node, uses))
        self._names = outer
        self._names[id(node)] = name

    def _value(self, node: ScalarExpr, parent: ScalarExpr, uses: dict[int, int]) -> str:
        text = self._emit_scoped(node, uses)
        return f"rb_splat({text})" if self._is_vector(parent) and not self._is_vector(node) else text

    def _is_vector(self, node: ScalarExpr) -> bool:
        if self.lanes == 1 or self.axis is None:
            return False
        return self.scalars.depends_on(node, self.axis)

    def _emit_node(self, node: ScalarExpr, uses: dict[int, int]) -> None:
        if id(node) in self._names:
            return
        vector = self._is_vector(node)
        text = self._vector_text(node) if vector else self._scalar_text(node)
        if node.op in ("const", "anchor", "vector", "index") or (
            uses.get(id(node), 1) < 2 and len(text) < 60 and node.op != "load"
        ):
            self._names[id(node)] = text
            return
        ctype = ("rb_m" if node.dtype == "bool" else "rb_v") if vector else c_type(node.dtype)
        self._names[id(node)] = self.builder.let(ctype, "v", _strip(text))

    def _operand(self, node: ScalarExpr, vector: bool) -> str:
        text = self._names[id(node)]
        if vector and not self._is_vector(node):
            return f"rb_splat_mask({text})" if node.dtype == "bool" else f"rb_splat({text})"
        return text

    def _scalar_text(self, node: ScalarExpr) -> str:
        args = [self._names[id(arg)] for arg in node.args]
        if node.op == "load":
            operand, address = node.data
            return f"{self.pointers[operand]}[{self._index_text(address)}]"
        if node.op == "anchor":
            return self.anchor
        if node.op == "const":
            return c_literal(node.data, node.dtype)
        if node.op == "index":
            return f"(({c_type(node.dtype)})({self._index_text(node.data)}))"
        if node.op == "range":
            return self._range_text(node)
        if node.op == "select":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if node.op == "cast":
            return _scalar_cast(node, args[0])
        if node.op == "unary":
            return _scalar_unary(node, args[0])
        return _scalar_binary(node, args[0], args[1])

    def _range_text(self, node: ScalarExpr) -> str:
        index, begin, end = node.data
        tests = []
        if (index - begin).lower is None or (index - begin).lower < 0:
            tests.append(f"{self._index_text(index)} >= {self._index_text(begin)}")
        if (end - index).lower is None or (end - index).lower <= 0:
            tests.append(f"{self._index_text(index)} < {self._index_text(end)}")
        return "(" + (" && ".join(tests) or "1") + ")"

    def _vector_text(self, node: ScalarExpr) -> str:
        if node.op == "anchor":
            return self.anchor
        if node.op == "vector":
            return str(node.data)
        if node.op == "picked":
            function, operand, address, rest = node.data
            return f"{function}({self.pointers[operand]} + {self._index_text(address)}{rest})"
        if node.op == "load":
            return self._vector_load(node)
        args = [self._operand(arg, True) for arg in node.args]
        if node.op == "select":
            return f"rb_select({args[0]}, {args[1]}, {args[2]})"
        if node.op == "unary":
            return _vector_unary(node, args[0])
        if node.op == "binary":
            return _vector_binary(node, args[0], args[1])
        raise InternalError(f"scalar operation '{node.op}' has no vector form")

    def _vector_load(self, node: ScalarExpr) -> str:
        operand, address = node.data
        pointer = self.pointers[operand]
        assert self.axis is not None
        if address.coefficient(self.axis) == 1:
            return f"rb_load({pointer} + {self._index_text(address.substitute({self.axis: 0}))})"
        lanes = [self._index_text(address.substitute({self.axis: lane})) for lane in range(self.lanes)]
        return "(rb_v){" + ", ".join(f"{pointer}[{lane}]" for lane in lanes) + "}"

    def _index_text(self, index: Index) -> str:
        for name in sorted(index.run_time_names()):
            self._bind_run_time(name, self.scalars.run_time_indices[name])
        return str(index)

    def _bind_run_time(self, name: str, scalar: ScalarExpr) -> None:
        key = -1 - list(self.scalars.run_time_indices).index(name)
        if key in self._names:
            return
        text = self._emit_scoped(scalar, _count_uses(scalar))
        self.builder.append(Let("ptrdiff_t", name, f"rb_index((ptrdiff_t)({text}))"))
        self._names[key] = name


def _count_uses(root: ScalarExpr) -> dict[int, int]:
    uses: dict[int, int] = {}
    for node in walk(root):
        for arg in node.args:
            uses[id(arg)] = uses.get(id(arg), 0) + 1
    return uses


def _scalar_cast(node: ScalarExpr, value: str) -> str:
    """A conversion; what a narrow integer does not hold wraps. C leaves that undefined where it comes of a float, and
    gcc then keeps numbers that no such integer can be."""
    if node.dtype == "bool":
        return f"({value} != 0)"
    target = c_type(node.dtype)
    through = _THROUGH.get(node.dtype) if "float" in node.args[0].dtype else None
    return f"(({target})({through})({value}))" if through else f"(({target})({value}))"


_THROUGH = {**dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32_t"), "uint32": "int64_t"}


def _is_guard(cond: ScalarExpr) -> bool:
    return any(node.op == "range" for node in walk(cond))


def _has_branch(root: ScalarExpr) -> bool:
    return any(node.op == "select" and _is_guard(node.args[0]) for node in walk(root))


def c_literal(value: float | int | bool, dtype: str) -> str:
    """A literal that reads back as exactly `value`."""
    if dtype == "bool":
        return "1" if value else "0"
    if not dtype.startswith(("float", "bfloat")):
        return _int_literal(int(value), dtype)
    number = float(value)
    cast = "(_Float16)" if dtype == "float16" else ""
    suffix = "" if dtype == "float64" else "f"
    if number != number:
        return f"{cast}NAN"
    if number in (float("inf"), float("-inf")):
        return f"{cast}{'-' if number < 0 else ''}INFINITY"
    text = float(number).hex() if repr(number).count("e") and abs(number) < 1e-30 else repr(number)
    return f"({cast}{text}{suffix})" if number < 0 or cast or text.startswith("-") else f"{text}{suffix}"


def _int_literal(value: int, dtype: str) -> str:
    if value == -(2**63):
        return "INT64_MIN"
    text = f"{value}LL" if dtype == "int64" and abs(value) > 2**31 - 1 else str(value)
    if dtype in ("uint32", "uint64"):
        text = f"{value}U{'LL' if dtype == 'uint64' else ''}"
    return f"({text})" if value < 0 else text


def _strip(text: str) -> str:
    """Without one pair of parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")) or text.startswith("(rb_v)"):
        return text
    depth = 0
    for found in _PARENTHESIS.finditer(text, 0, len(text) - 1):
        depth += 1 if found.group() == "(" else -1
        if depth == 0:
            return text
    return text[1:-1]


def _scalar_unary(node: ScalarExpr, x: str) -> str:
    name, dtype = node.data, node.args[0].dtype
    floating = dtype.startswith("float")
    suffix = "" if dtype == "float64" else "f"
    one = "1.0" if dtype == "float64" else "1.0f"
    if name == "neg":
        return f"(-{x})" if floating else _negated(x, dtype)
    if name == "not":
        return f"(!{x})"
    if name in ("isnan", "isinf"):
        return f"({name}({x}) != 0)"
    if name == "sign":
        return _sign(x, dtype)
    if name == "sigmoid":
        return f"({one} / ({one} + exp{suffix}(-{x})))"
    if name == "rsqrt":
        return f"({one} / sqrt{suffix}({x}))"
    if name == "abs" and not floating:
        return x if dtype.startswith("u") else f"({x} < 0 ? {_negated(x, dtype)} : {x})"
    if name in ("floor", "ceil", "round", "trunc") and not floating:
        return x
    if name in _LIBM:
        return f"{_LIBM[name]}{suffix}({x})"
    raise InternalError(f"scalar operation '{name}' has no C form")


def _sign(x: str, dtype: str) -> str:
    if dtype.startswith("float"):
        return f"({x} != {x} ? {x} : ({c_type(dtype)})(({x} > 0) - ({x} < 0)))"
    return f"({x} > 0)" if dtype.startswith("u") else f"(({x} > 0) - ({x} < 0))"


def _negated(x: str, dtype: str) -> str:
    """An integer's negative, which wraps around."""
    if dtype.startswith("u"):
        return f"(({c_type(dtype)})(0U - {x}))"
    return _narrowed(f"rb_neg_{_width(dtype)}({x})", dtype)


def _width(dtype: str) -> str:
    """The integers in which C computes those of `dtype`, as names in `vector.h` end."""
    return {"int64": "i64", "uint64": "u64", "uint32": "u32"}.get(dtype, "i32")


def _narrowed(text: str, dtype: str) -> str:
    """A result of C's wider type as one of `dtype`."""
    return f"(({c_type(dtype)}){text})" if dtype in ("int8", "int16", "uint8", "uint16", "float16") else text


def _scalar_binary(node: ScalarExpr, a: str, b: str) -> str:
    name, dtype = node.data, node.args[0].dtype
    if dtype.startswith("float"):
        return _narrowed(_float_binary(name, dtype, a, b), "bool" if name in COMPARISONS else dtype)
    if name == "xor":
        return f"(!{a} != !{b})"
    if name in ("max", "min"):
        return f"({a} {'>' if name == 'max' else '<'} {b} ? {a} : {b})"
    if name in ("add", "sub", "mul") and dtype in ("int32", "int64"):
        return f"(({c_type(dtype)})((u{c_type(dtype)}){a} {_INFIX[name]} (u{c_type(dtype)}){b}))"
    if name == "div" and _divides_plainly(node.args[1]):
        return _narrowed(f"({a} / {b})", dtype)
    if name in _INTEGER_CALLS:
        return _narrowed(f"rb_{name}_{_width(dtype)}({a}, {b})", dtype)
    if name in _INFIX:
        text = f"({a} {_INFIX[name]} {b})"
        return text if name in COMPARISONS else _narrowed(text, dtype)
    raise InternalError(f"scalar operation '{name}' has no C form")


_INTEGER_CALLS = ("div", "mod", "floordiv", "floormod", "pow", "shl", "shr")


def _divides_plainly(divisor: ScalarExpr) -> bool:
    """Whether no dividend makes a division by it trap."""
    return divisor.op == "const" and divisor.data not in (0, -1)


def _float_binary(name: str, dtype: str, a: str, b: str) -> str:
    suffix = "" if dtype == "float64" else "f"
    width = "f64" if dtype == "float64" else "f32"
    if name in ("max", "min", "floormod"):
        return f"rb_{name}_{width}({a}, {b})"
    if name in ("pow", "mod"):
        return f"{'fmod' if name == 'mod' else name}{suffix}({a}, {b})"
    if name == "floordiv":
        return f"floor{suffix}({a} / {b})"
    if name in _INFIX:
        return f"({a} {_INFIX[name]} {b})"
    raise InternalError(f"scalar operation '{name}' has no C form")


def _vector_unary(node: ScalarExpr, x: str) -> str:
    return f"(~{x})" if node.data == "not" else f"{_VECTOR_UNARY[node.data]}({x})"


def _is_number(node: ScalarExpr) -> bool:
    """Whether the value is a constant that is not NaN."""
    return node.op == "const" and node.data == node.data


def _vector_binary(node: ScalarExpr, a: str, b: str) -> str:
    name = node.data
    if name == "max" and "rb_splat(0.0f)" in (a, b):
        return f"rb_relu({b if a == 'rb_splat(0.0f)' else a})"
    if name in ("max", "min") and any(_is_number(arg) for arg in node.args):
        value, bound = (b, a) if _is_number(node.args[0]) else (a, b)
        return f"{'rb_at_least' if name == 'max' else 'rb_at_most'}({value}, {bound})"
    if name in _VECTOR_CALLS:
        return f"{_VECTOR_CALLS[name]}({a}, {b})"
    if name in COMPARISONS:
        return f"RB_COMPARE({a}, {COMPARISONS[name]}, {b})"
    return f"({a} {_VECTOR_BINARY[name]} {b})"
