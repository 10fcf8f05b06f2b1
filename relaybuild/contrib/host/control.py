"""From a module to a first-order program of procedures; knows nothing of kernels, memory or C.

The module is evaluated with its tensors left open: what remains of an operator's call is a call of an operator, while
tuples, lets, projections and functions disappear, for which function is called is known wherever one is. A function
that one call alone names continues in that call's place, and so does one that returns a function; any other becomes a
procedure, once for each set of argument types and of functions that it gets and captures. Captured tensors become
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relaybuild.contrib.host.function_code import FunctionCode, called_once
from relaybuild.contrib.host.instances import result_type
from relaybuild.contrib.host.procedure import Branch, ControlProgram, Invoke, Procedure, Region
from relaybuild.errors import InternalError, UnsupportedError
from relaybuild.ir.adt import Constructor
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Span, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.scopes import Scope
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import FuncType, TensorType, TupleType, Type

MOST_COPIES = 256
"""Procedures made of one function. More are a recursion that never comes to an end of new types or functions."""


_KINDS = {
    "Match": "a match",
    "RefCreate": "a reference",
    "RefRead": "a reference",
    "RefWrite": "a reference",
}
"""What messages call the nodes that have no first-order form."""


def to_procedures(main: Function, module: IRModule) -> ControlProgram:
    """The program that `main` starts, a typed function of `module` or one that calls its functions.

    Parameters and results are tensors, in the order in which they stand in the tuples of `main`. Raises
    UnsupportedError, with the place, for what has no first-order form: a function chosen by a conditional, returned to
    the caller or growing with a recursion, data types, matches and references.
    """
    program = _Program(main, module)
    closure = program.closure_of(main)
    args = [_open(param.checked_type, param.name_hint, param, param) for param in main.params]
    entry = program.register(_key(closure, args), "main", args, {})
    run(program.translate(entry, closure, args))
    return ControlProgram(tuple(program.procedures), frozenset(program.weights), tuple(program.alive))


@dataclass(frozen=True, eq=False)
class _Product:
    """A tuple of values, and an expression of it where there is one."""

    fields: tuple[_Value, ...]
    expr: Expr | None = None


@dataclass(frozen=True, eq=False)
class _Closure:
    """A function, and the activation in which it was made."""

    function: Function
    env: _Env


_Value: TypeAlias = "Expr | _Product | _Closure"


@dataclass(eq=False)
class _Env:
    """One activation of a function: what its nodes and variables are, by id, and the activation around it.

    `owner` is the procedure whose expressions these values are made of.
    """

    code: FunctionCode
    owner: _Translation | None
    parent: _Env | None = None
    values: dict[int, _Value] = field(default_factory=dict)

    def find(self, node: Expr) -> tuple[_Value, _Translation | None] | None:
        """The value of a node here or around, and its owner; None where it has none yet."""
        env: _Env | None = self
        while env is not None:
            found = env.values.get(id(node))
            if found is not None:
                return found, env.owner
            env = env.parent
        return None


@dataclass(eq=False)
class _Specialisation:
    """A procedure of a function, the foreign expressions that it takes beside the arguments' tensors, with its own
    names for them, and the type of its result once it is translated."""

    procedure: Procedure
    captured: tuple[Expr, ...]
    imports: Mapping[int, Var]
    result: Type | None = None


_Key: TypeAlias = tuple[object, ...]


class _Program:
    """The procedures made so far."""

    def __init__(self, main: Function, module: IRModule) -> None:
        self.module = module
        self.procedures: list[Procedure] = []
        self.weights: set[int] = set()
        self.alive: list[Expr] = []
        self._closures: dict[int, _Closure] = {}
        self._known: dict[_Key, _Specialisation] = {}
        self._copies: dict[int, int] = {}
        self._names: set[str] = set()
        codes = self._reachable(main)
        self._codes = {id(code.tree.root.root): code for code in codes.values()}
        entry = next((name for name in module if module[name] is main), None)
        self.once = called_once(codes, entry)

    def _reachable(self, main: Function) -> dict[str, FunctionCode]:
        """The code of every function that can be called, by name; that of `main` under its own or the empty name."""
        name_of = {id(self.module[name]): name for name in self.module}
        codes = {name_of.get(id(main), ""): FunctionCode(main)}
        pending = list(codes.values())
        while pending:
            for node in pending.pop().tree.order:
                if isinstance(node, GlobalVar) and node.name_hint not in codes:
                    codes[node.name_hint] = FunctionCode(self.module[node.name_hint])
                    pending.append(codes[node.name_hint])
        return codes

    def closure_of(self, function: Function) -> _Closure:
        """A global function as a value."""
        if id(function) not in self._closures:
            env = _Env(self._codes[id(function)], None)
            self._closures[id(function)] = _Closure(function, env)
        return self._closures[id(function)]

    def is_weight(self, expr: Expr) -> bool:
        """Whether an expression is computed from constants alone."""
        return isinstance(expr, Constant) or id(expr) in self.weights

    def register(self, key: _Key, name: str, args: Sequence[_Value], captured: Mapping[int, Expr]) -> _Specialisation:
        """A new procedure over the tensors of `args`, which are its variables, and those captured."""
        imports = {number: Var("captured", expr.checked_type, expr.span) for number, expr in captured.items()}
        params = [leaf for arg in args for leaf in _tensors(arg)]
        procedure = Procedure(self._unique(name), (*(p for p in params if isinstance(p, Var)), *imports.values()))
        self.procedures.append(procedure)
        self._known[key] = _Specialisation(procedure, tuple(captured.values()), imports)
        return self._known[key]

    def known(self, key: _Key) -> _Specialisation | None:
        return self._known.get(key)

    def translate(self, made: _Specialisation, closure: _Closure, args: Sequence[_Value]) -> Step[None]:
        """Fill the body of a new procedure."""
        translation = _Translation(self, made)
        region = made.procedure.body
        result = yield translation.body(closure, args, region)
        region.results = tuple(_first_order(result, closure.function))
        made.result = _type_of(result)

    def count(self, function: Function, at: Expr) -> None:
        """Note one more procedure of a function."""
        self._copies[id(function)] = self._copies.get(id(function), 0) + 1
        if self._copies[id(function)] > MOST_COPIES:
            raise _unsupported(at, "this recursion calls itself with ever new functions or types, which has no end")

    def _unique(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique


class _Translation:
    """The making of one procedure's body."""

    def __init__(self, program: _Program, made: _Specialisation) -> None:
        self.program = program
        self.made = made
        self._emitted: set[int] = set()
        self._active: set[int] = set()

    def body(self, closure: _Closure, args: Sequence[_Value], region: Region) -> Step[_Value]:
        """The value of a function's body over values of this procedure."""
        function = closure.function
        env = _Env(closure.env.code, self, closure.env)
        env.values.update((id(param), arg) for param, arg in zip(function.params, args))
        added = id(function) not in self._active
        self._active.add(id(function))
        result: _Value = yield self._scope(env.code.body_of(function), env, region)
        if added:
            self._active.discard(id(function))
        return result

    def _scope(self, scope: Scope, env: _Env, region: Region) -> Step[_Value]:
        """The value of a scope's tail expression, behind what the scope computes."""
        while True:
            rest: Scope | None = None
            for node in env.code.nodes_of(scope):
                if isinstance(node, Let) and env.code.tree.inner[id(node)][0] is scope:
                    env.values[id(node.var)] = self._value(node.value, env)
                    rest = env.code.tree.inner[id(node)][1]
                else:
                    env.values[id(node)] = yield self._node(node, env, region)
            if rest is None:
                return self._value(scope.root, env)
            scope = rest

    def _node(self, node: Expr, env: _Env, region: Region) -> Step[_Value]:
        if isinstance(node, Call):
            if isinstance(node.op, Op):
                return self._operator(node, env, region)
            called: _Value = yield self._call(node, env, region)
            return called
        if isinstance(node, Tuple):
            return _product([self._value(item, env) for item in node.fields], node)
        if isinstance(node, TupleGetItem):
            return self._field(node, env)
        if isinstance(node, Function):
            return _Closure(node, env)
        if isinstance(node, If):
            chosen: _Value = yield self._if(node, env, region)
            return chosen
        if isinstance(node, Let):
            result: _Value = yield self._let(node, env, region)
            return result
        raise _unsupported(node, f"{_KINDS.get(type(node).__name__, type(node).__name__)} has no native code")

    def _let(self, node: Let, env: _Env, region: Region) -> Step[_Value]:
        """The value of a let that stands inside an expression."""
        block, body = env.code.tree.inner[id(node)]
        for inner in env.code.nodes_of(block):
            env.values[id(inner)] = yield self._node(inner, env, region)
        env.values[id(node.var)] = self._value(node.value, env)
        result: _Value = yield self._scope(body, env, region)
        return result

    def _value(self, node: Expr, env: _Env) -> _Value:
        if isinstance(node, Constant):
            return node
        if isinstance(node, GlobalVar):
            return self.program.closure_of(self.program.module[node])
        if isinstance(node, Constructor):
            raise _unsupported(node, f"the constructor '{node.name}' has no native code")
        found = env.find(node)
        if found is None:
            name = f"'%{node.name_hint}'" if isinstance(node, Var) else f"a {type(node).__name__}"
            raise InternalError(f"{name} is used before it has a value", where=_where(node.span))
        value, owner = found
        return value if owner is self else self._import(value)

    def _import(self, value: _Value) -> _Value:
        """A value made for another procedure, as this one sees it."""
        if isinstance(value, _Closure):
            return value
        if isinstance(value, _Product):
            return _product([self._import(item) for item in value.fields], value.expr)
        return self.local(value)

    def local(self, expr: Expr) -> Expr:
        """The variable that holds a captured tensor; anything else as it is."""
        return self.made.imports.get(id(expr), expr)

    def _operator(self, node: Call, env: _Env, region: Region) -> _Value:
        args = [_reified(self._value(arg, env), arg) for arg in node.args]
        call = node.with_children(args)
        if id(call) in self._emitted:
            call = Call(node.op, args, node.attrs, node.span)
        self._emit(call, region)
        found = call.checked_type
        if not isinstance(found, TupleType):
            return call
        fields = [TupleGetItem(call, index, node.span) for index in range(len(found.fields))]
        for item in fields:
            self._emit(item, region)
        return _Product(tuple(fields), call)

    def _emit(self, expr: Expr, region: Region) -> None:
        self._emitted.add(id(expr))
        self.program.alive.append(expr)
        leaves = [leaf for child in expr.children() for leaf in _tensors(_unpacked(child))]
        if all(self.program.is_weight(leaf) for leaf in leaves):
            self.program.weights.add(id(expr))
        else:
            region.entries.append(expr)

    def _field(self, node: TupleGetItem, env: _Env) -> _Value:
        value = self._value(node.tuple_value, env)
        if not isinstance(value, _Product):
            raise InternalError(f"field {node.index} of a value that is no tuple", where=_where(node.span))
        return value.fields[node.index]

    def _if(self, node: If, env: _Env, region: Region) -> Step[_Value]:
        cond = _tensor(self._value(node.cond, env), node.cond)
        scopes = env.code.tree.inner[id(node)]
        if isinstance(cond, Constant):
            taken: _Value = yield self._scope(scopes[0 if cond.data else 1], env, region)
            return taken
        branches = (Region(), Region())
        values: list[_Value] = []
        for scope, branch in zip(scopes, branches):
            values.append((yield self._scope(scope, env, branch)))
        results: list[tuple[Var, Expr, Expr]] = []
        merged = _merge(values[0], values[1], node, results)
        if results:
            branches[0].results = tuple(first for _, first, _ in results)
            branches[1].results = tuple(second for _, _, second in results)
            region.entries.append(Branch(cond, branches, tuple(var for var, _, _ in results), node.span))
        return merged

    def _call(self, node: Call, env: _Env, region: Region) -> Step[_Value]:
        assert isinstance(node.op, Expr)
        if isinstance(node.op, Constructor):
            raise _unsupported(node, f"a value of a data type, made by '{node.op.name}', has no native code")
        callee = self._value(node.op, env)
        if not isinstance(callee, _Closure):
            raise _unsupported(node, "the host backend cannot tell which function is called here")
        args = [self._value(arg, env) for arg in node.args]
        function = callee.function
        result = _result_type(function, args, node)
        returns_function = _has_function(result)
        if id(function) not in self._active and (returns_function or id(function) in self.program.once):
            inlined: _Value = yield self.body(callee, args, region)
            return inlined
        if returns_function:
            raise _unsupported(node, "a recursive function that returns a function has no native code")
        invoked: _Value = yield self._invoke(callee, args, result, node, region)
        return invoked

    def _invoke(
        self, callee: _Closure, args: Sequence[_Value], result: Type, node: Call, region: Region
    ) -> Step[_Value]:
        key = _key(callee, args)
        made = self.program.known(key)
        if made is None:
            self.program.count(callee.function, node)
            opened = [
                arg if isinstance(arg, _Closure) else _open(_type_of(arg), param.name_hint, node)
                for param, arg in zip(callee.function.params, args)
            ]
            captured = self._captured([callee, *args])
            name = node.op.name_hint if isinstance(node.op, (Var, GlobalVar)) else "closure"
            made = self.program.register(key, name, opened, captured)
            yield self.program.translate(made, callee, opened)
        passed = [leaf for arg in args for leaf in _tensors(arg)]
        passed += [self.local(expr) for expr in made.captured]
        value = _open(made.result or result, "result", node)
        results = tuple(leaf for leaf in _tensors(value) if isinstance(leaf, Var))
        region.entries.append(Invoke(made.procedure, tuple(passed), results, node.span))
        return value

    def _captured(self, values: Sequence[_Value]) -> dict[int, Expr]:
        """The tensors that the functions among values capture, theirs in turn too, as their makers know them."""
        found: dict[int, Expr] = {}
        seen: set[tuple[int, int]] = set()
        stack = [closure for value in values for closure in _closures(value)]
        while stack:
            closure = stack.pop()
            if _identity(closure) in seen:
                continue
            seen.add(_identity(closure))
            for node in closure.env.code.captured(closure.function):
                held = closure.env.find(node)
                if held is None:
                    continue
                stack.extend(_closures(held[0]))
                for leaf in _tensors(held[0]):
                    if not self.program.is_weight(leaf):
                        found.setdefault(id(leaf), leaf)
        return found


def _key(closure: _Closure, args: Sequence[_Value]) -> _Key:
    """What a procedure depends on: the function with its activation, and the types and functions it gets."""
    return (*_identity(closure), *(_form(arg) for arg in args))


def _identity(closure: _Closure) -> tuple[int, int]:
    return id(closure.function), id(closure.env)


def _form(value: _Value) -> object:
    if isinstance(value, _Closure):
        return _identity(value)
    if isinstance(value, _Product):
        return tuple(_form(item) for item in value.fields)
    return value.checked_type


def _tensors(value: _Value) -> Iterator[Expr]:
    """The tensors of a value, in order."""
    stack: list[_Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Product):
            stack.extend(reversed(item.fields))
        elif isinstance(item, Expr):
            yield item


def _closures(value: _Value) -> Iterator[_Closure]:
    stack: list[_Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Product):
            stack.extend(reversed(item.fields))
        elif isinstance(item, _Closure):
            yield item


def _product(fields: Sequence[_Value], expr: Expr | None) -> _Product:
    """A tuple; `expr` stays where it is a tuple of just these."""
    same = isinstance(expr, Tuple) and all(new is old for new, old in zip(fields, expr.fields))
    return _Product(tuple(fields), expr if same else None)


def _unpacked(expr: Expr) -> _Value:
    return _Product(tuple(_unpacked(item) for item in expr.fields)) if isinstance(expr, Tuple) else expr


def _tensor(value: _Value, at: Expr) -> Expr:
    if isinstance(value, Expr):
        return value
    raise InternalError("a tuple or a function where a tensor is wanted", where=_where(at.span))


def _reified(value: _Value, at: Expr) -> Expr:
    """A value as an operator's argument."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, _Closure):
        raise _unsupported(at, "an operator over a function has no native code")
    if value.expr is not None:
        return value.expr
    return Tuple([_reified(item, at) for item in value.fields])


def _open(kind: Type, name: str, at: Expr, like: Var | None = None) -> _Value:
    """New variables for the tensors of a type; `like` itself where it is a tensor's."""
    if isinstance(kind, TensorType):
        if not kind.is_static:
            raise _unsupported(at, f"'%{name}' has type {kind}, expected a tensor of known shape")
        return like if like is not None else Var(name, kind, at.span)
    if isinstance(kind, TupleType):
        return _Product(tuple(_open(item, f"{name}.{number}", at) for number, item in enumerate(kind.fields)))
    raise _unsupported(at, f"'%{name}' has type {kind}, expected tensors and tuples of them")


def _type_of(value: _Value) -> Type:
    if isinstance(value, _Product):
        return TupleType(tuple(_type_of(item) for item in value.fields))
    return value.function.checked_type if isinstance(value, _Closure) else value.checked_type


def _result_type(function: Function, args: Sequence[_Value], call: Call) -> Type:
    """The type of a call's result: the function's, for these arguments."""
    kind = function.checked_type
    if not isinstance(kind, FuncType) or len(kind.arg_types) != len(args):
        raise InternalError(f"a call of a function of type {kind} with {len(args)} arguments", where=_where(call.span))
    return result_type(kind, [_type_of(arg) for arg in args])


def _has_function(kind: Type) -> bool:
    stack = [kind]
    while stack:
        item = stack.pop()
        if isinstance(item, FuncType):
            return True
        stack.extend(item.fields if isinstance(item, TupleType) else ())
    return False


def _merge(first: _Value, second: _Value, node: If, results: list[tuple[Var, Expr, Expr]]) -> _Value:
    """One value for those of two branches; its tensors are appended to `results`, each with both sources."""
    if first is second:
        return first
    if isinstance(first, _Product) and isinstance(second, _Product):
        return _Product(tuple(_merge(a, b, node, results) for a, b in zip(first.fields, second.fields)))
    if isinstance(first, Expr) and isinstance(second, Expr):
        results.append((Var("if", first.tensor_type, node.span), first, second))
        return results[-1][0]
    if isinstance(first, _Closure) and isinstance(second, _Closure) and _identity(first) == _identity(second):
        return first
    raise _unsupported(node, "this conditional chooses between functions; let it choose between their results")


def _first_order(value: _Value, function: Function) -> list[Expr]:
    """The tensors of a procedure's result."""
    if next(_closures(value), None) is not None:
        raise _unsupported(function.body, "a function that is returned to the caller has no native code")
    return list(_tensors(value))


def _unsupported(node: Expr, message: str) -> UnsupportedError:
    return UnsupportedError(message, where=_where(node.span))


def _where(span: Span | None) -> str | None:
    return str(span) if span else None
