"""The kinds of patterns over dataflow, and the functions that make them; knows nothing of how they are searched for.

A pattern is written as the expression that it matches: `is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard()))`.
Patterns do not change and have identity: one that stands in several places stands for one node of the program. What
it matches may be asked for more with `has_attr`, `has_dtype`, `has_shape` and `has_type`; `a | b` is either, and
`p.optional(f)` is `f(p)` where that matches and `p` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, cast

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.op import Op, get_op
from relaybuild.ir.pattern.matcher import Graph, MatchNode, Mismatch, Subject, Way, describe, find_match, matches
from relaybuild.ir.pattern.partitioning import Check, partition_expr
from relaybuild.ir.pattern.rewriting import Callback, rewrite_expr
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType, Type

_NOTHING: tuple[Way, ...] = ()
_NO_MORE: tuple[Way, ...] = ((),)


class DFPattern(MatchNode):
    """Base of all patterns."""

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return ()

    def match(self, expr: Expr) -> bool:
        """Whether the pattern matches an expression, users of whose parts are those within the expression."""
        return not isinstance(find_match(self, expr), Mismatch)

    def why_not(self, expr: Expr) -> Mismatch | None:
        """The first mismatch deepest in the pattern; None where the pattern matches."""
        found = find_match(self, expr)
        return found if isinstance(found, Mismatch) else None

    def rewrite(self, callback: Callback, expr: Expr) -> Expr:
        """An expression in which `callback(pre, post, match)` has replaced what matches, until nothing changes.

        `pre` is the node that matched, `post` the same over what has been replaced below it, and `match` says for each
        node of the pattern what it stands for, in a tuple.
        """
        return rewrite_expr(((self, callback, False, False),), expr)

    def partition(self, expr: Expr, attrs: Mapping[str, object] | None = None, check: Check | None = None) -> Expr:
        """An expression in which each match is a call of a function with the attributes, and `PartitionedFromPattern`.

        `check(root)` may refuse a match: it is true, or false, or a sentence that says why not.
        """
        return partition_expr(self, expr, attrs, check)

    def has_attr(self, attrs: Mapping[str, object]) -> DFPattern:
        """The pattern, where a call, a function or an operator has these attributes."""
        return AttrPattern(self, dict(attrs))

    def has_type(self, wanted: Type) -> DFPattern:
        """The pattern, where the type is this one."""
        return TypePattern(self, wanted)

    def has_dtype(self, dtype: str) -> DFPattern:
        """The pattern, where the type is a tensor's with these elements."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[object]) -> DFPattern:
        """The pattern, where the type is a tensor's of this shape; None among the extents is any extent."""
        return ShapePattern(self, tuple(shape))

    def optional(self, around: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """The pattern with more around it, where that matches, or else without."""
        return AltPattern(around(self), self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DFPattern:
        """The pattern, where all that comes of `parent` passes, through nodes that `path` matches, into it."""
        return DominatorPattern(parent, path or wildcard(), self)

    def __call__(self, *args: DFPattern | None) -> DFPattern:
        """A call of what the pattern matches; with `None` alone, with any arguments."""
        if args == (None,):
            return CallPattern(self, None)
        if not all(isinstance(arg, DFPattern) for arg in args):
            raise TypeError("arguments of a pattern are patterns, or None alone for any arguments")
        return CallPattern(self, cast("tuple[DFPattern, ...]", args))

    def __or__(self, other: DFPattern) -> DFPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> DFPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> DFPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> DFPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> DFPattern:
        return is_op("divide")(self, other)


# Leaves


@dataclass(frozen=True, eq=False)
class WildcardPattern(DFPattern):
    """Anything."""

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return _NO_MORE

    def wants(self) -> str:
        return "anything"


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of this name unless the name is empty."""

    name: str = ""

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return _NO_MORE if isinstance(subject, Var) and self.name in ("", subject.name_hint) else _NOTHING

    def wants(self) -> str:
        return f"variable '%{self.name}'" if self.name else "a variable"


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant, which stays within what is cut out."""

    @property
    def embeds_constants(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return _NO_MORE if isinstance(subject, Constant) else _NOTHING

    def wants(self) -> str:
        return "a constant"


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """An expression equal to this one; free variables are themselves. A constant stays within what is cut out."""

    expr: Expr

    @property
    def embeds_constants(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if subject is self.expr:
            return _NO_MORE
        if type(subject) is not type(self.expr) or not isinstance(subject, Expr) or isinstance(subject, Var):
            return _NOTHING
        if isinstance(subject, Call) and isinstance(self.expr, Call) and subject.op_name != self.expr.op_name:
            return _NOTHING
        if subject.has_type and self.expr.has_type and subject.checked_type != self.expr.checked_type:
            return _NOTHING
        return _NO_MORE if structural_equal(subject, self.expr, map_free_vars=False) else _NOTHING

    def wants(self) -> str:
        return f"{describe(self.expr)} equal to a given one"


@dataclass(frozen=True, eq=False)
class OpPattern(DFPattern):
    """An operator."""

    op: Op

    @property
    def is_rigid(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return _NO_MORE if subject is self.op else _NOTHING

    def wants(self) -> str:
        return f"operator '{self.op.name}'"


# What is made of parts


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call: of what `op` matches, with such arguments (None: any); in either order where the operator commutes."""

    op: DFPattern
    args: tuple[DFPattern, ...] | None

    @cached_property
    def _parts(self) -> tuple[DFPattern, ...]:
        return (self.op, *(self.args or ()))

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self._parts

    @property
    def is_inner(self) -> bool:
        return True

    def inputs(self, subject: Expr) -> Sequence[Expr]:
        return subject.args if self.args is None and isinstance(subject, Call) else ()

    @property
    def last_operators(self) -> frozenset[Op] | None:
        return frozenset({self.op.op}) if isinstance(self.op, OpPattern) else None

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, Call) or not self._names(subject.op):
            return _NOTHING
        callee = (self.op, subject.op)
        if self.args is None:
            return ((callee,),)
        if len(self.args) != len(subject.args):
            return _NOTHING
        way: Way = (callee, *zip(self.args, subject.args))
        if len(self.args) == 2 and isinstance(subject.op, Op) and subject.op.commutative:
            return way, (callee, *zip(self.args, reversed(subject.args)))
        return (way,)

    def _names(self, op: Subject) -> bool:
        return not isinstance(self.op, OpPattern) or op is self.op.op

    def wants(self) -> str:
        name = f"a call of '{self.op.op.name}'" if isinstance(self.op, OpPattern) else "a call"
        return (
            name if self.args is None or isinstance(self.op, OpPattern) else f"{name} with {len(self.args)} arguments"
        )

    def found(self, subject: Subject) -> str:
        if not isinstance(subject, Call) or self.args is None or not self._names(subject.op):
            return describe(subject)
        wanted = f" instead of {len(self.args)}" if isinstance(self.op, OpPattern) else ""
        return f"{describe(subject)} with {len(subject.args)} arguments{wanted}"


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple of such fields (None: any)."""

    fields: tuple[DFPattern, ...] | None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.fields or ()

    @property
    def is_inner(self) -> bool:
        return True

    def inputs(self, subject: Expr) -> Sequence[Expr]:
        return subject.fields if self.fields is None and isinstance(subject, Tuple) else ()

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, Tuple):
            return _NOTHING
        if self.fields is None:
            return _NO_MORE
        return (tuple(zip(self.fields, subject.fields)),) if len(self.fields) == len(subject.fields) else _NOTHING

    def wants(self) -> str:
        return "a tuple" if self.fields is None else f"a tuple of {len(self.fields)} fields"

    def found(self, subject: Subject) -> str:
        return f"a tuple of {len(subject.fields)} fields" if isinstance(subject, Tuple) else describe(subject)


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field of such a tuple, of this index (None: any)."""

    tuple_value: DFPattern
    index: int | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.tuple_value,)

    @property
    def is_inner(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, TupleGetItem) or self.index not in (None, subject.index):
            return _NOTHING
        return (((self.tuple_value, subject.tuple_value),),)

    def wants(self) -> str:
        return "a field of a tuple" if self.index is None else f"field {self.index} of a tuple"

    def found(self, subject: Subject) -> str:
        return f"field {subject.index}" if isinstance(subject, TupleGetItem) else describe(subject)


@dataclass(frozen=True, eq=False)
class FunctionPattern(DFPattern):
    """A function of such parameters (None: any) and such a body; what its body computes is not given to the pattern."""

    params: tuple[DFPattern, ...] | None
    body: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (*(self.params or ()), self.body)

    @property
    def is_inner(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, Function):
            return _NOTHING
        if self.params is None:
            return (((self.body, subject.body),),)
        if len(self.params) != len(subject.params):
            return _NOTHING
        return ((*zip(self.params, subject.params), (self.body, subject.body)),)

    def wants(self) -> str:
        return "a function" if self.params is None else f"a function of {len(self.params)} parameters"

    def found(self, subject: Subject) -> str:
        return f"one of {len(subject.params)}" if isinstance(subject, Function) else describe(subject)


@dataclass(frozen=True, eq=False)
class IfPattern(DFPattern):
    """A branch on such a condition."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.cond, self.true_branch, self.false_branch)

    @property
    def is_inner(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return (tuple(zip(self.parts, subject.children())),) if isinstance(subject, If) else _NOTHING

    def wants(self) -> str:
        return "an If"


@dataclass(frozen=True, eq=False)
class LetPattern(DFPattern):
    """A let of such a variable, value and body."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.var, self.value, self.body)

    @property
    def is_inner(self) -> bool:
        return True

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        if not isinstance(subject, Let):
            return _NOTHING
        return (((self.var, subject.var), (self.value, subject.value), (self.body, subject.body)),)

    def wants(self) -> str:
        return "a Let"


# What is asked of a pattern besides


@dataclass(frozen=True, eq=False)
class AltPattern(DFPattern):
    """The one, or else the other."""

    left: DFPattern
    right: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.left, self.right)

    @cached_property
    def _last_operators(self) -> frozenset[Op] | None:
        left, right = self.left.last_operators, self.right.last_operators
        return None if left is None or right is None else left | right

    @property
    def last_operators(self) -> frozenset[Op] | None:
        return self._last_operators

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return ((self.left, subject),), ((self.right, subject),)

    def wants(self) -> str:
        return f"{self.left.wants()} or {self.right.wants()}"


@dataclass(frozen=True, eq=False)
class _Asking(DFPattern):
    """A pattern of which more is asked."""

    pattern: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.pattern,)

    @property
    def last_operators(self) -> frozenset[Op] | None:
        return self.pattern.last_operators

    def holds(self, subject: Subject) -> bool:
        """Whether what is asked besides holds."""
        raise NotImplementedError

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return (((self.pattern, subject),),) if self.holds(subject) else _NOTHING


@dataclass(frozen=True, eq=False)
class AttrPattern(_Asking):
    """A call, function or operator with these attributes; those of an operator are the fields of its record."""

    attrs: Mapping[str, object]

    def holds(self, subject: Subject) -> bool:
        return all(_same_value(_attribute(subject, name), value) for name, value in self.attrs.items())

    def wants(self) -> str:
        return ", ".join(f"{name}={_plain(value)!r}" for name, value in self.attrs.items())

    def found(self, subject: Subject) -> str:
        values = {name: _attribute(subject, name) for name in self.attrs}
        texts = [f"no '{name}'" if value is _ABSENT else f"{name}={_plain(value)!r}" for name, value in values.items()]
        return f"{describe(subject)} with {', '.join(texts)}"


@dataclass(frozen=True, eq=False)
class TypePattern(_Asking):
    """What has this type."""

    wanted: Type

    def holds(self, subject: Subject) -> bool:
        return _type_of(subject) == self.wanted

    def wants(self) -> str:
        return f"type {self.wanted}"

    def found(self, subject: Subject) -> str:
        return _type_text(subject)


@dataclass(frozen=True, eq=False)
class DataTypePattern(_Asking):
    """A tensor of such elements."""

    dtype: str

    def holds(self, subject: Subject) -> bool:
        kind = _type_of(subject)
        return isinstance(kind, TensorType) and kind.dtype == self.dtype

    def wants(self) -> str:
        return f"a tensor of {self.dtype}"

    def found(self, subject: Subject) -> str:
        return _type_text(subject)


@dataclass(frozen=True, eq=False)
class ShapePattern(_Asking):
    """A tensor of this shape; None is any extent."""

    shape: tuple[object, ...]

    def holds(self, subject: Subject) -> bool:
        kind = _type_of(subject)
        if not isinstance(kind, TensorType) or kind.rank != len(self.shape):
            return False
        return all(wanted is None or wanted == extent for wanted, extent in zip(self.shape, kind.shape))

    def wants(self) -> str:
        return f"a tensor of shape ({', '.join('any' if extent is None else str(extent) for extent in self.shape)})"

    def found(self, subject: Subject) -> str:
        return _type_text(subject)


@dataclass(frozen=True, eq=False)
class DominatorPattern(DFPattern):
    """`child`, where every way back from it leads through `path` to one `parent`, of which nothing else is made."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    @cached_property
    def _back(self) -> _WayBack:
        return _WayBack(self.parent, self.path)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.child, self._back)

    @property
    def last_operators(self) -> frozenset[Op] | None:
        return self.child.last_operators

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        return (((self.child, subject), (self._back, subject)),)

    def wants(self) -> str:
        return self.child.wants()


@dataclass(frozen=True, eq=False)
class _WayBack(DFPattern):
    """What `DominatorPattern` asks of its child's operands."""

    parent: DFPattern
    path: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.parent, self.path)

    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        start = self._start(subject, graph) if isinstance(subject, Expr) else None
        if start is None or subject is start or not graph.dominators.dominates(cast(Expr, subject), start):
            return _NOTHING
        return (((self.parent, start),),)

    def passed(self, subject: Subject, graph: Graph) -> Sequence[tuple[MatchNode, Expr]]:
        start = self._start(cast(Expr, subject), graph)
        seen = {id(start)}
        waiting = [cast(Expr, subject)]
        covered: list[Expr] = []
        for node in waiting:
            for operand in _operands(node):
                if id(operand) not in seen:
                    seen.add(id(operand))
                    waiting.append(operand)
                    covered.append(operand)
        return [(self.parent, cast(Expr, start)), *((self.path, node) for node in covered)]

    def _start(self, subject: Expr, graph: Graph) -> Expr | None:
        """The one node that `parent` matches to which all ways back from a node lead; found once for each node."""
        starts: dict[int, Expr | None] = graph.found.setdefault(self, {})
        waiting = [subject]
        while waiting:
            node = waiting[-1]
            if id(node) in starts:
                waiting.pop()
                continue
            pending, start = self._step(node, starts, graph)
            if pending:
                waiting += pending
            else:
                starts[id(node)] = start
        return starts[id(subject)]

    def _step(self, node: Expr, starts: Mapping[int, Expr | None], graph: Graph) -> tuple[Sequence[Expr], Expr | None]:
        """The operands whose own start is not known yet; where there is none, the start of a node."""
        found: list[Expr | None] = []
        pending: list[Expr] = []
        for operand in _operands(node):
            kind = self._kind(operand, graph)
            if kind == "parent":
                found.append(operand)
            elif kind is None:
                return (), None
            elif id(operand) in starts:
                found.append(starts[id(operand)])
            else:
                pending.append(operand)
        agreed = bool(found) and all(start is found[0] for start in found)
        return pending, found[0] if agreed else None

    def _kind(self, operand: Expr, graph: Graph) -> str | None:
        kinds: dict[int, str | None] = graph.found.setdefault((self, "kind"), {})
        if id(operand) not in kinds:
            is_parent = matches(self.parent, operand, graph)
            on_path = not is_parent and matches(self.path, operand, graph)
            kinds[id(operand)] = "parent" if is_parent else "path" if on_path else None
        return kinds[id(operand)]

    def wants(self) -> str:
        return f"all ways back through {self.path.wants()} to {self.parent.wants()}, of which nothing else is made"


def _operands(node: Expr) -> Sequence[Expr]:
    return node.args if isinstance(node, Call) else node.children()


_ABSENT = object()


def _attribute(subject: Subject, name: str) -> object:
    if isinstance(subject, Function):
        return subject.attrs.get(name, _ABSENT)
    if isinstance(subject, Call):
        return dict(subject.attrs.items()).get(name, _ABSENT) if subject.attrs else _ABSENT
    return getattr(subject, name, _ABSENT) if isinstance(subject, Op) else _ABSENT


def _same_value(found: object, wanted: object) -> bool:
    return found is not _ABSENT and bool(_plain(found) == _plain(wanted))


def _plain(value: object) -> object:
    """A value as it is compared: lists as tuples, members of an Enum by their value."""
    if isinstance(value, Enum):
        return value.value
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _type_of(subject: Subject) -> Type | None:
    return subject.checked_type if isinstance(subject, Expr) and subject.has_type else None


def _type_text(subject: Subject) -> str:
    kind = _type_of(subject)
    return f"{describe(subject)}, whose type is {'not known' if kind is None else kind}"


# The functions that make patterns


def wildcard() -> DFPattern:
    """Anything; each is another pattern."""
    return WildcardPattern()


def is_var(name: str = "") -> DFPattern:
    """A variable, of any name unless one is given."""
    return VarPattern(name)


def is_constant() -> DFPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: Expr) -> DFPattern:
    """An expression equal to this one."""
    return ExprPattern(expr)


def is_op(name: str) -> DFPattern:
    """An operator, to be called with patterns; an unknown name is an error that lists the nearest."""
    return OpPattern(get_op(name))


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """A tuple of such fields, or of any."""
    return TuplePattern(None if fields is None else tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """A field of a tuple, of any index unless one is given."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """A branch."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """A let."""
    return LetPattern(var, value, body)


def is_function(params: Sequence[DFPattern] | None, body: DFPattern) -> DFPattern:
    """A function of such parameters, or of any."""
    return FunctionPattern(None if params is None else tuple(params), body)


def has_attr(attrs: Mapping[str, object], pattern: DFPattern | None = None) -> DFPattern:
    """What a pattern matches, or anything, with these attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def has_type(wanted: Type, pattern: DFPattern | None = None) -> DFPattern:
    """What a pattern matches, or anything, of this type."""
    return (pattern or wildcard()).has_type(wanted)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """What a pattern matches, or anything, that is a tensor of such elements."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[object], pattern: DFPattern | None = None) -> DFPattern:
    """What a pattern matches, or anything, that is a tensor of this shape; None is any extent."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """`child`, where every way back from it leads through `path` to one `parent`, of which nothing else is made."""
    return DominatorPattern(parent, path, child)


class DFPatternCallback:
    """A pattern, and what to make of it: a subclass sets `pattern` and has `callback(pre, post, node_map)`.

    With `require_type` the expression is typed before it is searched; with `rewrite_once` it is searched once.
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[MatchNode, tuple[Any, ...]]) -> Expr:
        """What stands for a match, as `DFPattern.rewrite` says."""
        raise NotImplementedError

    def rewrite(self, expr: Expr) -> Expr:
        """The expression in which this has replaced what its pattern matches."""
        return rewrite(self, expr)


def rewrite(callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr) -> Expr:
    """An expression on which callbacks have worked, one after the other, over and over until nothing changes."""
    given = (callbacks,) if isinstance(callbacks, DFPatternCallback) else callbacks
    return rewrite_expr([(each.pattern, each.callback, each.require_type, each.rewrite_once) for each in given], expr)
