"""Writes types and one function's expressions; knows nothing of modules and their metadata.

Writers are generators of pieces: text, or a writer whose pieces come next. So names and numbers are given out in the
order of the text, and depth costs memory, not stack.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UserError
from relaybuild.ir import types
from relaybuild.ir.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)
from relaybuild.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Span,
    Tuple,
    TupleGetItem,
    Var,
)
from relaybuild.ir.op import Attrs, Op, find_op
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, is_atom, scope_tree
from relaybuild.ir.text.literals import attr_items, attr_text, element_text, scalar_text
from relaybuild.ir.text.names import global_text, is_reserved, local_text, plain, quoted, type_name_text
from relaybuild.ir.types import Dim, TensorType, Type, TypeVar

Writing: TypeAlias = "Iterator[Piece]"
Piece: TypeAlias = "str | Writing"

_INLINE_DEPTH = 4
_MAX_INDENT = 40


@dataclass(frozen=True)
class PrintOptions:
    """What a text shows besides the program.

    `show_types` adds the type of every call as a comment, `annotate` what it returns for a node written out, as a
    comment, and `show_spans` the span of every node, which is read back.
    """

    show_types: bool = False
    show_spans: bool = False
    annotate: Callable[[Expr], str] | None = None


def written(start: Piece) -> str:
    """All text of a writer."""
    if isinstance(start, str):
        return start
    out: list[str] = []
    stack: list[Writing] = [start]
    while stack:
        for piece in stack[-1]:
            if type(piece) is str:
                out.append(piece)
            else:
                stack.append(piece)  # type: ignore[arg-type]
                break
        else:
            stack.pop()
    return "".join(out)


def type_text(kind: Type) -> str:
    """A type as text."""
    return types.type_text(kind, type_name_text, _extent_text)


def _extent_text(extent: object) -> str:
    if not isinstance(extent, Dim):
        return str(extent)
    return "?" if extent.name == "?" else plain(extent.name)


def type_params_text(params: Iterable[TypeVar]) -> str:
    """`[A, B]`, or nothing for none."""
    names = ", ".join(type_name_text(parameter.name) for parameter in params)
    return f"[{names}]" if names else ""


def constant_text(constant: Constant) -> str:
    """A constant inline: a scalar as a literal, others as `Tensor[(2,), int64](1, 2)`."""
    if constant.array.ndim == 0:
        return scalar_text(constant)
    items = ", ".join(element_text(item, constant.dtype) for item in constant.data.ravel())
    return f"{type_text(TensorType(tuple(constant.array.shape), constant.dtype))}({items})"


def constructor_text(name: str) -> str:
    """A constructor's name, quoted where it would read as something else."""
    return quoted(name) if is_reserved(name) or find_op(name) is not None else plain(name)


def span_text(span: Span) -> str:
    """`#[span("source", "node", line, column)]`."""
    parts = [quoted(span.source)]
    if span.name:
        parts.append(quoted(span.name))
    if span.line or span.column:
        parts += [str(span.line), str(span.column)]
    return f"#[span({', '.join(parts)})]"


def span_behind(span: Span | None, options: PrintOptions) -> str:
    """A span behind what it belongs to, if spans are shown."""
    return f" {span_text(span)}" if options.show_spans and span is not None else ""


def span_before(span: Span | None, options: PrintOptions) -> str:
    """A span behind the word that begins what it belongs to, if spans are shown."""
    return f"{span_text(span)} " if options.show_spans and span is not None else ""


def comment_text(text: str) -> str:
    """A comment on one line, whatever the text."""
    return f"/* {' '.join(text.split()).replace('*/', '* /').replace('/*', '/ *')} */"


class FunctionWriter:
    """Writes one expression: names its variables, numbers its shared nodes."""

    def __init__(self, root: Expr, options: PrintOptions) -> None:
        self.options = options
        self.tree: ScopeTree = scope_tree(root)
        self.slots: Mapping[int, int] = {}
        self.has_comments = options.show_types or options.show_spans or options.annotate is not None
        self.names: dict[int, str] = {}
        self.taken: dict[str, int] = {}
        self.numbers: dict[int, int] = {}
        self.statements: dict[int, list[Expr]] = {}
        self.named_at_let: set[int] = set()
        """Recursive functions that are also used apart from their variable: named where the let binds them."""
        self.atoms: dict[int, str] = {}

    def weights(self) -> Iterator[Constant]:
        """The weights of the expression in the order of evaluation."""
        return (node for node in self.tree.order if isinstance(node, Constant) and node.is_weight)

    def body(self, indent: int, slots: Mapping[int, int]) -> str:
        """The lines of a block whose tail is the expression; `slots` are the numbers of the weights by their ids."""
        self.slots = slots
        self._choose_statements()
        return written(self._block(self.tree.root, indent))

    def signature(self, function: Function) -> str:
        """`[A](%x: T, key=value) -> T`."""
        items = [*(self.binder(param) for param in function.params), *attr_items(function.attrs)]
        result = f" -> {type_text(function.ret_type)}" if function.ret_type is not None else ""
        return f"{type_params_text(function.type_params)}({', '.join(items)}){result}"

    def binder(self, var: Var) -> str:
        """`%x: T`, or `%x` where it is not annotated."""
        name = f"{self._name(var)}{span_behind(var.span, self.options)}"
        return name if var.type_annotation is None else f"{name}: {type_text(var.type_annotation)}"

    # Names

    def _name(self, var: Var) -> str:
        known = self.names.get(id(var))
        if known is None:
            known = self.names[id(var)] = local_text(self._fresh(var.name_hint))
        return known

    def _fresh(self, hint: str) -> str:
        candidate = hint
        while candidate in self.taken:
            self.taken[hint] += 1
            candidate = f"{hint}{self.taken[hint]}"
        self.taken[candidate] = 0
        return candidate

    def _number(self, node: Expr) -> str:
        self.numbers[id(node)] = len(self.numbers)
        return f"%{len(self.numbers) - 1}"

    # Statements

    def _choose_statements(self) -> None:
        tree, statements = self.tree, self.statements
        lets = [node for node in tree.order if isinstance(node, Let)]
        values = {id(node.value) for node in lets}
        self.named_at_let = {id(node.value) for node in lets if self._is_shared_recursion(node)}
        depths: dict[int, int] = {}
        for node in tree.order:
            key = id(node)
            if is_atom(node) or key in self.named_at_let:
                continue
            placed = tree.placed[key]
            if tree.uses[key] == 1:
                if placed.root is node or key in values:
                    continue
                if _is_empty_value(node):
                    continue
                if isinstance(node, (Tuple, TupleGetItem)):
                    depth = 1 + max((depths.get(id(child), 0) for child in node.children()), default=0)
                    if depth <= _INLINE_DEPTH:
                        depths[key] = depth
                        continue
            statements.setdefault(id(placed), []).append(node)

    def _is_shared_recursion(self, node: Let) -> bool:
        """Whether a let's value names the let's variable and is used elsewhere too."""
        if self.tree.uses[id(node.value)] == 1 or not isinstance(node.value, Function):
            return False
        used = self.tree.placed.get(id(node.var))
        body = self.tree.inner[id(node)][1]
        return used is not None and common_scope(used, body) is not body

    def _block(self, scope: Scope, indent: int) -> Writing:
        """The statements of a scope and its tail, and those of the scopes that continue it."""
        pad = _pad(indent)
        while True:
            for node in self.statements.get(id(scope), ()):
                yield f"{pad}{self._number(node)} = "
                yield self._whole(node, indent)
                yield ";\n"
            tail = scope.root
            if isinstance(tail, Let) and self.tree.placed[id(tail)] is scope and id(tail) not in self.numbers:
                yield self._let(tail, pad, indent)
                scope = self.tree.inner[id(tail)][1]
            else:
                yield from (pad, self._ref(tail, indent), "\n")
                return

    def _let(self, node: Let, pad: str, indent: int) -> Writing:
        yield f"{pad}let {span_before(node.span, self.options)}{self.binder(node.var)} = "
        if id(node.value) in self.named_at_let and id(node.value) not in self.numbers:
            yield from (f"({self._number(node.value)} = ", self._whole(node.value, indent), ");\n")
        else:
            yield from (self._ref(node.value, indent), ";\n")

    def _braced(self, scope: Scope, indent: int) -> Writing:
        yield from ("{\n", self._block(scope, indent + 1), f"{_pad(indent)}}}")

    # Nodes

    def _ref(self, node: Expr, indent: int) -> Piece:
        """A node where it is used: by its number if it has one."""
        number = self.numbers.get(id(node))
        return f"%{number}" if number is not None else self._whole(node, indent)

    def _whole(self, node: Expr, indent: int) -> Piece:
        """A node written out."""
        if isinstance(node, Call):
            text = _value_text(node) if _is_empty_value(node) else self._simple_call(node)
            bare: Piece = text if text is not None else self._call(node, indent)
        elif is_atom(node):
            bare = self._atom(node)
        else:
            bare = self._compound(node, indent)
        return self._with_comments(node, bare) if self.has_comments else bare

    def _with_comments(self, node: Expr, bare: Piece) -> Writing:
        yield bare
        if not isinstance(node, (If, Let, Function, Match, Var, Constructor)):
            yield span_behind(node.span, self.options)
        if self.options.show_types and isinstance(node, Call) and node.has_type:
            yield f" /* ty={type_text(node.checked_type)} */"
        if self.options.annotate is not None and not isinstance(node, (Var, GlobalVar)):
            note = self.options.annotate(node)
            yield f" {comment_text(note)}" if note else ""

    def _atom(self, node: Expr) -> str:
        """A variable, a global, a constructor or a constant."""
        known = self.atoms.get(id(node))
        if known is None:
            known = self.atoms[id(node)] = self._atom_text(node)
        return known

    def _atom_text(self, node: Expr) -> str:
        if isinstance(node, Var):
            return self._name(node)
        if isinstance(node, GlobalVar):
            return global_text(node.name_hint)
        if isinstance(node, Constructor):
            text = constructor_text(node.name)
            return text if node.inputs else f"constructor({text})"
        if isinstance(node, Constant):
            return f"meta[relay.Constant][{self.slots[id(node)]}]" if node.is_weight else constant_text(node)
        raise InternalError(f"no text for a {type(node).__name__}")

    def _simple_call(self, node: Call) -> str | None:
        """A call of an operator over what has a name, in one piece."""
        if self.has_comments or not isinstance(node.op, Op):
            return None
        numbers, atoms = self.numbers, self.atoms
        args: list[str] = []
        for arg in node.args:
            number = numbers.get(id(arg))
            if number is not None:
                args.append(f"%{number}")
            elif is_atom(arg):
                args.append(atoms.get(id(arg)) or self._atom(arg))
            else:
                return None
        return f"{node.op.name}({', '.join(args + _call_attrs(node))})"

    def _call(self, node: Call, indent: int) -> Writing:
        yield node.op.name if isinstance(node.op, Op) else self._operand(node.op, indent)
        attrs = _call_attrs(node)
        args = (self._ref(arg, indent) for arg in node.args)
        yield from ("(", _listed(args), f"{', ' if node.args and attrs else ''}{', '.join(attrs)})")

    def _operand(self, node: Expr, indent: int) -> Piece:
        """A callee or a tuple that is projected: a literal in parentheses, lest it read on."""
        if isinstance(node, Constant) and id(node) not in self.numbers:
            return _listed((self._ref(node, indent),), "(", ")")
        return self._ref(node, indent)

    def _compound(self, node: Expr, indent: int) -> Writing:
        if isinstance(node, Tuple):
            comma = ",)" if len(node.fields) == 1 else ")"
            yield from ("(", _listed(self._ref(each, indent) for each in node.fields), comma)
        elif isinstance(node, TupleGetItem):
            yield from (self._operand(node.tuple_value, indent), f".{node.index}")
        elif isinstance(node, RefCreate):
            yield from ("ref(", self._ref(node.value, indent), ")")
        elif isinstance(node, RefRead):
            yield from ("ref_read(", self._ref(node.ref, indent), ")")
        elif isinstance(node, RefWrite):
            yield from ("ref_write(", self._ref(node.ref, indent), ", ", self._ref(node.value, indent), ")")
        else:
            yield self._scoped(node, indent)

    def _scoped(self, node: Expr, indent: int) -> Writing:
        inner = self.tree.inner.get(id(node), ())
        if isinstance(node, Function):
            yield from (
                f"fn {span_before(node.span, self.options)}{self.signature(node)} ",
                self._braced(inner[0], indent),
            )
        elif isinstance(node, If):
            yield from (f"if {span_before(node.span, self.options)}(", self._ref(node.cond, indent), ") ")
            yield from (self._braced(inner[0], indent), " else ", self._braced(inner[1], indent))
        elif isinstance(node, Let):
            yield self._let_block(node, inner[0], indent)
        elif isinstance(node, Match):
            word = "match" if node.complete else "match?"
            yield from (f"{word} {span_before(node.span, self.options)}(", self._ref(node.data, indent), ") {\n")
            for clause, scope in zip(node.clauses, inner):
                yield self._clause(clause, scope, indent + 1)
            yield f"{_pad(indent)}}}"
        else:
            raise InternalError(f"no text for a {type(node).__name__}")

    def _let_block(self, node: Let, block: Scope, indent: int) -> Writing:
        """A let inside an expression: `{ … }`."""
        deeper = indent + 1
        yield "{\n"
        for statement in self.statements.get(id(block), ()):
            yield f"{_pad(deeper)}{self._number(statement)} = "
            yield from (self._whole(statement, deeper), ";\n")
        yield self._let(node, _pad(deeper), deeper)
        yield from (self._block(self.tree.inner[id(node)][1], deeper), f"{_pad(indent)}}}")

    # Matches

    def _clause(self, clause: Clause, scope: Scope, indent: int) -> Writing:
        yield from (_pad(indent), self._pattern(clause.pattern), " => ")
        if id(clause.body) in self.numbers or is_atom(clause.body) or _is_empty_value(clause.body):
            yield from (self._ref(clause.body, indent), ",\n")
        else:
            yield from (self._braced(scope, indent), ",\n")

    def _pattern(self, pattern: Pattern) -> Piece:
        if isinstance(pattern, PatternWildcard):
            return "_"
        if isinstance(pattern, PatternVar):
            return self.binder(pattern.var)
        if isinstance(pattern, PatternTuple):
            comma = ",)" if len(pattern.patterns) == 1 else ")"
            return _listed((self._pattern(each) for each in pattern.patterns), "(", comma)
        return self._constructor_pattern(pattern)

    def _constructor_pattern(self, pattern: PatternConstructor) -> Writing:
        yield constructor_text(pattern.constructor.name)
        if pattern.patterns:
            yield _listed((self._pattern(each) for each in pattern.patterns), "(", ")")


def _value_text(node: Call) -> str:
    assert isinstance(node.op, Constructor)
    return constructor_text(node.op.name)


def _is_empty_value(node: Expr) -> bool:
    """Whether a node is the value of a constructor without fields, which is written by its name alone."""
    return isinstance(node, Call) and isinstance(node.op, Constructor) and not (node.op.inputs or node.args)


def _call_attrs(node: Call) -> list[str]:
    attrs = node.attrs
    if attrs is None or type(attrs) is Attrs:
        return []
    if not isinstance(node.op, Op):
        if attrs.items():
            raise UserError("only calls of operators have attributes in the text format", where=_where(node))
        return []
    return attr_items(_changed(attrs))


def _changed(attrs: Attrs) -> dict[str, Any]:
    """What differs from the record's defaults."""
    kind: Any = type(attrs)
    defaults = _defaults(kind)
    return {name: value for name, value in attrs.items() if attr_text(value) != defaults.get(name)}


@functools.cache
def _defaults(attrs_type: type[Attrs]) -> Mapping[str, str]:
    """The texts of the values that need not be written, as the record itself normalises them, by field."""
    try:
        values = dict(attrs_type().items())
    except TypeError:
        values = {item.name: item.default for item in fields(attrs_type) if item.default is not MISSING}
    return {name: attr_text(value) for name, value in values.items()}


def _where(node: Expr) -> str | None:
    return str(node.span) if node.span else None


def _listed(items: Iterable[Piece], before: str = "", after: str = "") -> Writing:
    yield before
    for position, item in enumerate(items):
        if position:
            yield ", "
        yield item
    yield after


def _pad(indent: int) -> str:
    """Deep nesting is not indented on: the text of a chain of conditionals would grow with the square of its length."""
    return "  " * min(indent, _MAX_INDENT)
