"""Runs a program by the reference semantics of its operators, in numpy; knows nothing of backends or speed.

A scope is run node by node, in the order of the graph, each node in the innermost scope that encloses all its uses
(`relaybuild.ir.scopes`): a shared node is computed once, a branch's own nodes only where it is taken, and effects
happen where lets fix them. Calls and scopes lie on a stack of their own, so that neither long graphs nor deep
recursion touch Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UserError
from relaybuild.ir.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
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
    Tuple,
    TupleGetItem,
    Var,
)
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.scopes import Scope, is_atom, scope_tree
from relaybuild.ir.types import ANY, Dim, RefType, TensorType, TupleType, Type, TypeCall
from relaybuild.ir.visitor import free_vars

Value: TypeAlias = "NDArray[Any] | tuple[Value, ...] | Closure | Constructor | ConstructorValue | Reference"


@dataclass(eq=False, slots=True)
class Frame:
    """One activation of a function: the values of its variables and nodes, by id, and the frame around it."""

    parent: Frame | None = None
    values: dict[int, Value] = field(default_factory=dict)

    def find(self, node: Expr) -> Value | None:
        """The value of a node here or in a frame around, or None."""
        frame: Frame | None = self
        while frame is not None:
            found = frame.values.get(id(node))
            if found is not None:
                return found
            frame = frame.parent
        return None


@dataclass(frozen=True, eq=False, slots=True)
class Closure:
    """A function together with the frame in which it was made and the schedule of the program it stands in."""

    function: Function
    frame: Frame
    schedule: Schedule

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(frozen=True, eq=False, slots=True)
class ConstructorValue:
    """A value of an algebraic data type: who made it, of which fields."""

    constructor: Constructor
    fields: tuple[Value, ...]

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(eq=False, slots=True)
class Reference:
    """A mutable cell."""

    value: Value

    def __repr__(self) -> str:
        return _shown(self)


def interpret(program: IRModule | Expr, *args: Any, entry: str = "main") -> Any:
    """The result of a module's `entry`, of a function, or of an expression over its free variables in order of use.

    Arguments are arrays, or tuples of them where a parameter is a tuple; values of algebraic data types, references
    and closures as an earlier run returned them. Returns the like. Raises UserError where the arguments do not fit the
    parameters, and where a value fits no clause of a partial match.
    """
    mod = program if isinstance(program, IRModule) else IRModule()
    target = program[entry] if isinstance(program, IRModule) else program
    function = target if isinstance(target, Function) else Function(free_vars(target), target)
    values = _checked_args(function, args)
    with np.errstate(all="ignore"):
        return _Machine(mod).run(function, values)


def evaluate_call(call: Call, values: Sequence[Value]) -> Value:
    """An operator applied to values by its reference semantics."""
    if not isinstance(call.op, Op):
        raise InternalError("only calls of operators have reference semantics")
    attrs = call.attrs if call.attrs is not None else call.op.make_attrs({})
    with np.errstate(all="ignore"):
        return _as_value(call.op.evaluate(values, attrs))


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """What is computed in each scope of a program, in order: nodes by the id of a scope, scopes by that of a node."""

    nodes: Mapping[int, Sequence[Expr]]
    inner: Mapping[int, tuple[Scope, ...]]
    machine: _Machine


@dataclass(eq=False, slots=True)
class _Block:
    """A scope that is being run: what is left to compute in it, and the node that gets the value of its tail."""

    nodes: Sequence[Expr]
    scope: Scope
    frame: Frame
    schedule: Schedule
    owner: Expr | None
    position: int = 0


class _Machine:
    """Runs functions of one module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self._schedules: dict[int, Schedule] = {}
        self._steps: Mapping[type[Expr], Callable[[Any, _Block], _Block | None]] = {
            Call: self._call,
            Tuple: self._tuple,
            TupleGetItem: self._field,
            Function: self._function,
            Let: self._let,
            If: self._if,
            Match: self._match,
            RefCreate: self._ref_create,
            RefRead: self._ref_read,
            RefWrite: self._ref_write,
        }

    def run(self, function: Function, args: Sequence[Value]) -> Value:
        """The result of a function that closes over nothing."""
        closure = Closure(function, Frame(), self._schedule(function))
        stack = [self._activation(closure, args, None)]
        while True:
            block = stack[-1]
            if block.position < len(block.nodes):
                node = block.nodes[block.position]
                block.position += 1
                entered = self._steps[type(node)](node, block)
                if entered is not None:
                    stack.append(entered)
                continue
            value = self._value(block.scope.root, block)
            stack.pop()
            if not stack:
                return value
            if block.owner is not None:
                stack[-1].frame.values[id(block.owner)] = value

    def _schedule(self, root: Function) -> Schedule:
        found = self._schedules.get(id(root))
        if found is None:
            tree = scope_tree(root)
            nodes: dict[int, list[Expr]] = {}
            for node in tree.order:
                if not is_atom(node):
                    nodes.setdefault(id(tree.placed[id(node)]), []).append(node)
                if isinstance(node, Let) and tree.inner[id(node)][0] is not tree.placed[id(node)]:
                    nodes.setdefault(id(tree.inner[id(node)][0]), []).append(node)
            found = self._schedules[id(root)] = Schedule(nodes, tree.inner, self)
        return found

    def _activation(self, callee: Value, args: Sequence[Value], owner: Expr | None) -> _Block:
        """The block that computes a closure's result."""
        if not isinstance(callee, Closure):
            raise UserError("a value that is not a function is called")
        function = callee.function
        if len(args) != len(function.params):
            raise UserError(f"a function of {len(function.params)} parameters is called with {len(args)} arguments")
        frame = Frame(callee.frame, {id(param): arg for param, arg in zip(function.params, args)})
        return _entered(callee.schedule.inner[id(function)][0], frame, callee.schedule, owner)

    def _value(self, node: Expr, block: _Block) -> Value:
        if isinstance(node, Constant):
            return node.data
        if isinstance(node, GlobalVar):
            function = block.schedule.machine.mod[node]
            return Closure(function, Frame(), block.schedule.machine._schedule(function))
        if isinstance(node, Constructor):
            return node
        found = block.frame.find(node)
        if found is not None:
            return found
        if isinstance(node, Var):
            raise UserError(f"'%{node.name_hint}' has no value here", where=_where(node))
        raise InternalError(f"a {type(node).__name__} is used before it is evaluated")

    def _call(self, node: Call, block: _Block) -> _Block | None:
        args = [self._value(arg, block) for arg in node.args]
        if isinstance(node.op, Op):
            attrs = node.attrs if node.attrs is not None else node.op.make_attrs({})
            block.frame.values[id(node)] = _as_value(node.op.evaluate(args, attrs))
            return None
        callee = self._value(node.op, block)
        if isinstance(callee, Constructor):
            block.frame.values[id(node)] = ConstructorValue(callee, tuple(args))
            return None
        return self._activation(callee, args, node)

    def _tuple(self, node: Tuple, block: _Block) -> None:
        block.frame.values[id(node)] = tuple(self._value(each, block) for each in node.fields)

    def _field(self, node: TupleGetItem, block: _Block) -> None:
        value = self._value(node.tuple_value, block)
        if not isinstance(value, tuple) or not 0 <= node.index < len(value):
            raise UserError(f"field {node.index} of a value that does not have it", where=_where(node))
        block.frame.values[id(node)] = value[node.index]

    def _function(self, node: Function, block: _Block) -> None:
        block.frame.values[id(node)] = Closure(node, block.frame, block.schedule)

    def _let(self, node: Let, block: _Block) -> _Block | None:
        around, body = block.schedule.inner[id(node)]
        if block.scope is not around:
            return _entered(around, block.frame, block.schedule, node)
        block.frame.values[id(node.var)] = self._value(node.value, block)
        block.nodes, block.scope, block.position = block.schedule.nodes.get(id(body), ()), body, 0
        return None

    def _if(self, node: If, block: _Block) -> _Block:
        cond = self._value(node.cond, block)
        if not isinstance(cond, (np.ndarray, np.generic)) or cond.ndim:
            raise UserError("the condition is not a scalar bool", where=_where(node))
        branch = block.schedule.inner[id(node)][0 if bool(cond) else 1]
        return _entered(branch, block.frame, block.schedule, node)

    def _match(self, node: Match, block: _Block) -> _Block:
        value = self._value(node.data, block)
        for clause, scope in zip(node.clauses, block.schedule.inner[id(node)]):
            bound = _fitted(clause, value)
            if bound is not None:
                block.frame.values.update(bound)
                return _entered(scope, block.frame, block.schedule, node)
        raise UserError(f"no clause of the match fits {_described(value)}", where=_where(node))

    def _ref_create(self, node: RefCreate, block: _Block) -> None:
        block.frame.values[id(node)] = Reference(self._value(node.value, block))

    def _ref_read(self, node: RefRead, block: _Block) -> None:
        block.frame.values[id(node)] = self._cell(node.ref, block).value

    def _ref_write(self, node: RefWrite, block: _Block) -> None:
        self._cell(node.ref, block).value = self._value(node.value, block)
        block.frame.values[id(node)] = ()

    def _cell(self, ref: Expr, block: _Block) -> Reference:
        value = self._value(ref, block)
        if not isinstance(value, Reference):
            raise UserError("a value that is not a reference is read or written", where=_where(ref))
        return value


def _entered(scope: Scope, frame: Frame, schedule: Schedule, owner: Expr | None) -> _Block:
    return _Block(schedule.nodes.get(id(scope), ()), scope, frame, schedule, owner)


def _fitted(clause: Clause, value: Value) -> dict[int, Value] | None:
    """What a clause's pattern binds to parts of the value, by id of the variable; None where it does not fit."""
    bound: dict[int, Value] = {}
    stack: list[tuple[Pattern, Value]] = [(clause.pattern, value)]
    while stack:
        pattern, part = stack.pop()
        if isinstance(pattern, PatternVar):
            bound[id(pattern.var)] = part
        elif isinstance(pattern, PatternConstructor):
            if not isinstance(part, ConstructorValue) or part.constructor != pattern.constructor:
                return None
            stack.extend(zip(pattern.patterns, part.fields))
        elif isinstance(pattern, PatternTuple):
            if not isinstance(part, tuple) or len(part) != len(pattern.patterns):
                return None
            stack.extend(zip(pattern.patterns, part))
    return bound


def _as_value(result: Any) -> Value:
    if isinstance(result, (Closure, Constructor, ConstructorValue, Reference)):
        return result
    return tuple(_as_value(item) for item in result) if isinstance(result, (tuple, list)) else np.asarray(result)


def _checked_args(function: Function, args: Sequence[Any]) -> list[Value]:
    if len(args) != len(function.params):
        names = ", ".join(f"'%{param.name_hint}'" for param in function.params)
        raise UserError(f"got {len(args)} arguments, expected {len(function.params)}: {names or 'none'}")
    values = [_as_value(arg) for arg in args]
    extents: dict[Dim, int] = {}
    for param, value in zip(function.params, values):
        if param.has_type and not _fits(value, param.checked_type, extents):
            known = ", ".join(f"{dim} = {extent}" for dim, extent in extents.items())
            expected = f"{param.checked_type}" + (f" with {known}" if known else "")
            raise UserError(f"'%{param.name_hint}' got {_described(value)}, expected {expected}")
    return values


def _fits(value: Value, kind: Type, extents: dict[Dim, int]) -> bool:
    """Whether a value is of a type; a named extent is one number throughout."""
    if isinstance(kind, TupleType):
        same = isinstance(value, tuple) and len(value) == len(kind.fields)
        return same and isinstance(value, tuple) and all(_fits(v, k, extents) for v, k in zip(value, kind.fields))
    if isinstance(kind, TypeCall):
        return isinstance(value, ConstructorValue) and value.constructor.belongs_to == kind.head
    if isinstance(kind, RefType):
        return isinstance(value, Reference) and _fits(value.value, kind.value, extents)
    if not isinstance(kind, TensorType):
        return True
    if not isinstance(value, np.ndarray) or value.dtype.name != kind.dtype or value.ndim != kind.rank:
        return False
    return all(_same_extent(want, has, extents) for want, has in zip(kind.shape, value.shape))


def _same_extent(wanted: int | Dim, found: int, extents: dict[Dim, int]) -> bool:
    if not isinstance(wanted, Dim):
        return wanted == found
    return wanted == ANY or extents.setdefault(wanted, found) == found


def _described(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return str(TensorType(tuple(value.shape), value.dtype.name))
    if isinstance(value, ConstructorValue):
        fields = ", ".join("…" if isinstance(each, ConstructorValue) else _described(each) for each in value.fields)
        return f"{value.constructor.name}({fields})" if fields else value.constructor.name
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} fields"
    return "a reference" if isinstance(value, Reference) else "a function"


def _shown(value: Value) -> str:
    """A value of any depth as text; a reference that is inside itself is `ref(…)` there."""
    out: list[str] = []
    around: set[int] = set()
    stack: list[Any] = [(value,)]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        elif isinstance(top, int):
            around.discard(top)
        elif isinstance(top[0], Reference) and id(top[0]) in around:
            out.append("ref(…)")
        else:
            if isinstance(top[0], Reference):
                around.add(id(top[0]))
            stack.extend(reversed(_pieces(top[0])))
    return "".join(out)


def _pieces(value: Value) -> list[Any]:
    """Text, values that come between, each in a tuple of its own, and the id of a reference behind what it holds."""
    if isinstance(value, Reference):
        return ["ref(", (value.value,), ")", id(value)]
    if isinstance(value, Closure):
        return [f"<a function of type {value.function._type or 'unknown'}>"]
    if isinstance(value, Constructor):
        return [value.name]
    if not isinstance(value, (tuple, ConstructorValue)):
        return [repr(value)]
    fields = value if isinstance(value, tuple) else value.fields
    name = "" if isinstance(value, tuple) else value.constructor.name
    inner = [piece for each in fields for piece in (", ", (each,))][1:]
    return [f"{name}(", *inner, ",)" if not name and len(fields) == 1 else ")"]


def _where(node: Expr) -> str | None:
    return str(node.span) if node.span else None
