"""From a module to a first-order program of procedures; knows nothing of kernels, memory or C.

The module is evaluated with its tensors left open: what remains of an operator's call is a call of an operator, while
tuples, lets, projections and functions disappear, for which function is called is known wherever one is: where a
conditional chooses it, a call is a conditional over calls. A function that one call alone names continues in that
call's place, and so does one that returns a function; any other becomes a procedure, once for each set of argument
types and of functions that it gets and captures. Captured tensors become parameters. A function that another backend
compiles is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from relaybuild.contrib.host.function_code import FunctionCode, called_once
from relaybuild.contrib.host.instances import result_type
from relaybuild.contrib.host.open_values import (
    Choice,
    Closure,
    Env,
    Merged,
    Product,
    Value,
    closures,
    conditions,
    form,
    has_function,
    identity,
    mapped,
    merge,
    product,
    tensors,
    type_of,
    unpacked,
)
from relaybuild.contrib.host.procedure import Branch, ControlProgram, Foreign, Invoke, Procedure, Region, defined
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UnsupportedError
from relaybuild.ir.adt import Constructor
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Span, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.scopes import Scope
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import FuncType, TensorType, TupleType, Type
from relaybuild.partition.backend import HOST, flat_types

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
    UnsupportedError, with the place, for what has no first-order form (a function that is returned to the caller or
    grows with a recursion, data types, matches, references) and for tensors whose shape is not known.
    """
    program = _Program(main, module)
    closure = program.closure_of(main)
    args = [_open(param.checked_type, param.name_hint, param, param) for param in main.params]
    entry = program.register(_key(closure, args), "main", args, {})
    run(program.translate(entry, closure, args))
    return ControlProgram(tuple(program.procedures), frozenset(program.weights), tuple(program.alive))


@dataclass(eq=False)
class _Specialisation:
    """A procedure of a function, the foreign expressions that it takes beside the arguments' tensors, with its own
    names for them, and the type of its result once it is translated."""

    procedure: Procedure
    captured: tuple[Expr, ...]
    imports: Mapping[int, Var]
    result: Type | None = None


_Key: TypeAlias = tuple[object, ...]
_Way: TypeAlias = Callable[[Region], Step[Value]]
"""What fills a branch with code, and the value that it has there."""


class _Program:
    """The procedures made so far."""

    def __init__(self, main: Function, module: IRModule) -> None:
        self.module = module
        self.procedures: list[Procedure] = []
        self.weights: set[int] = set()
        self.alive: list[Expr] = []
        self._closures: dict[int, Closure] = {}
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

    def closure_of(self, function: Function) -> Closure:
        """A global function as a value."""
        if id(function) not in self._closures:
            env = Env(self._codes[id(function)], None)
            self._closures[id(function)] = Closure(function, env)
        return self._closures[id(function)]

    def is_weight(self, expr: Expr) -> bool:
        """Whether an expression is computed from constants alone."""
        return isinstance(expr, Constant) or id(expr) in self.weights

    def register(self, key: _Key, name: str, args: Sequence[Value], captured: Mapping[int, Expr]) -> _Specialisation:
        """A new procedure over the tensors of `args`, which are its variables, and those captured."""
        imports = {number: Var("captured", expr.checked_type, expr.span) for number, expr in captured.items()}
        params = [leaf for arg in args for leaf in tensors(arg)]
        procedure = Procedure(self._unique(name), (*(p for p in params if isinstance(p, Var)), *imports.values()))
        self.procedures.append(procedure)
        self._known[key] = _Specialisation(procedure, tuple(captured.values()), imports)
        return self._known[key]

    def known(self, key: _Key) -> _Specialisation | None:
        return self._known.get(key)

    def translate(self, made: _Specialisation, closure: Closure, args: Sequence[Value]) -> Step[None]:
        """Fill the body of a new procedure."""
        translation = _Translation(self, made)
        region = made.procedure.body
        result = yield translation.body(closure, args, region)
        region.results = tuple(_first_order(result, closure.function))
        made.result = type_of(result)

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
        self._here: dict[int, Expr] = dict(made.imports)
        """What stands here, by id, for tensors of other procedures and of branches that are closed."""

    def body(self, closure: Closure, args: Sequence[Value], region: Region) -> Step[Value]:
        """The value of a function's body over values of this procedure."""
        function = closure.function
        env = Env(closure.env.code, self, closure.env)
        env.values.update((id(param), arg) for param, arg in zip(function.params, args))
        added = id(function) not in self._active
        self._active.add(id(function))
        result: Value = yield self._scope(env.code.body_of(function), env, region)
        if added:
            self._active.discard(id(function))
        return result

    def _scope(self, scope: Scope, env: Env, region: Region) -> Step[Value]:
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

    def _node(self, node: Expr, env: Env, region: Region) -> Step[Value]:
        if isinstance(node, Call):
            if isinstance(node.op, Op):
                return self._operator(node, env, region)
            called: Value = yield self._call(node, env, region)
            return called
        if isinstance(node, Tuple):
            return product([self._value(item, env) for item in node.fields], node)
        if isinstance(node, TupleGetItem):
            return self._field(node, env)
        if isinstance(node, Function):
            return Closure(node, env)
        if isinstance(node, If):
            chosen: Value = yield self._if(node, env, region)
            return chosen
        if isinstance(node, Let):
            result: Value = yield self._let(node, env, region)
            return result
        raise _unsupported(node, f"{_KINDS.get(type(node).__name__, type(node).__name__)} has no native code")

    def _let(self, node: Let, env: Env, region: Region) -> Step[Value]:
        """The value of a let that stands inside an expression."""
        block, body = env.code.tree.inner[id(node)]
        for inner in env.code.nodes_of(block):
            env.values[id(inner)] = yield self._node(inner, env, region)
        env.values[id(node.var)] = self._value(node.value, env)
        result: Value = yield self._scope(body, env, region)
        return result

    def _value(self, node: Expr, env: Env) -> Value:
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
        return value if owner is self and not self._here else mapped(value, self.local)

    def local(self, expr: Expr) -> Expr:
        """What holds a tensor of another procedure, or of a branch, here; anything else as it is."""
        while id(expr) in self._here:
            expr = self._here[id(expr)]
        return expr

    def _operator(self, node: Call, env: Env, region: Region) -> Value:
        args = [_reified(self._value(arg, env), arg) for arg in node.args]
        call = node.with_children(args)
        if id(call) in self._emitted:
            call = Call(node.op, args, node.attrs, node.span)
        self._emit(call, region)
        found = call.checked_type
        for kind in flat_types(found):
            _check_known(kind, f"the result of '{node.op_name}'", node)
        if not isinstance(found, TupleType):
            return call
        fields = [TupleGetItem(call, index, node.span) for index in range(len(found.fields))]
        for item in fields:
            self._emit(item, region)
        return Product(tuple(fields), call)

    def _emit(self, expr: Expr, region: Region) -> None:
        self._emitted.add(id(expr))
        self.program.alive.append(expr)
        leaves = [leaf for child in expr.children() for leaf in tensors(unpacked(child))]
        if all(self.program.is_weight(leaf) for leaf in leaves):
            self.program.weights.add(id(expr))
        else:
            region.entries.append(expr)

    def _field(self, node: TupleGetItem, env: Env) -> Value:
        value = self._value(node.tuple_value, env)
        if not isinstance(value, Product):
            raise InternalError(f"field {node.index} of a value that is no tuple", where=_where(node.span))
        return value.fields[node.index]

    def _if(self, node: If, env: Env, region: Region) -> Step[Value]:
        cond = _tensor(self._value(node.cond, env), node.cond)
        scopes = env.code.tree.inner[id(node)]
        if isinstance(cond, Constant):
            taken: Value = yield self._scope(scopes[0 if cond.data else 1], env, region)
            return taken
        ways = [partial(self._scope, scope, env) for scope in scopes]
        chosen: Value = yield self._branch(cond, ways, node, region)
        return chosen

    def _branch(self, cond: Expr, ways: Sequence[_Way], at: Expr, region: Region) -> Step[Value]:
        """The value of a conditional, given what fills each of its branches."""
        branches = (Region(), Region())
        values: list[Value] = []
        for way, branch in zip(ways, branches):
            values.append((yield way(branch)))
        results: list[Merged] = []
        merged = merge(values[0], values[1], cond, at, results)
        for number, value in enumerate(values):
            self._export(value, branches[number], number, results)
        if results:
            branches[0].results = tuple(first for _, first, _ in results)
            branches[1].results = tuple(second for _, _, second in results)
            region.entries.append(Branch(cond, branches, tuple(var for var, _, _ in results), at.span))
        return mapped(merged, self.local)

    def _export(self, value: Value, branch: Region, number: int, results: list[Merged]) -> None:
        """Make results of the tensors of branch `number` by which its functions outlive it."""
        functions = list(closures(value))
        if not functions:
            return
        made = set(defined(branch))
        names = {id(result[1 + number]): result[0] for result in results}
        for leaf in map(self.local, (*self._captured(functions).values(), *conditions(value))):
            if id(leaf) in made:
                if id(leaf) not in names:
                    names[id(leaf)] = Var("kept", leaf.tensor_type, leaf.span)
                    results.append((names[id(leaf)], None if number else leaf, leaf if number else None))
                self._here[id(leaf)] = names[id(leaf)]

    def _call(self, node: Call, env: Env, region: Region) -> Step[Value]:
        assert isinstance(node.op, Expr)
        if isinstance(node.op, Constructor):
            raise _unsupported(node, f"a value of a data type, made by '{node.op.name}', has no native code")
        callee = self._value(node.op, env)
        args = [self._value(arg, env) for arg in node.args]
        result: Value = yield self._apply(callee, args, node, region)
        return result

    def _apply(self, callee: Value, args: Sequence[Value], node: Call, region: Region) -> Step[Value]:
        """The value of a call of a function or of one that is chosen."""
        if isinstance(callee, Choice):
            ways = [partial(self._apply, function, args, node) for function in callee.functions]
            chosen: Value = yield self._branch(callee.cond, ways, node, region)
            return chosen
        if not isinstance(callee, Closure):
            raise _unsupported(node, "the host backend cannot tell which function is called here")
        function = callee.function
        result = _result_type(function, args, node)
        foreign = _foreign(function)
        if foreign is not None:
            return self._emit_call(foreign, [leaf for arg in args for leaf in tensors(arg)], result, node, region)
        returns_function = has_function(result)
        if id(function) not in self._active and (returns_function or id(function) in self.program.once):
            inlined: Value = yield self.body(callee, args, region)
            return inlined
        if returns_function:
            raise _unsupported(node, "a recursive function that returns a function has no native code")
        invoked: Value = yield self._invoke(callee, args, result, node, region)
        return invoked

    def _invoke(self, callee: Closure, args: Sequence[Value], result: Type, node: Call, region: Region) -> Step[Value]:
        key = _key(callee, args)
        made = self.program.known(key)
        if made is None:
            self.program.count(callee.function, node)
            opened = [_opened(arg, param.name_hint, node) for param, arg in zip(callee.function.params, args)]
            captured = self._captured([callee, *args])
            name = node.op.name_hint if isinstance(node.op, (Var, GlobalVar)) else "closure"
            made = self.program.register(key, name, opened, captured)
            yield self.program.translate(made, callee, opened)
        passed = [leaf for arg in args for leaf in tensors(arg)]
        passed += [self.local(expr) for expr in made.captured]
        return self._emit_call(made.procedure, passed, made.result or result, node, region)

    def _emit_call(
        self, callee: Procedure | Foreign, args: Sequence[Expr], result: Type, node: Call, region: Region
    ) -> Value:
        value = _open(result, "result", node)
        results = tuple(leaf for leaf in tensors(value) if isinstance(leaf, Var))
        region.entries.append(Invoke(callee, tuple(args), results, node.span))
        return value

    def _captured(self, values: Sequence[Value]) -> dict[int, Expr]:
        """The tensors that the functions among values capture, theirs in turn too, as their makers know them."""
        found: dict[int, Expr] = {}
        seen: set[tuple[int, int]] = set()
        stack = [closure for value in values for closure in closures(value)]
        while stack:
            closure = stack.pop()
            if identity(closure) in seen:
                continue
            seen.add(identity(closure))
            for node in closure.env.code.captured(closure.function):
                held = closure.env.find(node)
                if held is None:
                    continue
                stack.extend(closures(held[0]))
                for leaf in tensors(held[0]):
                    if not self.program.is_weight(leaf):
                        found.setdefault(id(leaf), leaf)
        return found


def _foreign(function: Function) -> Foreign | None:
    """What a function is that another backend compiles."""
    compiler, symbol = function.attrs.get("Compiler"), function.attrs.get("global_symbol")
    if not isinstance(compiler, str) or compiler == HOST:
        return None
    if not isinstance(symbol, str):
        message = f"a function for the compiler '{compiler}' has no 'global_symbol', expected a name"
        raise _unsupported(function, message)
    return Foreign(symbol, compiler)


def _key(closure: Closure, args: Sequence[Value]) -> _Key:
    """What a procedure depends on: the function with its activation, and the types and functions it gets."""
    return (*identity(closure), *(form(arg) for arg in args))


def _tensor(value: Value, at: Expr) -> Expr:
    if isinstance(value, Expr):
        return value
    raise InternalError("a tuple or a function where a tensor is wanted", where=_where(at.span))


def _reified(value: Value, at: Expr) -> Expr:
    """A value as an operator's argument."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (Closure, Choice)):
        raise _unsupported(at, "an operator over a function has no native code")
    if value.expr is not None:
        return value.expr
    return Tuple([_reified(item, at) for item in value.fields])


def _open(kind: Type, name: str, at: Expr, like: Var | None = None) -> Value:
    """New variables for the tensors of a type; `like` itself where it is a tensor's."""
    if isinstance(kind, TensorType):
        _check_known(kind, f"'%{name}'", at)
        return like if like is not None else Var(name, kind, at.span)
    if isinstance(kind, TupleType):
        return Product(tuple(_open(item, f"{name}.{number}", at) for number, item in enumerate(kind.fields)))
    raise _unsupported(at, f"'%{name}' has type {kind}, expected tensors and tuples of them")


def _opened(value: Value, name: str, at: Expr) -> Value:
    """A value of a new procedure, with variables for its tensors."""
    return mapped(value, lambda leaf: Var(name, leaf.tensor_type, at.span))


def _check_known(kind: TensorType, what: str, at: Expr) -> None:
    """Every shape is known before memory is planned."""
    for number, extent in enumerate(kind.shape):
        if not isinstance(extent, int):
            name = "" if extent.name == "?" else f" ('{extent.name}')"
            raise _unsupported(
                at,
                f"{what} has type {kind}, whose dimension {number}{name} is not known when the host "
                "compiles: give the inputs' shapes (--shape), or numbers in the annotations it comes from",
            )


def _result_type(function: Function, args: Sequence[Value], call: Call) -> Type:
    """The type of a call's result: the function's, for these arguments."""
    kind = function.checked_type
    if not isinstance(kind, FuncType) or len(kind.arg_types) != len(args):
        raise InternalError(f"a call of a function of type {kind} with {len(args)} arguments", where=_where(call.span))
    return result_type(kind, [type_of(arg) for arg in args])


def _first_order(value: Value, function: Function) -> list[Expr]:
    """The tensors of a procedure's result."""
    if next(closures(value), None) is not None:
        raise _unsupported(function.body, "a function that is returned to the caller has no native code")
    return list(tensors(value))


def _unsupported(node: Expr, message: str) -> UnsupportedError:
    return UnsupportedError(message, where=_where(node.span))


def _where(span: Span | None) -> str | None:
    return str(span) if span else None
