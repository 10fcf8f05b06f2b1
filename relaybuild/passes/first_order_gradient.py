"""FirstOrderGradient: a function becomes one that also returns the gradients of its result, in reverse mode.

    fn(%x1: T1, ..., %xn: Tn) -> R   becomes   fn(%x1: T1, ..., %xn: Tn) -> (R, (T1, ..., Tn))

The gradient of a tensor is that of the sum of its elements, the gradient of a tuple the sum of its fields' gradients;
integers have zeros. Lets become dataflow first, and calls of functions that do not recurse the bodies called.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError, UserError
from relaybuild.ir import trampoline
from relaybuild.ir.autodiff import is_differentiable, ones_of, pullback, zeros_of
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Let, RefCreate, RefRead, RefWrite, Tuple, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import scope_tree
from relaybuild.ir.visitor import post_order, post_order_over, substitute
from relaybuild.passes._blocks import recursive_lets
from relaybuild.passes._inlining import Introduced, fresh_copy, shallow_copy
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo

_CALLS_ITSELF = "'{}' calls itself: there is no first-order gradient of a recursive function"


@dataclass(frozen=True, repr=False)
class FirstOrderGradient(ModulePass):
    """Adds gradients to the results of `functions`, by default of `main`, or of all where there is no `main`.

    Raises UnsupportedError for recursion, references, and operators without a gradient.
    """

    info: ClassVar[PassInfo] = PassInfo("FirstOrderGradient", 0, ("InferType",))
    functions: tuple[str, ...] = ()

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        names = self.functions or (("main",) if "main" in mod else tuple(mod.functions))
        return infer_types(mod.with_functions({**mod.functions, **{name: gradient(mod[name], mod) for name in names}}))


def gradient(function: Function | GlobalVar, mod: IRModule | None = None) -> Function:
    """The function that returns (result, gradients by parameter); `mod` holds the functions it calls."""
    module = mod if mod is not None else IRModule()
    named = module[function] if isinstance(function, GlobalVar) else function
    if any(not param.has_type for param in named.params) or not named.body.has_type:
        named = infer_types(module.with_function("", named))[""]
    body = _straight(named, module)
    seed = ones_of(body.checked_type)
    found = pullback(body, seed, named.params) if is_differentiable(body.checked_type) else [None] * len(named.params)
    grads = [grad if grad is not None else zeros_of(param.checked_type) for grad, param in zip(found, named.params)]
    return Function(named.params, Tuple([body, Tuple(grads)]), None, named.type_params, named.attrs, named.span)


def _straight(function: Function, mod: IRModule) -> Expr:
    """The body as dataflow: without lets, and with the bodies of called functions in place of the calls."""
    _refuse_recursion(function, mod)
    straightening = _Straightening(mod)
    return straightening.closed(trampoline.run(straightening.flat(function.body, ChainMap())))


def _refuse_recursion(function: Function, mod: IRModule) -> None:
    """An error where a function that is reached reaches itself, or a local one does."""
    waiting = [function, *(mod[name] for name in _reached(function, mod))]
    for each in waiting:
        tree = scope_tree(each)
        recursive = recursive_lets(tree)
        for node in tree.order:
            if isinstance(node, Let) and id(node) in recursive:
                raise UnsupportedError(f"{_where(node)}{_CALLS_ITSELF.format(f'%{node.var.name_hint}')}")


def _reached(function: Function, mod: IRModule) -> list[str]:
    """The globals that a function reaches; a cycle is an error."""
    order: dict[str, None] = {}
    path: dict[str, None] = {}
    stack = [iter(_globals_in(function))]
    while stack:
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
            if path:
                order[path.popitem()[0]] = None
        elif name in path:
            raise UnsupportedError(_CALLS_ITSELF.format(f"@{name}"))
        elif name not in order:
            path[name] = None
            stack.append(iter(_globals_in(mod[name])))
    return list(order)


def _globals_in(function: Function) -> list[str]:
    return list(dict.fromkeys(node.name_hint for node in post_order(function) if isinstance(node, GlobalVar)))


_Values: TypeAlias = "ChainMap[int, Expr]"
"""What nodes have become, by id: of one body, then of those around it."""


@dataclass
class _Straightening:
    """Writes out what functions come to; time and result are linear in what is written out.

    A local function stands as a copy for each time it is come upon, since what it uses from outside may differ.
    """

    mod: IRModule
    closures: dict[int, tuple[Function, _Values]] = field(default_factory=dict)
    """By the id of a copy, which is kept: the copy, and what the nodes around the function have become."""

    def flat(self, body: Expr, values: _Values) -> trampoline.Step[Expr]:
        """What a body comes to where `values` holds what it takes from outside."""
        order = list(post_order_over([body], lambda node: () if id(node) in values else _computed_here(node)))
        bound: dict[int, list[Var]] = {}
        for node in order:
            if isinstance(node, Let):
                bound.setdefault(id(node.value), []).append(node.var)
        for node in order:
            if id(node) not in values:
                flat = self._rebuilt(node, values)
                values[id(node)] = (yield self._applied(flat)) if isinstance(flat, Call) else flat
            for var in bound.get(id(node), ()):
                values[id(var)] = values[id(node)]
        return values[id(body)]

    def _rebuilt(self, node: Expr, values: _Values) -> Expr:
        if isinstance(node, (RefCreate, RefRead, RefWrite)):
            raise UnsupportedError(
                f"{_where(node)}found a reference, expected values only: there is no gradient through it"
            )
        if isinstance(node, Let):
            return values[id(node.body)]
        if isinstance(node, Function):
            copy = shallow_copy(node)
            self.closures[id(copy)] = (copy, values)
            return copy
        return node.with_children([values[id(child)] for child in node.children()])

    def _applied(self, call: Call) -> trampoline.Step[Expr] | Expr:
        """What a call comes to; the call itself where it is not known what is called."""
        function, outside = self.closures.get(id(call.op), (None, ChainMap()))
        if isinstance(call.op, GlobalVar):
            function = self.mod[call.op]
        if function is None:
            return call
        if len(function.params) != len(call.args):
            wanted, found = len(function.params), len(call.args)
            raise UserError(f"{_where(call)}a function of {wanted} parameters is called with {found} arguments")
        values = outside.new_child({id(param): arg for param, arg in zip(function.params, call.args)})
        return self.flat(function.body, values)

    def closed(self, body: Expr) -> Expr:
        """What a body came to, with functions that are values, of which nothing is known to call them, written out."""
        while left := {node: self._function(node) for node in post_order(body) if id(node) in self.closures}:
            body = substitute(body, left)
        return body

    def _function(self, copy: Expr) -> Expr:
        function, outside = self.closures[id(copy)]
        body = trampoline.run(self.flat(function.body, outside.new_child()))
        return fresh_copy(function.with_children((body,)), Introduced())


def _computed_here(node: Expr) -> Sequence[Expr]:
    """Children that are computed where a node is: those of a function wait for its calls."""
    return () if isinstance(node, Function) else node.children()


def _where(node: Expr) -> str:
    return f"{node.span}: " if node.span else ""
