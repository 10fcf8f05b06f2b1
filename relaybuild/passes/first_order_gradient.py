"""FirstOrderGradient: a function becomes one that also returns the gradients of its result, in reverse mode.

    fn(%x1: T1, ..., %xn: Tn) -> R   becomes   fn(%x1: T1, ..., %xn: Tn) -> (R, (T1, ..., Tn))

The gradient of a tensor is that of the sum of its elements, the gradient of a tuple the sum of its fields' gradients;
integers have zeros. Lets become dataflow first, and calls of functions that do not recurse the bodies called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from relaybuild.errors import UnsupportedError, UserError
from relaybuild.ir.autodiff import is_differentiable, ones_of, pullback, zeros_of
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Let, RefCreate, RefRead, RefWrite, Tuple, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order, rewrite, substitute
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo


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
    bodies: dict[str, Expr] = {}
    for name in _callees_first(function, mod):
        bodies[name] = _without_calls(mod[name], bodies, mod)
    return _without_calls(function, bodies, mod)


def _callees_first(function: Function, mod: IRModule) -> list[str]:
    """The globals that a function reaches, each behind those it calls itself; a cycle is an error."""
    order: list[str] = []
    path: list[str] = []
    stack = [iter(_globals_in(function))]
    while stack:
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
            if path:
                order.append(path.pop())
        elif name in path:
            raise UnsupportedError(f"'@{name}' calls itself: there is no first-order gradient of a recursive function")
        elif name not in order:
            path.append(name)
            stack.append(iter(_globals_in(mod[name])))
    return order


def _globals_in(function: Function) -> list[str]:
    return list(dict.fromkeys(node.name_hint for node in post_order(function) if isinstance(node, GlobalVar)))


def _without_calls(function: Function, bodies: Mapping[str, Expr], mod: IRModule) -> Expr:
    body = _as_dataflow(function.body)
    while True:
        inlined = rewrite(body, lambda node: _inlined(node, bodies, mod))
        if inlined is body:
            return body
        body = inlined


def _as_dataflow(root: Expr) -> Expr:
    """Let-bound variables replaced by their values; what a reference does has no place in dataflow."""
    order = list(post_order(root))
    for node in order:
        if isinstance(node, (RefCreate, RefRead, RefWrite)):
            where = f"{node.span}: " if node.span else ""
            raise UnsupportedError(f"{where}found a reference, expected values only: there is no gradient through it")
    values = {id(node.var): node.value for node in order if isinstance(node, Let)}
    done: dict[int, Expr] = {}

    def rule(node: Expr) -> Expr:
        if isinstance(node, Let):
            return node.body
        value = values.get(id(node)) if isinstance(node, Var) else None
        return node if value is None else done.get(id(value), node)

    return rewrite(root, rule, done)


def _inlined(node: Expr, bodies: Mapping[str, Expr], mod: IRModule) -> Expr:
    if not isinstance(node, Call):
        return node
    if isinstance(node.op, Function):
        return _applied(node.op.params, _as_dataflow(node.op.body), node)
    if isinstance(node.op, GlobalVar):
        return _applied(mod[node.op].params, bodies[node.op.name_hint], node)
    return node


def _applied(params: Sequence[Var], body: Expr, call: Call) -> Expr:
    if len(params) != len(call.args):
        raise UserError(f"a function of {len(params)} parameters is called with {len(call.args)} arguments")
    return substitute(body, dict(zip(params, call.args)))
