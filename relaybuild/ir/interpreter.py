"""Runs a program by the reference semantics of its operators, in numpy; knows nothing of backends or speed.

Evaluation is by demand and remembers, per activation of a function, what it has computed, so that a shared node is
computed once, only the branch taken is evaluated, and neither long graphs nor deep recursion touch Python's stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import InternalError, UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import TensorType, Type
from relaybuild.ir.visitor import free_vars

Value: TypeAlias = "NDArray[Any] | tuple[Value, ...] | Closure"


@dataclass(eq=False)
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


@dataclass(frozen=True, eq=False)
class Closure:
    """A function together with the frame in which it was made."""

    function: Function
    frame: Frame


def interpret(program: IRModule | Expr, *args: Any, entry: str = "main") -> Any:
    """The result of a module's `entry`, of a function, or of an expression over its free variables in order of use.

    Arguments are arrays, or tuples of them where a parameter is a tuple. Returns an array, or a tuple of them.
    Raises UserError where the arguments do not fit the parameters.
    """
    interpreter = _Interpreter(program if isinstance(program, IRModule) else IRModule())
    target = program[entry] if isinstance(program, IRModule) else program
    function = target if isinstance(target, Function) else Function(free_vars(target), target)
    with np.errstate(all="ignore"):
        return run(interpreter.apply(Closure(function, Frame()), _checked_args(function, args)))


def evaluate_call(call: Call, values: Sequence[Value]) -> Value:
    """An operator applied to values by its reference semantics."""
    if not isinstance(call.op, Op):
        raise InternalError("only calls of operators have reference semantics")
    attrs = call.attrs if call.attrs is not None else call.op.make_attrs({})
    with np.errstate(all="ignore"):
        return _as_value(call.op.evaluate(values, attrs))


@dataclass
class _Interpreter:
    mod: IRModule

    def apply(self, closure: Value, args: Sequence[Value]) -> Step[Value]:
        """The result of calling a closure."""
        if not isinstance(closure, Closure):
            raise UserError("a value that is not a function is called")
        function = closure.function
        if len(args) != len(function.params):
            raise UserError(f"a function of {len(function.params)} parameters is called with {len(args)} arguments")
        frame = Frame(closure.frame, {id(param): arg for param, arg in zip(function.params, args)})
        return self._evaluate(function.body, frame)

    def _evaluate(self, root: Expr, frame: Frame) -> Step[Value]:
        stack = [root]
        while stack:
            node = stack[-1]
            if frame.find(node) is not None:
                stack.pop()
                continue
            needed = [other for other in self._needs(node, frame) if frame.find(other) is None]
            if needed:
                stack.extend(reversed(needed))
            elif isinstance(node, Call) and isinstance(node.op, Expr):
                callee, *args = (self._value(child, frame) for child in node.children())
                frame.values[id(node)] = yield self.apply(callee, args)
            else:
                frame.values[id(node)] = self._finish(node, frame)
        return self._value(root, frame)

    def _needs(self, node: Expr, frame: Frame) -> Sequence[Expr]:
        """What must be evaluated before a node, as far as it is known yet."""
        if isinstance(node, Function):
            return ()
        if isinstance(node, If):
            cond = frame.find(node.cond)
            return (node.cond,) if cond is None else (self._branch(node, cond),)
        if isinstance(node, Let):
            value = frame.find(node.value)
            if value is None:
                return (node.value,)
            frame.values[id(node.var)] = value
            return (node.body,)
        return node.children()

    def _finish(self, node: Expr, frame: Frame) -> Value:
        if isinstance(node, Constant):
            return node.data
        if isinstance(node, Call):
            return evaluate_call(node, [self._value(arg, frame) for arg in node.args])
        if isinstance(node, Tuple):
            return tuple(self._value(item, frame) for item in node.fields)
        if isinstance(node, TupleGetItem):
            return self._field(node, self._value(node.tuple_value, frame))
        if isinstance(node, Function):
            return Closure(node, frame)
        if isinstance(node, GlobalVar):
            return Closure(self.mod[node], Frame())
        if isinstance(node, Let):
            return self._value(node.body, frame)
        if isinstance(node, If):
            return self._value(self._branch(node, self._value(node.cond, frame)), frame)
        if isinstance(node, Var):
            raise UserError(f"'%{node.name_hint}' has no value here")
        raise InternalError(f"no semantics of a {type(node).__name__}")

    def _value(self, node: Expr, frame: Frame) -> Value:
        found = frame.find(node)
        if found is None:
            raise InternalError(f"a {type(node).__name__} is used before it is evaluated")
        return found

    def _branch(self, node: If, cond: Value) -> Expr:
        if not isinstance(cond, np.ndarray) or cond.ndim:
            raise UserError("the condition is not a scalar bool")
        return node.true_branch if bool(cond) else node.false_branch

    def _field(self, node: TupleGetItem, value: Value) -> Value:
        if not isinstance(value, tuple) or node.index >= len(value):
            raise UserError(f"field {node.index} of a value that does not have it")
        return value[node.index]


def _as_value(result: Any) -> Value:
    return tuple(_as_value(item) for item in result) if isinstance(result, (tuple, list)) else np.asarray(result)


def _checked_args(function: Function, args: Sequence[Any]) -> list[Value]:
    if len(args) != len(function.params):
        names = ", ".join(f"'%{param.name_hint}'" for param in function.params)
        raise UserError(f"got {len(args)} arguments, expected {len(function.params)}: {names or 'none'}")
    values = [arg if isinstance(arg, Closure) else _as_value(arg) for arg in args]
    for param, value in zip(function.params, values):
        if param.has_type and not _fits(value, param.checked_type):
            raise UserError(f"'%{param.name_hint}' got {_described(value)}, expected {param.checked_type}")
    return values


def _fits(value: Value, kind: Type) -> bool:
    if not isinstance(kind, TensorType) or not isinstance(value, np.ndarray):
        return not isinstance(kind, TensorType)
    same = value.dtype.name == kind.dtype and value.ndim == kind.rank
    return same and all(not isinstance(want, int) or want == has for want, has in zip(kind.shape, value.shape))


def _described(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return str(TensorType(tuple(value.shape), value.dtype.name))
    return "a tuple" if isinstance(value, tuple) else "a function"
