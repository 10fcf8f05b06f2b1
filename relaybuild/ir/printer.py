"""Programs as text that `relaybuild.ir.parser` reads back without loss; knows nothing of files or passes.

One call stands on one line and is named `%0`, `%1`, …; a node used twice is written once, in the innermost scope that
encloses its uses. Constants that are structure stand inline, weights as `meta[relay.Constant][slot]`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from relaybuild.errors import InternalError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.lexer import METADATA
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Attrs, Op
from relaybuild.ir.scopes import Scope, ScopeTree, is_atom, scope_tree
from relaybuild.ir.structural import attr_value, constant_digest, weight_slots
from relaybuild.ir.types import DTYPES, Dim, FuncType, TensorType, TupleType, Type, TypeVar

VERSION = '#[version = "0.0.5"]'
WeightForm: TypeAlias = Literal["data", "digest", "slot"]

_INLINE_DEPTH = 4
_NO_NUMBER = r"(?!(?:inf|nan)(?:f16|f32|f64|f)?\Z)"
_SIMPLE = re.compile(_NO_NUMBER + r"[A-Za-z_][A-Za-z_0-9]*\Z")
_DOTTED = re.compile(_NO_NUMBER + r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*\Z")
_SUFFIX = {"float16": "f16", "float32": "f", "float64": "f64", "int32": ""}
_RESERVED = frozenset((*DTYPES, "Tensor", "fn"))


def print_module(mod: IRModule, weights: WeightForm = "data", show_types: bool = False) -> str:
    """A module as text.

    `weights` says what the metadata section holds of each: "data" (all of it, in base64: the text is complete),
    "digest" (dtype, shape, SHA-256) or "slot" (dtype and shape); the latter two are read back only together with the
    arrays. `show_types` adds the type of every call as a comment.
    """
    return f"{VERSION}\n{functions_text(mod, show_types)}{_metadata(weight_slots(mod), weights)}"


def functions_text(mod: IRModule, show_types: bool = False) -> str:
    """The functions of a module, and its attributes, as people want to see them: no version line, no metadata."""
    table = {id(weight): index for index, weight in enumerate(weight_slots(mod))}
    attrs = [f"#[attrs({', '.join(_attr_items(mod.attrs))})]\n"] if mod.attrs else []
    return "".join([*attrs, *(_print_def(name, each, table, show_types) for name, each in mod.functions.items())])


def print_expr(expr: Expr, weights: WeightForm = "data", show_types: bool = False) -> str:
    """An expression as text; free variables are declared first by `free_var %x: type;`."""
    from relaybuild.ir.visitor import free_vars

    slots = weight_slots(expr)
    writer = _Writer({id(weight): index for index, weight in enumerate(slots)}, show_types)
    declared = "".join(f"free_var {writer.binder(var)};\n" for var in free_vars(expr))
    return f"{declared}{writer.body(expr, 0)}{_metadata(slots, weights)}"


def type_text(kind: Type) -> str:
    """A type as text."""
    if isinstance(kind, TensorType):
        if not kind.shape:
            return kind.dtype
        dims = ", ".join(_extent_text(extent) for extent in kind.shape)
        return f"Tensor[({dims}{',' if len(kind.shape) == 1 else ''}), {kind.dtype}]"
    if isinstance(kind, TupleType):
        inner = ", ".join(map(type_text, kind.fields))
        return f"({inner}{',' if len(kind.fields) == 1 else ''})"
    if isinstance(kind, FuncType):
        args = ", ".join(map(type_text, kind.arg_types))
        return f"fn{_type_params(kind.type_params)}({args}) -> {type_text(kind.ret_type)}"
    if isinstance(kind, TypeVar):
        return _plain_name(kind.name)
    raise InternalError(f"no text for the type {kind!r}")


def attr_text(value: object) -> str:
    """An attribute's value as text: `3`, `0.5`, `True`, `None`, `"NCHW"`, `[1, 2]`."""
    plain = attr_value(value)
    if isinstance(plain, tuple):
        return f"[{', '.join(map(attr_text, plain))}]"
    return json.dumps(plain) if isinstance(plain, str) else repr(plain)


def constant_text(constant: Constant) -> str:
    """A constant inline: a scalar as a literal, others as `Tensor[(2,), int64](1, 2)`."""
    if constant.data.ndim == 0:
        return _scalar_text(constant.data[()], constant.dtype)
    items = ", ".join(_element_text(item, constant.dtype) for item in constant.data.ravel())
    return f"{type_text(TensorType(tuple(constant.data.shape), constant.dtype))}({items})"


def global_text(name: str) -> str:
    """`@name`, quoted where it must be."""
    return "@" + (name if _SIMPLE.match(name) else json.dumps(name))


def _print_def(name: str, function: Function, table: Mapping[int, int], show_types: bool) -> str:
    writer = _Writer(table, show_types)
    return f"def {global_text(name)}{writer.signature(function)} {{\n{writer.body(function.body, 1)}}}\n"


@dataclass(frozen=True, slots=True)
class _Block:
    """Work: the statements of a scope and its tail, at an indentation."""

    scope: Scope
    indent: int


@dataclass(frozen=True, slots=True)
class _Whole:
    """Work: a node written out, not by its name."""

    node: Expr
    indent: int


@dataclass(frozen=True, slots=True)
class _Ref:
    """Work: a node where it is used: by its name if it has one."""

    node: Expr
    indent: int


@dataclass(frozen=True, slots=True)
class _Statement:
    """Work: `%n = node;`."""

    node: Expr
    indent: int


@dataclass(frozen=True, slots=True)
class _Binder:
    """Work: a variable where it is bound; named at that moment, so that names go in the order of the text."""

    var: Var


_Work: TypeAlias = "str | _Block | _Whole | _Ref | _Statement | _Binder"


class _Writer:
    """Writes one function: names of its variables, numbers of its shared nodes."""

    def __init__(self, slots: Mapping[int, int], show_types: bool) -> None:
        self.slots = slots
        self.show_types = show_types
        self.names: dict[int, str] = {}
        self.taken: dict[str, int] = {}
        self.numbers: dict[int, int] = {}
        self.statements: dict[int, list[Expr]] = {}
        self.named: set[int] = set()
        self.tree: ScopeTree

    def body(self, root: Expr, indent: int) -> str:
        """The lines of a block whose tail is `root`."""
        self.tree = scope_tree(root)
        self._choose_statements()
        return self._run(_Block(self.tree.root, indent))

    def signature(self, function: Function) -> str:
        """`[A](%x: T, key=value) -> T`."""
        items = [*(self.binder(param) for param in function.params), *_attr_items(function.attrs)]
        result = f" -> {type_text(function.ret_type)}" if function.ret_type is not None else ""
        return f"{_type_params(function.type_params)}({', '.join(items)}){result}"

    def binder(self, var: Var) -> str:
        """`%x: T`, or `%x` where it is not annotated."""
        name = self._name(var)
        return name if var.type_annotation is None else f"{name}: {type_text(var.type_annotation)}"

    def _name(self, var: Var) -> str:
        known = self.names.get(id(var))
        if known is None:
            known = self.names[id(var)] = "%" + _plain_name(self._fresh(var.name_hint))
        return known

    def _fresh(self, hint: str) -> str:
        candidate = hint
        while candidate in self.taken:
            self.taken[hint] += 1
            candidate = f"{hint}{self.taken[hint]}"
        self.taken[candidate] = 0
        return candidate

    def _choose_statements(self) -> None:
        depths: dict[int, int] = {}
        values = {id(node.value) for node in self.tree.order if isinstance(node, Let)}
        for node in self.tree.order:
            if is_atom(node):
                continue
            placed = self.tree.placed[id(node)]
            if self.tree.uses[id(node)] == 1 and (placed.root is node or id(node) in values):
                continue
            if isinstance(node, (Tuple, TupleGetItem)) and self.tree.uses[id(node)] == 1:
                depth = 1 + max((depths.get(id(child), 0) for child in node.children()), default=0)
                if depth <= _INLINE_DEPTH:
                    depths[id(node)] = depth
                    continue
            self.named.add(id(node))
            self.statements.setdefault(id(placed), []).append(node)

    def _run(self, start: _Work) -> str:
        out: list[str] = []
        stack: list[_Work] = [start]
        while stack:
            work = stack.pop()
            if isinstance(work, str):
                out.append(work)
            else:
                stack.extend(reversed(list(self._expand(work))))
        return "".join(out)

    def _expand(self, work: _Block | _Whole | _Ref | _Statement | _Binder) -> Iterable[_Work]:
        if isinstance(work, _Block):
            return self._block(work.scope, work.indent)
        if isinstance(work, _Binder):
            return (self.binder(work.var),)
        if isinstance(work, _Statement):
            self.numbers[id(work.node)] = len(self.numbers)
            head = f"{_pad(work.indent)}%{self.numbers[id(work.node)]} = "
            return (head, _Whole(work.node, work.indent), ";\n")
        if isinstance(work, _Ref) and id(work.node) in self.named:
            return (f"%{self.numbers[id(work.node)]}",)
        return self._whole(work.node, work.indent)

    def _block(self, scope: Scope, indent: int) -> Iterable[_Work]:
        for node in self.statements.get(id(scope), ()):
            yield _Statement(node, indent)
        tail = scope.root
        yield _pad(indent)
        if isinstance(tail, Let) and self.tree.placed[id(tail)] is scope and id(tail) not in self.named:
            yield from ("let ", _Binder(tail.var), " = ", _Ref(tail.value, indent), ";\n")
            yield _Block(self.tree.inner[id(tail)][1], indent)
        else:
            yield from (_Ref(tail, indent), "\n")

    def _braced(self, scope: Scope, indent: int) -> Iterable[_Work]:
        return ("{\n", _Block(scope, indent + 1), f"{_pad(indent)}}}")

    def _whole(self, node: Expr, indent: int) -> Iterable[_Work]:
        if isinstance(node, Var):
            return (self._name(node),)
        if isinstance(node, GlobalVar):
            return (global_text(node.name_hint),)
        if isinstance(node, Constant):
            inline = not node.is_weight
            return (constant_text(node) if inline else f"meta[relay.Constant][{self.slots[id(node)]}]",)
        if isinstance(node, Call):
            return self._call(node, indent)
        if isinstance(node, Tuple):
            comma = ",)" if len(node.fields) == 1 else ")"
            return ("(", *_separated(_Ref(field, indent) for field in node.fields), comma)
        if isinstance(node, TupleGetItem):
            return (_Ref(node.tuple_value, indent), f".{node.index}")
        return self._scoped(node, indent)

    def _scoped(self, node: Expr, indent: int) -> Iterable[_Work]:
        inner = self.tree.inner[id(node)]
        if isinstance(node, Function):
            return (f"fn {self.signature(node)} ", *self._braced(inner[0], indent))
        if isinstance(node, If):
            branches = (*self._braced(inner[0], indent), " else ", *self._braced(inner[1], indent))
            return ("if (", _Ref(node.cond, indent), ") ", *branches)
        if isinstance(node, Let):
            return self._let_block(node, indent)
        raise InternalError(f"no text for a {type(node).__name__}")

    def _let_block(self, node: Let, indent: int) -> Iterable[_Work]:
        block, body = self.tree.inner[id(node)]
        deeper = indent + 1
        yield "{\n"
        for statement in self.statements.get(id(block), ()):
            yield _Statement(statement, deeper)
        yield from (f"{_pad(deeper)}let ", _Binder(node.var), " = ", _Ref(node.value, deeper), ";\n")
        yield from (_Block(body, deeper), f"{_pad(indent)}}}")

    def _call(self, node: Call, indent: int) -> Iterable[_Work]:
        callee: _Work = node.op.name if isinstance(node.op, Op) else _Ref(node.op, indent)
        attrs = _call_attrs(node)
        items = [*_separated(_Ref(arg, indent) for arg in node.args)]
        if attrs:
            items.append(f"{', ' if items else ''}{', '.join(attrs)}")
        comment = f" /* ty={type_text(node.checked_type)} */" if self.show_types and node.has_type else ""
        return (callee, "(", *items, f"){comment}")


def _call_attrs(node: Call) -> list[str]:
    if node.attrs is None:
        return []
    if not isinstance(node.op, Op):
        if node.attrs.items():
            raise InternalError("only calls of operators have attributes in the text format")
        return []
    defaults = _defaults(type(node.attrs))
    changed = {
        name: value
        for name, value in node.attrs.items()
        if name not in defaults or not _same(attr_value(value), attr_value(defaults[name]))
    }
    return _attr_items(changed)


def _defaults(attrs_type: type[Attrs]) -> dict[str, Any]:
    """Values of the fields that need not be written, as the record itself normalises them."""
    try:
        return dict(attrs_type().items())
    except TypeError:
        return {item.name: item.default for item in fields(attrs_type) if item.default is not MISSING}


def _same(a: object, b: object) -> bool:
    return attr_text(a) == attr_text(b)


def _attr_items(attrs: Mapping[str, object]) -> list[str]:
    return [f"{name if _DOTTED.match(name) else json.dumps(name)}={attr_text(attrs[name])}" for name in sorted(attrs)]


def _separated(items: Iterable[_Work]) -> Iterable[_Work]:
    for position, item in enumerate(items):
        if position:
            yield ", "
        yield item


def _pad(indent: int) -> str:
    return "  " * indent


def _plain_name(name: str) -> str:
    return name if _SIMPLE.match(name) and name not in _RESERVED else json.dumps(name)


def _type_params(params: Iterable[TypeVar]) -> str:
    names = ", ".join(_plain_name(parameter.name) for parameter in params)
    return f"[{names}]" if names else ""


def _extent_text(extent: object) -> str:
    if not isinstance(extent, Dim):
        return str(extent)
    return "?" if extent.name == "?" else _plain_name(extent.name)


def _scalar_text(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return str(bool(value))
    suffix = _SUFFIX.get(dtype)
    if suffix is None:
        suffix = dtype.replace("uint", "u").replace("int", "i")
    return _element_text(value, dtype) + suffix


def _element_text(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return str(bool(value))
    if not dtype.startswith("float"):
        return str(int(value))
    if np.isnan(value):
        return "nan"
    text = str(value)
    return text[:-2] if text.endswith(".0") else text


def _metadata(slots: list[Constant], form: WeightForm) -> str:
    if not slots:
        return ""
    entries = ",\n".join(f"  {json.dumps(_metadata_entry(weight, form))}" for weight in slots)
    return f'{METADATA}\n{{"relay.Constant": [\n{entries}\n]}}\n'


def _metadata_entry(weight: Constant, form: WeightForm) -> dict[str, object]:
    entry: dict[str, object] = {"dtype": weight.dtype, "shape": list(weight.data.shape)}
    if form == "digest":
        entry["digest"] = constant_digest(weight)
    if form == "data":
        little = np.ascontiguousarray(weight.data, dtype=weight.data.dtype.newbyteorder("<"))
        entry["data"] = base64.b64encode(little.tobytes()).decode("ascii")
    return entry
