"""Carries layouts through a function: what AlterOpLayout and ConvertLayout share. Knows no operator.

A call is first replaced by an expression of the same type that brings its arguments into other layouts and its result
back, with `layout_transform`. Walking from producers to users, the change back is put off: a value keeps the storage
it has, and each user takes it as it is stored if its operator has a rule for that. Where one has none, the value is
brought back, once for all such users. A change that meets the storage it asks for disappears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UserError
from relaybuild.ir.expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.layout import Layout, LayoutCall, is_plain
from relaybuild.ir.op import Op, TypeMismatch, call_op
from relaybuild.ir.ops._layouts import expect_layout, transformed
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import PassContext


def with_layouts(call: Call, layouts: Sequence[str], result: str = "") -> Expr:
    """A typed call carried out in other layouts, between changes from and to its own; of the same type.

    `layouts` is one text per argument, `result` that of the result where it is not the first argument's. The call
    itself where its operator names no layouts, or where blocks do not divide an extent.
    """
    if isinstance(call.op, Expr) or call.op.layout_attrs is None or call.attrs is None:
        return call
    names, attrs = call.op.layout_attrs, call.attrs
    *inputs, output = names.layouts(attrs)
    if len(layouts) != len(inputs):
        raise UserError(f"'{call.op_name}' takes {len(inputs)} layouts, found {len(layouts)}", where=_where(call))
    wanted = result or layouts[0]
    changed: Any = dict(zip(names.inputs, layouts))
    if names.output:
        changed[names.output] = result if result and result != layouts[0] else ""
    if not all(_may_change(arg.tensor_type, a, b) for arg, a, b in zip(call.args, inputs, layouts)):
        return call
    if not _may_change(call.tensor_type, output, wanted):
        return call
    args = [transformed(arg, a, b) for arg, a, b in zip(call.args, inputs, layouts)]
    changed_attrs: Any = replace(attrs, **changed)
    return transformed(Call(call.op, args, changed_attrs, call.span), wanted, output)


def _may_change(kind: TensorType, src: str, dst: str) -> bool:
    try:
        letters = "".join(letter for letter in src if letter.isupper())
        stored, wanted = expect_layout(src, letters), expect_layout(dst, letters)
    except TypeMismatch as error:
        raise UserError(str(error)) from None
    return wanted.fits(stored.logical_shape(kind.shape))


@dataclass(frozen=True, eq=False)
class _Stored:
    """A tensor, held by `expr` in a layout."""

    expr: Expr
    layout: Layout


@dataclass(frozen=True, eq=False)
class _Fields:
    """A tuple, of which `expr` is the plain form where every field is plain."""

    fields: tuple[_Value, ...]
    expr: Expr


_Value: TypeAlias = "_Stored | _Fields | Expr"
"""How a node's value is held; an expression where it is neither a tensor nor a tuple of tensors."""


class LayoutPropagation:
    """One walk over one function; `replacement` gives the expression that takes a call's place, or the call itself.

    The context is asked before each replacement.
    """

    def __init__(self, ctx: PassContext, replacement: Callable[[Call], Expr]) -> None:
        self._ctx = ctx
        self._replacement = replacement
        self._values: dict[int, _Value] = {}
        # nodes are kept so that their ids, which are keys, are not given to others
        self._alive: list[Expr] = []
        self._transforms: dict[tuple[int, str, str], Expr] = {}
        self._has_replaced = False

    def run(self, function: Function) -> Function:
        """The function with replacements made and layouts carried on; itself where no call was replaced."""
        order = list(post_order(function))
        bound: dict[int, list[Let]] = {}
        for node in order:
            if isinstance(node, Let):
                bound.setdefault(id(node.value), []).append(node)
        for node in order:
            if id(node) not in self._values:
                self._learn(node, self._value(node))
            for let in bound.get(id(node), ()):
                self._bind(let.var, self._values[id(node)])
        result = self._restored(function)
        assert isinstance(result, Function)
        return result if self._has_replaced else function

    def _learn(self, node: Expr, value: _Value) -> None:
        self._values[id(node)] = value
        held = value if isinstance(value, Expr) else value.expr
        self._values.setdefault(id(held), self._plain(held))
        self._alive += [node, held]

    def _bind(self, var: Var, value: _Value) -> None:
        """A let's variable stands for what is stored."""
        if isinstance(value, _Stored) and not value.layout.is_plain:
            stored = Var(var.name_hint, None, var.span)
            stored.set_checked_type(value.expr.checked_type)
            self._learn(var, _Stored(stored, value.layout))

    def _value(self, node: Expr) -> _Value:
        if isinstance(node, Tuple):
            return self._tuple(node)
        if isinstance(node, TupleGetItem):
            value = self._values[id(node.tuple_value)]
            if isinstance(value, _Fields) and not (_is_plain(value) and value.expr is node.tuple_value):
                return value.fields[node.index]
        if isinstance(node, Let):
            return self._plain(self._let(node))
        if isinstance(node, Call) and isinstance(node.op, Op):
            return self._call(node, replaces=True)
        return self._plain(node.with_children([self._restored(child) for child in node.children()]))

    def _tuple(self, node: Tuple) -> _Value:
        fields = tuple(self._values[id(field)] for field in node.fields)
        plain = all(_is_plain(field) for field in fields)
        return _Fields(fields, node.with_children([self._restored(field) for field in node.fields]) if plain else node)

    def _let(self, node: Let) -> Expr:
        var, value = self._values.get(id(node.var)), self._values[id(node.value)]
        body = self._restored(node.body)
        if isinstance(var, _Stored) and isinstance(value, _Stored) and var.expr is not node.var:
            assert isinstance(var.expr, Var)
            return Let(var.expr, value.expr, body, node.span)
        return node.with_children([self._restored(node.value), body])

    def _plain(self, expr: Expr) -> _Value:
        kind = expr.checked_type if expr.has_type else None
        if isinstance(kind, TensorType):
            return _Stored(expr, Layout.plain(kind.rank))
        if isinstance(kind, TupleType) and all(isinstance(field, TensorType) for field in kind.fields):
            fields = [TupleGetItem(expr, index, expr.span) for index in range(len(kind.fields))]
            return _Fields(tuple(self._plain(field) for field in fields), expr)
        return expr

    def _call(self, node: Call, *, replaces: bool) -> _Value:
        """The value of an operator's call; what a replacement says of layouts is taken as it stands."""
        values = [self._values[id(arg)] for arg in node.args]
        if node.op_name == "layout_transform" and isinstance(values[0], _Stored):
            moved = self._moved(node, values[0])
            if moved is not None:
                return moved
        assert isinstance(node.op, Op)
        is_literal = not replaces and node.op.layout_attrs is not None
        if not is_literal and not all(_is_plain(value) for value in values):
            followed = self._followed(node, values)
            if followed is not None:
                return followed
        rebuilt = node.with_children([self._restored(arg) for arg in node.args])
        found = self._replaced(rebuilt) if replaces and rebuilt.has_type else rebuilt
        if found is rebuilt:
            return self._plain(rebuilt)
        if not found.has_type or found.checked_type != rebuilt.checked_type:
            shown = found.checked_type if found.has_type else "unknown"
            raise UserError(
                f"the replacement of '{node.op_name}' has type {shown}, expected {rebuilt.checked_type}",
                where=_where(node),
            )
        self._has_replaced = True
        return self._taken_in(found)

    def _replaced(self, call: Call) -> Expr:
        return allowed(self._ctx, call, self._replacement(call))

    def _taken_in(self, root: Expr) -> _Value:
        """The value of a replacement, whose new nodes are walked down to those that are known."""
        stack = [root]
        while stack:
            node = stack[-1]
            pending = [child for child in node.children() if id(child) not in self._values]
            if id(node) not in self._values and pending:
                stack.extend(pending)
                continue
            stack.pop()
            if id(node) not in self._values:
                is_call = isinstance(node, Call) and isinstance(node.op, Op)
                self._learn(node, self._call(node, replaces=False) if is_call else self._value(node))  # type: ignore[arg-type]
        return self._values[id(root)]

    def _moved(self, node: Call, value: _Stored) -> _Value | None:
        """A change of layout as another name for what is stored; None where it has to be carried out."""
        attrs: Any = node.attrs
        src, dst = attrs.src_layout, attrs.dst_layout
        if is_plain(src) and is_plain(dst):
            axes = value.layout.permuted([src.index(letter) for letter in dst]).axes
            return _Stored(value.expr, Layout(axes, dst))
        if is_plain(src):
            expr = self._converted(value, Layout.between(src, dst))
            return _Stored(expr, Layout.plain(expr.tensor_type.rank))
        if is_plain(dst) and value.layout.is_plain:
            return _Stored(value.expr, Layout.between(dst, src))
        return None

    def _followed(self, node: Call, values: Sequence[_Value]) -> _Value | None:
        """The call carried out on what is stored; None where its operator cannot."""
        tensors = _tensors(values)
        results = _tensor_types(node)
        assert isinstance(node.op, Op)
        if node.op.follow_layout is None or tensors is None or results is None:
            return None
        types = tuple(_logical_type(tensor) for tensor in tensors)
        attrs = node.attrs if node.attrs is not None else node.op.make_attrs({})
        choice = node.op.follow_layout(LayoutCall(attrs, types, tuple(tensor.layout for tensor in tensors), results))
        if choice is None or not all(_fits(layout, kind) for layout, kind in zip(choice.inputs, types)):
            return None
        stored = [self._converted(tensor, layout) for tensor, layout in zip(tensors, choice.inputs)]
        if choice.attrs is None:
            return _Stored(stored[0], choice.outputs[0])
        call = Call(node.op, _regrouped(node, stored), choice.attrs, node.span)
        _check(call, choice.outputs, results)
        if isinstance(node.checked_type, TensorType):
            return _Stored(call, choice.outputs[0])
        fields = (TupleGetItem(call, index, node.span) for index in range(len(results)))
        return _Fields(tuple(_Stored(field, layout) for field, layout in zip(fields, choice.outputs)), call)

    def _restored(self, node: _Value) -> Expr:
        """A value in its plain form: of an old node, or of what is stored."""
        value = self._values[id(node)] if isinstance(node, Expr) else node
        if isinstance(value, _Stored):
            return self._converted(value, Layout.plain(value.layout.rank, value.layout.letters))
        if isinstance(value, _Fields):
            if all(_is_plain(field) for field in value.fields):
                return value.expr
            return self._remembered(value.expr, "", "", lambda: self._joined(value))
        return value

    def _joined(self, value: _Fields) -> Expr:
        fields = [self._restored(field) for field in value.fields]
        return value.expr.with_children(fields) if isinstance(value.expr, Tuple) else Tuple(fields, value.expr.span)

    def _converted(self, value: _Stored, wanted: Layout) -> Expr:
        """The value stored in another layout; axes of extent 1 are put in front where the layout has more axes."""
        if value.layout == wanted:
            return value.expr
        if wanted.rank > value.layout.rank:
            expanded = self._expanded(self._restored(value), wanted.rank)
            value = _Stored(expanded, Layout.plain(wanted.rank, wanted.letters))
            if value.layout == wanted:
                return value.expr
        letters = wanted.letters if value.layout.is_plain else value.layout.letters
        src, dst = value.layout.text(letters), wanted.text(letters)
        expr = self._remembered(value.expr, src, dst, lambda: transformed(value.expr, src, dst))
        if wanted.is_plain:
            self._values[id(expr)] = value
        return expr

    def _expanded(self, expr: Expr, rank: int) -> Expr:
        missing = rank - expr.tensor_type.rank
        return self._remembered(
            expr, "", str(rank), lambda: call_op("expand_dims", [expr], expr.span, axis=0, num_newaxis=missing)
        )

    def _remembered(self, expr: Expr, src: str, dst: str, make: Callable[[], Expr]) -> Expr:
        key = (id(expr), src, dst)
        if key not in self._transforms:
            self._transforms[key] = made = make()
            self._alive += [expr, made]
            self._values.setdefault(id(made), self._plain(made))
        return self._transforms[key]


def _is_plain(value: _Value) -> bool:
    if isinstance(value, _Stored):
        return value.layout.is_plain
    return not isinstance(value, _Fields) or all(
        not isinstance(field, _Stored) or field.layout.is_plain for field in value.fields
    )


def _tensors(values: Sequence[_Value]) -> list[_Stored] | None:
    """The tensors among values, fields of tuples one by one; None where one is something else."""
    flat: list[_Value] = []
    for value in values:
        flat.extend(value.fields if isinstance(value, _Fields) else (value,))
    tensors = [value for value in flat if isinstance(value, _Stored)]
    return tensors if len(tensors) == len(flat) else None


def _tensor_types(node: Call) -> tuple[TensorType, ...] | None:
    kind = node.checked_type if node.has_type else None
    fields = kind.fields if isinstance(kind, TupleType) else (kind,)
    tensors = tuple(field for field in fields if isinstance(field, TensorType))
    return tensors if len(tensors) == len(fields) else None


def _logical_type(value: _Stored) -> TensorType:
    kind = value.expr.tensor_type
    return kind if value.layout.is_plain else TensorType(value.layout.logical_shape(kind.shape), kind.dtype)


def _fits(layout: Layout, kind: TensorType) -> bool:
    return layout.fits((*(1,) * (layout.rank - kind.rank), *kind.shape))


def _regrouped(node: Call, tensors: Sequence[Expr]) -> list[Expr]:
    """Tensors as arguments of a call, in tuples where the call has them."""
    args: list[Expr] = []
    position = 0
    for arg in node.args:
        kind = arg.checked_type
        count = len(kind.fields) if isinstance(kind, TupleType) else 1
        fields = tensors[position : position + count]
        args.append(Tuple(fields, arg.span) if isinstance(kind, TupleType) else fields[0])
        position += count
    return args


def _check(call: Call, layouts: Sequence[Layout], results: Sequence[TensorType]) -> None:
    kind = call.checked_type
    found = kind.fields if isinstance(kind, TupleType) else (kind,)
    wanted = tuple(TensorType(layout.stored_shape(r.shape), r.dtype) for layout, r in zip(layouts, results))
    if found != wanted:
        raise InternalError(f"'{call.op_name}' follows a layout to {found}, expected {wanted}")


def _where(node: Expr) -> str | None:
    return str(node.span) if node.span else None
