"""The typing rules: what each kind of node asks of its parts, and gives; knows nothing of modules or of slots.

One walk over each function, callees first, gives every node a type, in which holes stand for what is not known yet.
A rule that needs more than it knows (an operator's relation, a tuple's field) waits for the hole and is tried again
when it is filled. A polymorphic value is instantiated where it is called; within its own definition it has one type,
unless it declares its types in full.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from relaybuild.errors import InternalError, TypeCheckError
from relaybuild.ir.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
    pattern_vars,
)
from relaybuild.ir.exhaustive import uncovered_example
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
from relaybuild.ir.op import Op
from relaybuild.ir.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    is_complete,
    type_children,
    unbound_type_vars,
)
from relaybuild.ir.unify import POISON, Holes, Mode, extent_names

_ENTER, _BIND, _FINISH = range(3)
_Event: TypeAlias = "tuple[Expr, int]"
_BOOL = TensorType((), "bool")
_UNIT = TupleType(())
_RESULT, _PARAMETER = 1, 2


class Typer:
    """Types of the nodes of several functions, by id; the caller keeps the nodes alive.

    `signatures` are the types of globals, kept up as functions are finished; `definitions` the algebraic data types.
    """

    def __init__(self, signatures: dict[str, Type], definitions: Mapping[str, TypeData]) -> None:
        self.signatures = signatures
        self.definitions = definitions
        self.holes = Holes()
        self.types: dict[int, Type] = {}
        self.errors: list[TypeCheckError] = []
        self._results: dict[int, Type] = {}
        self._pending: dict[int, IncompleteType] = {}
        self._origins: dict[IncompleteType, tuple[int, Expr, str]] = {}
        self._fallbacks: list[Var] = []
        self._globals: list[GlobalVar] = []
        self._undefined: list[GlobalVar] = []
        self._polymorphic: list[Call] = []
        self._arguments: list[IncompleteType] = []
        self._matches: list[Match] = []
        self._waiting_for_extents: list[Call | TupleGetItem] = []
        self._fixed: Collection[str] = ()
        self._parameters: dict[str, int] = {}
        self._rules: Mapping[type[Expr], Callable[[Any], Type]] = {
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
        self._leaves: Mapping[type[Expr], Callable[[Any], Type]] = {
            Var: self._variable,
            GlobalVar: self._global,
            Constructor: self._constructor,
            Constant: lambda node: node.checked_type,
        }

    def declare(self, name: str, function: Function) -> None:
        """Make a function's type, as far as it is declared, known to those that are walked before it."""
        self._set_signature(name, self._skeleton(function, f"@{name}"))

    def adopt(self, name: str, function: Function) -> None:
        """Take over the type that a function has, without walking it."""
        self._set_signature(name, function.checked_type)

    def signature(self, name: str) -> Type | None:
        """What is known of a global's type by now."""
        found = self.signatures.get(name)
        return None if found is None else self.holes.resolve(found)

    def _set_signature(self, name: str, kind: Type) -> None:
        before = self.signatures.get(name)
        self.signatures[name] = kind
        if before is not None:
            self.holes.unify(before, kind)

    def walk(self, root: Expr, name: str | None = None) -> tuple[list[Expr], list[str]]:
        """Give every node of a root a type; the nodes, children before parents, and the globals it mentions.

        `name` is that of a global function, whose signature is then known.
        """
        self._fixed = _fixed_names(root)
        order: list[Expr] = []
        mentions: dict[str, None] = {}
        entered: set[int] = set()
        types, rules, leaves, ready = self.types, self._rules, self._leaves, self.holes.ready
        stack: list[_Event] = [(root, _ENTER)]
        while stack:
            node, phase = stack.pop()
            key = id(node)
            if phase == _ENTER:
                if key in entered:
                    continue
                entered.add(key)
                if isinstance(node, Call):
                    stack.append((node, _FINISH))
                    stack.extend([(arg, _ENTER) for arg in reversed(node.args) if id(arg) not in entered])
                    if not isinstance(node.op, Op):
                        stack.append((node.op, _ENTER))
                    continue
                leaf = leaves.get(type(node))
                if leaf is None:
                    stack.extend(self._events(node))
                    continue
                order.append(node)
                if isinstance(node, GlobalVar):
                    mentions[node.name_hint] = None
                    self._globals.append(node)
                if key not in types:
                    types[key] = leaf(node)
            elif phase == _FINISH:
                order.append(node)
                if key not in types:
                    types[key] = rules[type(node)](node)
                    if ready:
                        self._drain()
            elif key not in types:
                self._bind(node)
        if name is not None:
            self.signatures[name] = types[id(root)]
        return order, list(mentions)

    def solve(self) -> None:
        """Fill what the walks left open.

        First from what nodes were known to be before; then with `?` for extents, and with `()` for type arguments on
        which nothing depends, as that of an empty list that nobody looks into.
        """
        self._drain()
        for node in (*self._fallbacks, *self._polymorphic):
            kind = self.types[id(node)]
            if node._type is not None and any(True for _ in self.holes.unsolved(kind)):
                self.holes.unify(kind, node._type)
                self._drain()
        self.holes.settle_extents()
        for waiting in list(self._waiting_for_extents):
            self._retry(waiting)
        self._drain()
        for hole in self._arguments:
            self.holes.settle(hole, _UNIT)
        for match in self._matches:
            self._check_coverage(match)
        for name in self._globals:
            self.types[id(name)] = self.signatures[name.name_hint]

    def final(self, node: Expr) -> Type | None:
        """The type of a node after `solve`; None where something in it is not known."""
        found = self.holes.resolve(self.types[id(node)])
        return None if self.holes.is_open(found) else found

    def report_unsolved(self, roots: Sequence[Sequence[Expr]]) -> None:
        """An error for every global that is not defined, or every parameter, or every result, of unknown type."""
        for undefined in self._undefined:
            self._error(undefined, f"'@{undefined.name_hint}' is not defined")
        if self._undefined:
            return
        reported: set[IncompleteType] = set()
        for order in roots:
            found = self._unsolved(order)
            highest = max((self._origins[hole][0] for hole in found if hole in self._origins), default=0)
            for hole in found:
                rank, node, message = self._origins.get(hole, (0, order[-1], ""))
                if hole not in reported and rank == highest and rank:
                    self._error(node, message)
                reported.add(hole)
            if found and not self.errors:
                self._error(order[-1], "nothing says the types in it: annotate its parameters and variables")

    def _unsolved(self, order: Sequence[Expr]) -> list[IncompleteType]:
        if not self.holes.any_left:
            return []
        kinds = (self.types[id(part)] for node in order for part in (*node.binders(), node))
        return [hole for hole in dict.fromkeys(self.holes.unsolved(*kinds)) if hole is not POISON]

    # the walk

    def _events(self, node: Expr) -> list[_Event]:
        """What is to be done for a node that is not a call, last first."""
        if isinstance(node, Let):
            if id(node) not in self.types and isinstance(node.value, Function):
                self._announce(node.var, node.value)
            return [(node, _FINISH), (node.body, _ENTER), (node, _BIND), (node.value, _ENTER)]
        if isinstance(node, Match):
            bodies: list[_Event] = [(clause.body, _ENTER) for clause in reversed(node.clauses)]
            return [(node, _FINISH), *bodies, (node, _BIND), (node.data, _ENTER)]
        if isinstance(node, Function) and id(node) not in self.types:
            self._enter_function(node)
        if type(node) not in self._rules:
            raise InternalError(f"no typing rule for a {type(node).__name__}")
        return [(node, _FINISH), *((child, _ENTER) for child in reversed(node.children()))]

    def _bind(self, node: Expr) -> None:
        if isinstance(node, Let):
            self._bind_let(node)
        elif isinstance(node, Match):
            before = len(self.errors)
            for clause in node.clauses:
                self._bind_pattern(node, clause)
            if node.complete and len(self.errors) == before:
                self._matches.append(node)
        if self.holes.ready:
            self._drain()

    def _drain(self) -> None:
        ready = self.holes.ready
        while ready:
            self._retry(ready.popleft())

    def _retry(self, node: Call | TupleGetItem) -> None:
        result = self._pending[id(node)]
        found = self._apply_op(node) if isinstance(node, Call) else self._project(node)
        if found is not result and not self.holes.unify(result, found, Mode.JOIN):
            self._error(node, f"found {self._shown(found)}, expected {self._shown(result)}", result)

    # leaves

    def _variable(self, node: Var) -> Type:
        if node.type_annotation is not None:
            return self._annotated(node.type_annotation, node)
        self._fallbacks.append(node)
        return self._hole(
            _PARAMETER, node, f"nothing says the type of '%{node.name_hint}': write '%{node.name_hint}: type'"
        )

    def _binder(self, var: Var) -> Type:
        """The type of a variable where it is bound."""
        if id(var) not in self.types:
            self.types[id(var)] = self._variable(var)
        return self.types[id(var)]

    def _global(self, node: GlobalVar) -> Type:
        name = node.name_hint
        if name not in self.signatures:
            self.signatures[name] = self.holes.fresh()
            self._undefined.append(node)
        return self.signatures[name]

    def _constructor(self, node: Constructor) -> Type:
        data = self.definitions.get(node.belongs_to.name)
        if data is None:
            if node._type is not None:
                return node._type
            return self._error(
                node, f"constructor '{node.name}' belongs to type '{node.belongs_to}', which is not defined"
            )
        found = data.find_constructor(node.name)
        if found is None:
            return self._error(node, f"type '{data.name}' has no constructor '{node.name}'")
        return found.checked_type

    # inner nodes

    def _call(self, node: Call) -> Type:
        types = self.types
        if not isinstance(node.op, Op):
            return self._call_function(node, node.op)
        if node._type is not None:
            for arg in node.args:
                if types[id(arg)] is not arg._type and types[id(arg)] != arg._type:
                    break
            else:
                return node._type
        return self._apply_op(node)

    def _apply_op(self, node: Call) -> Type:
        assert isinstance(node.op, Op)
        args = []
        for arg in node.args:
            kind = self.types[id(arg)]
            if self.holes.is_open(kind):
                kind = self.holes.resolve(kind)
                if self.holes.is_open(kind) and self._must_wait(node, kind):
                    return self._pending[id(node)]
            args.append(kind)
        try:
            return node.op.check(args, node.attrs, node.span)
        except TypeCheckError as error:
            self.errors.append(error)
            return POISON

    def _must_wait(self, node: Call | TupleGetItem, kind: Type) -> bool:
        """Whether a resolved type has a hole for which the node must wait; its result is then pending."""
        hole = next(iter(self.holes.unsolved(kind)), None)
        if hole is None and not self.holes.has_open_extents(kind):
            return False
        if id(node) not in self._pending:
            self._pending[id(node)] = self.holes.fresh()
        if hole is POISON:
            self._pending[id(node)] = POISON
        elif hole is not None:
            self.holes.wait(hole, node)
        else:
            self._waiting_for_extents.append(node)
        return True

    def _call_function(self, node: Call, callee: Expr) -> Type:
        kind = self.holes.head(self.types[id(callee)])
        args = [self.types[id(arg)] for arg in node.args]
        if kind is POISON:
            return POISON
        if isinstance(kind, IncompleteType):
            result = self.holes.fresh()
            if not self.holes.unify(kind, self.holes.compose(FuncType(tuple(args), result))):
                message = f"{_named(callee)} is called with itself: its type would have no end"
                return self._error(node, message, kind, result, *args)
            return result
        if not isinstance(kind, FuncType):
            return self._error(node, f"a value of type {self._shown(kind)} is called, expected a function")
        if len(args) != len(kind.arg_types):
            message = f"a function of {len(kind.arg_types)} parameters is called with {len(args)} arguments"
            return self._error(node, f"{message}, in a call of {_named(callee)}")
        if not kind.type_params and kind.arg_types == tuple(args):
            return kind.ret_type
        return self._call_instance(node, callee, kind, args)

    def _call_instance(self, node: Call, callee: Expr, kind: FuncType, args: Sequence[Type]) -> Type:
        fixed = () if isinstance(callee, GlobalVar) else self._fixed
        resolved = self.holes.resolve(kind)
        assert isinstance(resolved, FuncType)
        instance = self.holes.instantiate(resolved, fixed)
        if resolved.type_params:
            self._note_arguments(node, callee, instance)
        for position, (wanted, found) in enumerate(zip(instance.arg_types, args)):
            if not self.holes.unify(wanted, found):
                message = f"argument {position} has type {self._shown(found)}, expected {self._shown(wanted)}"
                return self._error(node, f"{message}, in a call of {_named(callee)}", instance, *args)
        return self.holes.resolve(instance.ret_type)

    def _note_arguments(self, node: Call, callee: Expr, instance: FuncType) -> None:
        """Remember the type arguments of a polymorphic call, which its arguments or its result's use must say."""
        self._polymorphic.append(node)
        message = f"nothing says the type argument of {_named(callee)}: annotate the variable that holds its result"
        for hole in self.holes.unsolved(instance):
            if hole not in self._origins:
                self._origins[hole] = (_RESULT, node, message)
                self._arguments.append(hole)

    def _tuple(self, node: Tuple) -> Type:
        types = [self.types[id(field)] for field in node.fields]
        if node._type is not None and all(kind is field._type for kind, field in zip(types, node.fields)):
            return node._type
        return self.holes.compose(TupleType(tuple(types)))

    def _field(self, node: TupleGetItem) -> Type:
        return self._project(node)

    def _project(self, node: TupleGetItem) -> Type:
        found = self.holes.head(self.types[id(node.tuple_value)])
        if isinstance(found, IncompleteType):
            if found is POISON:
                return POISON
            self._must_wait(node, found)
            return self._pending[id(node)]
        if not isinstance(found, TupleType):
            return self._error(node, f"field {node.index} of {self._shown(found)}, expected a tuple")
        if not 0 <= node.index < len(found.fields):
            return self._error(node, f"field {node.index} of a tuple of {len(found.fields)} fields")
        return found.fields[node.index]

    def _enter_function(self, node: Function) -> None:
        self._enter_parameters(node)
        for param in node.params:
            self._binder(param)
            self._check_scope(param.type_annotation, param)
        self._check_scope(node.ret_type, node)
        if id(node) not in self._results and node.ret_type is not None:
            self._results[id(node)] = self._annotated(node.ret_type, node)

    def _enter_parameters(self, node: Function) -> None:
        for parameter in node.type_params:
            count = self._parameters.get(parameter.name, 0)
            if count:
                self._error(node, f"the type parameter '{parameter.name}' hides that of a function around it")
            self._parameters[parameter.name] = count + 1

    def _check_scope(self, annotation: Type | None, node: Expr) -> None:
        """Every type parameter that a type speaks of must be one of a function around it."""
        if annotation is None or isinstance(annotation, TensorType):
            return
        known = [TypeVar(name) for name, count in self._parameters.items() if count]
        for name in dict.fromkeys(unbound_type_vars(annotation, known)):
            self._error(node, f"the type {annotation} speaks of '{name}', a parameter of no function around it")

    def _function(self, node: Function) -> Type:
        for parameter in node.type_params:
            self._parameters[parameter.name] -= 1
        params = tuple(self.types[id(param)] for param in node.params)
        body = self.types[id(node.body)]
        result = self._results.get(id(node))
        if result is None:
            result = body
        elif not self.holes.unify(result, body):
            wanted = f"the declared {self._shown(result)}"
            if isinstance(self.holes.head(result), IncompleteType):
                wanted = "one that does not hold the function's own result: the type would have no end"
            self._error(node, f"the body has type {self._shown(body)}, expected {wanted}", body, result)
        kind = FuncType(params, result, node.type_params)
        return node._type if node._type == kind and node._type is not None else self.holes.compose(kind)

    def _skeleton(self, function: Function, name: str) -> Type:
        """The type of a function before its body has been seen: polymorphic only where it is declared in full."""
        declared = function.ret_type
        if declared is not None and is_complete(declared) and all(param.type_annotation for param in function.params):
            annotations = [param.type_annotation for param in function.params if param.type_annotation is not None]
            if all(is_complete(kind) for kind in annotations):
                return FuncType(tuple(annotations), declared, function.type_params)
        params = [self._binder(param) for param in function.params]
        result = self._results.get(id(function))
        if result is None and declared is not None:
            result = self._annotated(declared, function)
        elif result is None:
            result = self._hole(_RESULT, function, f"nothing says the result type of '{name}': write '-> type'")
        self._results[id(function)] = result
        return self.holes.compose(FuncType(tuple(params), result))

    def _announce(self, var: Var, value: Function) -> None:
        if var.type_annotation is not None:
            self._binder(var)
        elif id(value) not in self.types:
            self.types.setdefault(id(var), self._skeleton(value, f"%{var.name_hint}"))

    def _bind_let(self, node: Let) -> None:
        var, found = node.var, self.types[id(node.value)]
        if var.type_annotation is None:
            known = self.types.get(id(var))
            self.types[id(var)] = found
            if known is not None and not isinstance(node.value, Function):
                self.holes.unify(known, found)
            return
        declared = self._binder(var)
        self._check_scope(var.type_annotation, var)
        if not self.holes.unify(declared, found):
            message = f"'%{var.name_hint}' is declared {self._shown(declared)} and bound to a value of type"
            self._error(node, f"{message} {self._shown(found)}", declared, found)

    def _let(self, node: Let) -> Type:
        return self.types[id(node.body)]

    def _if(self, node: If) -> Type:
        cond, then, other = (self.types[id(child)] for child in node.children())
        if not self.holes.unify(_BOOL, cond):
            self._error(node, f"the condition has type {self._shown(cond)}, expected bool", cond)
        if not self.holes.unify(then, other, Mode.JOIN):
            message = f"the branches have types {self._shown(then)} and {self._shown(other)}, expected one type"
            return self._error(node, message, then, other)
        return self.holes.joined(then, other)

    def _match(self, node: Match) -> Type:
        kinds = [self.types[id(clause.body)] for clause in node.clauses]
        if not kinds:
            return self._hole(_RESULT, node, "nothing says the type of a match without clauses: annotate its variable")
        result = kinds[0]
        for position, kind in enumerate(kinds[1:], 1):
            if not self.holes.unify(result, kind, Mode.JOIN):
                message = f"clause {position} has type {self._shown(kind)}, expected {self._shown(result)} as before"
                return self._error(node, message, result, kind)
            result = self.holes.joined(result, kind)
        return result

    def _ref_create(self, node: RefCreate) -> Type:
        value = self.types[id(node.value)]
        if node._type is not None and value is node.value._type:
            return node._type
        return self.holes.compose(RefType(value))

    def _ref_read(self, node: RefRead) -> Type:
        return self._cell(node, node.ref)

    def _ref_write(self, node: RefWrite) -> Type:
        wanted, found = self._cell(node, node.ref), self.types[id(node.value)]
        if not self.holes.unify(wanted, found):
            message = f"a value of type {self._shown(found)} is written to a cell of {self._shown(wanted)}"
            self._error(node, message, wanted, found)
        return _UNIT

    def _cell(self, node: Expr, ref: Expr) -> Type:
        """The type of what a cell holds."""
        found = self.holes.head(self.types[id(ref)])
        if isinstance(found, RefType):
            return found.value
        if found is POISON:
            return POISON
        value = self.holes.fresh()
        if self.holes.unify(self.holes.compose(RefType(value)), found):
            return value
        return self._error(node, f"found a value of type {self._shown(found)}, expected a reference")

    # patterns

    def _bind_pattern(self, node: Match, clause: Clause) -> None:
        stack = [(clause.pattern, self.types[id(node.data)])]
        while stack:
            pattern, kind = stack.pop()
            if isinstance(pattern, PatternVar):
                self._bind_pattern_var(node, pattern.var, kind)
            elif isinstance(pattern, PatternConstructor):
                inputs = self._constructor_fields(node, pattern, kind)
                stack.extend(zip(pattern.patterns, inputs))
            elif isinstance(pattern, PatternTuple):
                stack.extend(zip(pattern.patterns, self._tuple_fields(node, pattern, kind)))
        for var in pattern_vars(clause.pattern):
            self.types.setdefault(id(var), POISON)

    def _bind_pattern_var(self, node: Match, var: Var, kind: Type) -> None:
        if var.type_annotation is None:
            self.types[id(var)] = kind
            return
        declared = self._binder(var)
        self._check_scope(var.type_annotation, var)
        if not self.holes.unify(declared, kind):
            message = f"'%{var.name_hint}' is declared {self._shown(declared)} and matched with a value of type"
            self._error(node, f"{message} {self._shown(kind)}", declared, kind)

    def _constructor_fields(self, node: Match, pattern: PatternConstructor, kind: Type) -> Sequence[Type]:
        constructor = pattern.constructor
        found = self.holes.head(self._constructor(constructor))
        if not isinstance(found, FuncType):
            return ()
        instance = self.holes.instantiate(found)
        if not self.holes.unify(instance.ret_type, kind):
            message = f"the pattern '{constructor.name}' fits values of type {self._shown(instance.ret_type)}"
            self._error(node, f"{message}, found {self._shown(kind)}", kind)
            return ()
        if len(instance.arg_types) != len(pattern.patterns):
            count = len(instance.arg_types)
            self._error(node, f"the pattern '{constructor.name}' has {len(pattern.patterns)} fields, expected {count}")
            return ()
        return [self.holes.resolve(arg) for arg in instance.arg_types]

    def _tuple_fields(self, node: Match, pattern: PatternTuple, kind: Type) -> Sequence[Type]:
        fields = tuple(self.holes.fresh() for _ in pattern.patterns)
        wanted = TupleType(fields)
        self.holes.compose(wanted)
        if self.holes.unify(wanted, kind):
            return [self.holes.resolve(field) for field in fields]
        self._error(node, f"a pattern of {len(fields)} fields, found a value of type {self._shown(kind)}", kind)
        return ()

    def _check_coverage(self, match: Match) -> None:
        missing = uncovered_example([clause.pattern for clause in match.clauses], self.definitions)
        if missing is not None:
            self._error(match, f"no clause of the match fits {missing}: add one, or write 'match?'")

    # holes, annotations, errors

    def _hole(self, rank: int, node: Expr, message: str) -> IncompleteType:
        hole = self.holes.fresh(rank)
        self._origins[hole] = (rank, node, message)
        return hole

    def _annotated(self, kind: Type, node: Expr) -> Type:
        """A type as it was written: checked, its holes known."""
        if isinstance(kind, TensorType):
            return kind
        stack = [kind]
        complete = True
        while stack:
            top = stack.pop()
            stack.extend(type_children(top))
            complete = complete and not isinstance(top, IncompleteType)
            if isinstance(top, (TypeCall, GlobalTypeVar)):
                self._check_type_call(top, node)
        return kind if complete else self.holes.note(kind)

    def _check_type_call(self, kind: TypeCall | GlobalTypeVar, node: Expr) -> None:
        name, count = (kind.head.name, len(kind.args)) if isinstance(kind, TypeCall) else (kind.name, 0)
        data = self.definitions.get(name)
        if data is None:
            self._error(node, f"the type '{name}' is not defined")
        elif len(data.type_vars) != count:
            self._error(node, f"the type {kind} has {count} arguments, expected {len(data.type_vars)}")

    def _shown(self, kind: Type) -> Type:
        return self.holes.resolve(kind)

    def _error(self, node: Expr, message: str, *involved: Type) -> Type:
        """Report once; the holes of the types involved can no longer be known."""
        self.errors.append(TypeCheckError(message, where=str(node.span) if node.span else None))
        self.holes.poison(*involved)
        return POISON


def _fixed_names(root: Expr) -> Collection[str]:
    """The names of extents that stand for one number throughout a function: those of its parameters."""
    if not isinstance(root, Function):
        return ()
    annotations = [param.type_annotation for param in root.params if param.type_annotation is not None]
    return {name for kind in annotations for name in extent_names(kind)}


def _named(callee: Expr) -> str:
    if isinstance(callee, GlobalVar):
        return f"'@{callee.name_hint}'"
    if isinstance(callee, Var):
        return f"'%{callee.name_hint}'"
    return f"'{callee.name}'" if isinstance(callee, Constructor) else "a function"
