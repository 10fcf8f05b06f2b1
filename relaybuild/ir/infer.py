"""Types of whole modules: what construction could not know, because it depends on a binder, a let or a global.

Construction fills the type of a node whose parts are typed. Here the rest is found, in one walk per function, callees
first. Types are written into the nodes' write-once slots; a node that was typed under other globals is built anew.
Knows nothing of passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relaybuild.errors import TypeCheckError
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.types import ANY, Dim, Extent, FuncType, TensorType, TupleType, Type, TypeVar
from relaybuild.ir.visitor import post_order


def infer_types(mod: IRModule) -> IRModule:
    """The module with every expression typed, the same object unless a node had to be built anew.

    Raises TypeCheckError, which lists all independent mistakes, among them parameters whose type nothing says.
    """
    return _infer(mod, require_all=True)


def complete_types(mod: IRModule) -> IRModule:
    """The module with the types that can be found; raises TypeCheckError for types that contradict each other only."""
    return _infer(mod, require_all=False)


def infer_expr(expr: Expr, signatures: Mapping[str, FuncType] | None = None) -> Expr:
    """A single expression, typed; `signatures` are the types of the globals it names. Raises TypeCheckError."""
    inference = _Inference(signatures or {}, require_all=True)
    found = inference.run(expr)
    _raise_all(inference.errors)
    return found


def _infer(mod: IRModule, require_all: bool) -> IRModule:
    signatures = {
        name: found for name, function in mod.functions.items() if (found := declared_type(function)) is not None
    }
    done: dict[str, Function] = {}
    errors: list[TypeCheckError] = []
    for name in _callees_first(mod):
        inference = _Inference(signatures, require_all)
        function = inference.run(mod[name])
        assert isinstance(function, Function)
        done[name] = function
        errors += inference.errors
        inferred = function._type
        if isinstance(inferred, FuncType):
            signatures.setdefault(name, inferred)
    _raise_all(errors)
    return mod.with_functions(done)


def declared_type(function: Function) -> FuncType | None:
    """The type a function's annotations give it, without looking at its body."""
    params = [param.type_annotation for param in function.params]
    known = [kind for kind in params if kind is not None]
    if function.ret_type is None or len(known) != len(params):
        return None
    return FuncType(tuple(known), function.ret_type, function.type_params)


def calls_of(function: Function) -> list[str]:
    """Names of the globals a function's body mentions, in order of first use."""
    return list(dict.fromkeys(node.name_hint for node in post_order(function) if isinstance(node, GlobalVar)))


def match_type(pattern: Type, found: Type, bindings: dict[object, object]) -> bool:
    """Whether `found` is an instance of `pattern`; binds type variables and named dimensions on the way."""
    if isinstance(pattern, TypeVar):
        return bindings.setdefault(pattern, found) == found
    if isinstance(pattern, TensorType) and isinstance(found, TensorType):
        same_kind = pattern.dtype == found.dtype and pattern.rank == found.rank
        return same_kind and all(_match_extent(a, b, bindings) for a, b in zip(pattern.shape, found.shape))
    if isinstance(pattern, TupleType) and isinstance(found, TupleType):
        return len(pattern.fields) == len(found.fields) and all(
            match_type(a, b, bindings) for a, b in zip(pattern.fields, found.fields)
        )
    if isinstance(pattern, FuncType) and isinstance(found, FuncType):
        pairs = zip((*pattern.arg_types, pattern.ret_type), (*found.arg_types, found.ret_type))
        return len(pattern.arg_types) == len(found.arg_types) and all(match_type(a, b, bindings) for a, b in pairs)
    return pattern == found


def substitute_type(kind: Type, bindings: Mapping[object, object]) -> Type:
    """A type with its variables and named dimensions replaced."""
    if isinstance(kind, TypeVar):
        bound = bindings.get(kind, kind)
        return bound if isinstance(bound, Type) else kind
    if isinstance(kind, TensorType):
        return TensorType(tuple(_substitute_extent(extent, bindings) for extent in kind.shape), kind.dtype)
    if isinstance(kind, TupleType):
        return TupleType(tuple(substitute_type(item, bindings) for item in kind.fields))
    if isinstance(kind, FuncType):
        inner = {name: value for name, value in bindings.items() if name not in kind.type_params}
        args = tuple(substitute_type(item, inner) for item in kind.arg_types)
        return FuncType(args, substitute_type(kind.ret_type, inner), kind.type_params)
    return kind


@dataclass
class _Inference:
    """One walk over one function."""

    signatures: Mapping[str, FuncType]
    require_all: bool
    errors: list[TypeCheckError] = field(default_factory=list)
    types: dict[int, Type | None] = field(default_factory=dict)
    bound: dict[int, Expr] = field(default_factory=dict)

    def run(self, root: Expr) -> Expr:
        order = list(post_order(root))
        self.bound = {id(node.var): node.value for node in order if isinstance(node, Let)}
        for node in order:
            self.types[id(node)] = self._infer_or_report(node)
        return root if self.errors else self._write(root, order)

    def _infer_or_report(self, node: Expr) -> Type | None:
        try:
            return self._type_of(node)
        except TypeCheckError as error:
            self.errors.append(error)
            return None

    def _type_of(self, node: Expr) -> Type | None:
        if isinstance(node, Var):
            return self._variable(node)
        if isinstance(node, GlobalVar):
            return self._global(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Tuple):
            fields = self._known(node.fields)
            return TupleType(tuple(fields)) if fields is not None else None
        if isinstance(node, TupleGetItem):
            return self._field(node)
        if isinstance(node, Function):
            return self._function(node)
        if isinstance(node, Let):
            return self._let(node)
        if isinstance(node, If):
            return self._if(node)
        return node.checked_type

    def _variable(self, node: Var) -> Type | None:
        if node.type_annotation is not None:
            return node.type_annotation
        value = self.bound.get(id(node))
        if value is not None and id(value) in self.types:
            return self.types[id(value)]
        if isinstance(value, Function):
            found = declared_type(value)
            if found is None and self.require_all:
                raise _error(node, f"the recursive function '%{node.name_hint}' must declare its types")
            return found
        if node._type is None and self.require_all:
            raise _error(node, f"nothing says the type of '%{node.name_hint}': write '%{node.name_hint}: type'")
        return node._type

    def _global(self, node: GlobalVar) -> Type | None:
        found = self.signatures.get(node.name_hint)
        if found is None and self.require_all:
            raise _error(
                node, f"the type of '@{node.name_hint}' is not known here: declare its parameters' and result's"
            )
        return found

    def _known(self, nodes: Sequence[Expr]) -> list[Type] | None:
        """The types of all nodes, or None when one is not known."""
        found = [kind for node in nodes if (kind := self.types.get(id(node))) is not None]
        return found if len(found) == len(nodes) else None

    def _call(self, node: Call) -> Type | None:
        args = self._known(node.args)
        if args is None:
            return None
        if isinstance(node.op, Op):
            known = node._type is not None and all(arg._type == kind for arg, kind in zip(node.args, args))
            return node._type if known else node.op.check(args, node.attrs, node.span)
        callee = self.types.get(id(node.op))
        if callee is None:
            return None
        if not isinstance(callee, FuncType):
            raise _error(node, f"a value of type {callee} is called, expected a function")
        return _applied(node, callee, args)

    def _field(self, node: TupleGetItem) -> Type | None:
        found = self.types.get(id(node.tuple_value))
        if found is None:
            return None
        if not isinstance(found, TupleType):
            raise _error(node, f"field {node.index} of {found}, expected a tuple")
        if not 0 <= node.index < len(found.fields):
            raise _error(node, f"field {node.index} of a tuple of {len(found.fields)} fields")
        return found.fields[node.index]

    def _function(self, node: Function) -> Type | None:
        params = [self._parameter(param) for param in node.params]
        body = self.types.get(id(node.body))
        if body is not None and node.ret_type is not None and not match_type(node.ret_type, body, {ANY: ANY}):
            raise _error(node, f"the body has type {body}, expected the declared {node.ret_type}")
        result = node.ret_type if node.ret_type is not None else body
        known = [kind for kind in params if kind is not None]
        if result is None or len(known) != len(params):
            return None
        return FuncType(tuple(known), result, node.type_params)

    def _parameter(self, param: Var) -> Type | None:
        if id(param) not in self.types:
            self.types[id(param)] = self._infer_or_report(param)
        return self.types[id(param)]

    def _let(self, node: Let) -> Type | None:
        declared, found = node.var.type_annotation, self.types.get(id(node.value))
        if declared is not None and found is not None and not match_type(declared, found, {ANY: ANY}):
            raise _error(node, f"'%{node.var.name_hint}' is declared {declared} and bound to a value of type {found}")
        self.types.setdefault(id(node.var), declared or found)
        return self.types.get(id(node.body))

    def _if(self, node: If) -> Type | None:
        cond = self.types.get(id(node.cond))
        if cond is not None and cond != TensorType((), "bool"):
            raise _error(node, f"the condition has type {cond}, expected bool")
        branches = self._known((node.true_branch, node.false_branch))
        if branches is None:
            return None
        if branches[0] != branches[1]:
            raise _error(node, f"the branches have types {branches[0]} and {branches[1]}, expected one type")
        return branches[0]

    def _write(self, root: Expr, order: Sequence[Expr]) -> Expr:
        """Fill the slots; nodes whose slot holds another type are replaced."""
        binders = [param for node in order if isinstance(node, Function) for param in node.params]
        binders += [node.var for node in order if isinstance(node, Let)]
        stale = False
        for node in (*order, *binders):
            found = self.types.get(id(node))
            if found is None or node._type == found:
                continue
            if node._type is None:
                node.set_checked_type(found)
            else:
                stale = True
        return self._rebuild(root, order) if stale else root

    def _rebuild(self, root: Expr, order: Sequence[Expr]) -> Expr:
        fresh: dict[int, Expr] = {}
        for node in order:
            if isinstance(node, (Var, GlobalVar)):
                fresh[id(node)] = self._retyped_leaf(node, fresh)
                continue
            children = [fresh[id(child)] for child in node.children()]
            copy = self._rebind(node, children, fresh)
            if copy is node and node._type != self.types[id(node)]:
                copy = _blank_copy(node)
            found = self.types[id(node)]
            if copy._type is None and found is not None:
                copy.set_checked_type(found)
            fresh[id(node)] = copy
        return fresh[id(root)]

    def _retyped_leaf(self, node: Var | GlobalVar, fresh: dict[int, Expr]) -> Expr:
        found = self.types.get(id(node))
        if id(node) in fresh:
            return fresh[id(node)]
        if found is None or node._type == found:
            return node
        copy: Expr = GlobalVar(node.name_hint, node.span)
        if isinstance(node, Var):
            copy = Var(node.name_hint, node.type_annotation, node.span)
        copy.set_checked_type(found)
        fresh[id(node)] = copy
        return copy

    def _rebind(self, node: Expr, children: Sequence[Expr], fresh: dict[int, Expr]) -> Expr:
        """`with_children`, and binders replaced where they were."""
        if isinstance(node, Function):
            params = [self._retyped_leaf(param, fresh) for param in node.params]
            if any(new is not old for new, old in zip(params, node.params)):
                renewed = [param for param in params if isinstance(param, Var)]
                return Function(renewed, children[0], node.ret_type, node.type_params, node.attrs, node.span)
        if isinstance(node, Let):
            var = self._retyped_leaf(node.var, fresh)
            if var is not node.var and isinstance(var, Var):
                return Let(var, children[0], children[1], node.span)
        return node.with_children(children)


def _blank_copy(node: Expr) -> Expr:
    """The same node built again, so that its type slot is what its children give."""
    if isinstance(node, Call):
        return Call(node.op, node.args, node.attrs, node.span)
    if isinstance(node, Tuple):
        return Tuple(node.fields, node.span)
    if isinstance(node, TupleGetItem):
        return TupleGetItem(node.tuple_value, node.index, node.span)
    if isinstance(node, Function):
        return node.with_body(node.body)
    if isinstance(node, Let):
        return Let(node.var, node.value, node.body, node.span)
    if isinstance(node, If):
        return If(node.cond, node.true_branch, node.false_branch, node.span)
    return node


def _applied(node: Call, callee: FuncType, args: Sequence[Type]) -> Type:
    if len(args) != len(callee.arg_types):
        raise _error(node, f"a function of {len(callee.arg_types)} parameters is called with {len(args)} arguments")
    bindings: dict[object, object] = {ANY: ANY}
    for position, (wanted, found) in enumerate(zip(callee.arg_types, args)):
        if not match_type(wanted, found, bindings):
            raise _error(node, f"argument {position} has type {found}, expected {substitute_type(wanted, bindings)}")
    return substitute_type(callee.ret_type, bindings)


def _callees_first(mod: IRModule) -> Iterable[str]:
    """Names so that a function comes after those it mentions, apart from cycles."""
    done: dict[str, None] = {}
    for start in mod:
        stack: list[tuple[str, bool]] = [(start, False)]
        entered: set[str] = set()
        while stack:
            name, expanded = stack.pop()
            if expanded:
                done.setdefault(name)
            elif name not in done and name not in entered:
                entered.add(name)
                stack.append((name, True))
                stack.extend((callee, False) for callee in reversed(calls_of(mod[name])) if callee in mod)
    return done


def _match_extent(pattern: Extent, found: Extent, bindings: dict[object, object]) -> bool:
    if not isinstance(pattern, Dim):
        return pattern == found
    if pattern == ANY:
        return True
    return bindings.setdefault(pattern, found) == found


def _substitute_extent(extent: Extent, bindings: Mapping[object, object]) -> Extent:
    bound = bindings.get(extent, extent) if isinstance(extent, Dim) else extent
    return bound if isinstance(bound, (int, Dim)) else extent


def _error(node: Expr, message: str) -> TypeCheckError:
    return TypeCheckError(message, where=str(node.span) if node.span else None)


def _raise_all(errors: Sequence[TypeCheckError]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TypeCheckError(f"{len(errors)} type errors:\n" + "\n".join(f"  {error}" for error in errors))
