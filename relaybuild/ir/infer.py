"""Types of whole modules: what construction could not know, because it depends on a binder, a let or a global.

Construction fills the type of a node whose parts are typed. Here the rest is found and written into the write-once
slots. A module is not looked at twice, and in a new module no function whose types were found under the same
signatures and definitions. The rules are `relaybuild.ir.typer`'s; knows nothing of passes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.errors import TypeCheckError
from relaybuild.ir.adt import TypeData
from relaybuild.ir.expr import Expr, Function, GlobalVar
from relaybuild.ir.module import IRModule
from relaybuild.ir.retype import Fill, fill_types, rebuild
from relaybuild.ir.typer import Typer
from relaybuild.ir.types import FuncType, Type, is_complete
from relaybuild.ir.visitor import post_order


@dataclass(frozen=True, slots=True)
class _Seal:
    """Under what the types of a function were found: types of the globals it mentions, and the module's definitions."""

    globals: Mapping[str, Type]
    definitions: tuple[TypeData, ...]


_seals: weakref.WeakKeyDictionary[Function, _Seal] = weakref.WeakKeyDictionary()
_inferred: weakref.WeakSet[IRModule] = weakref.WeakSet()


def infer_types(mod: IRModule) -> IRModule:
    """The module with every expression typed, the same object unless a node had to be built anew.

    Raises TypeCheckError, which lists all independent mistakes, among them parameters whose type nothing says.
    """
    if mod in _inferred:
        return mod
    found = _infer(mod, require_all=True)
    # a subclass may change in place
    if type(found) is IRModule:
        _inferred.add(found)
    return found


def complete_types(mod: IRModule) -> IRModule:
    """The module with the types that can be found; raises TypeCheckError for types that contradict each other only."""
    return _infer(mod, require_all=False)


def infer_expr(
    expr: Expr,
    signatures: Mapping[str, FuncType] | None = None,
    definitions: Mapping[str, TypeData] | None = None,
) -> Expr:
    """A single expression, typed; `signatures` are the types of the globals it names. Raises TypeCheckError."""
    typer = Typer(dict(signatures or {}), definitions or {})
    order, _ = typer.walk(expr)
    typer.solve()
    if not typer.errors:
        typer.report_unsolved([order])
    _raise_all(typer.errors)
    return rebuild(expr, typer.final, {}) if fill_types(order, typer.final) is Fill.STALE else expr


def declared_type(function: Function) -> FuncType | None:
    """The type a function's annotations give it, without looking at its body; None where they leave something open."""
    params = [param.type_annotation for param in function.params]
    known = [kind for kind in params if kind is not None and is_complete(kind)]
    if function.ret_type is None or not is_complete(function.ret_type) or len(known) != len(params):
        return None
    return FuncType(tuple(known), function.ret_type, function.type_params)


def calls_of(function: Function) -> list[str]:
    """Names of the globals a function's body mentions, in order of first use."""
    return list(dict.fromkeys(node.name_hint for node in post_order(function) if isinstance(node, GlobalVar)))


def _infer(mod: IRModule, require_all: bool) -> IRModule:
    seals = _seals_of(mod)
    known = _known_types(mod, seals)
    typer = Typer({name: kind for name, kind in known.items() if name in seals}, mod.type_definitions)
    names = _callees_first(mod, [name for name in mod if name not in seals or not _holds(seals[name], known)])
    for name in names:
        if name not in seals:
            typer.declare(name, mod[name])
    walks = {}
    for name in names:
        if name in seals and _holds(seals[name], {each: typer.signature(each) for each in seals[name].globals}):
            typer.adopt(name, mod[name])
            continue
        if name in seals:
            typer.declare(name, mod[name])
        walks[name] = typer.walk(mod[name], name)
    typer.solve()
    if require_all:
        typer.report_unsolved([order for order, _ in walks.values()])
    _raise_all(typer.errors)
    return mod.with_functions({**mod.functions, **_written(mod, walks, typer)})


def _written(mod: IRModule, walks: Mapping[str, tuple[list[Expr], list[str]]], typer: Typer) -> dict[str, Function]:
    """The functions that were walked, their types written down; those that hold nothing open are sealed."""
    done: dict[str, Function] = {}
    fills = {name: fill_types(order, typer.final) for name, (order, _) in walks.items()}
    memo: dict[int, Expr] = {}
    for name, (_, mentions) in walks.items():
        function = rebuild(mod[name], typer.final, memo) if fills[name] is Fill.STALE else mod[name]
        assert isinstance(function, Function)
        done[name] = function
        if fills[name] is not Fill.OPEN and all(param.type_annotation is not None for param in function.params):
            signatures = {each: typer.holes.resolve(typer.signatures[each]) for each in mentions}
            _seals[function] = _Seal(signatures, tuple(mod.type_definitions.values()))
    return done


def _seals_of(mod: IRModule) -> dict[str, _Seal]:
    """The seals of the functions that have one made under the module's definitions."""
    definitions = tuple(mod.type_definitions.values())
    found = {name: seal for name, function in mod.functions.items() if (seal := _seals.get(function)) is not None}
    return {name: seal for name, seal in found.items() if seal.definitions == definitions}


def _known_types(mod: IRModule, seals: Mapping[str, _Seal]) -> dict[str, Type]:
    """The types of functions that are known before any is looked at: declared ones, and those whose seal holds.

    The others' types may turn out to be what they were.
    """
    kinds = {name: each._type if name in seals else declared_type(each) for name, each in mod.functions.items()}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    users: dict[str, list[str]] = {}
    for name, seal in seals.items():
        for mentioned in seal.globals:
            users.setdefault(mentioned, []).append(name)
    unchecked = list(seals)
    while unchecked:
        name = unchecked.pop()
        if name in known and not _holds(seals[name], known) and declared_type(mod[name]) is None:
            del known[name]
            unchecked.extend(users.get(name, ()))
    return known


def _holds(seal: _Seal, known: Mapping[str, Type | None]) -> bool:
    return all(known.get(name) == kind for name, kind in seal.globals.items())


def _callees_first(mod: IRModule, names: Sequence[str]) -> Sequence[str]:
    """The names so that a function comes after those it mentions, apart from cycles; as they are where all declare."""
    if len(names) < 2 or all(declared_type(mod[name]) is not None for name in names):
        return names
    wanted = set(names)
    done: dict[str, None] = {}
    entered: set[str] = set()
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(names)]
    while stack:
        name, expanded = stack.pop()
        if expanded:
            done[name] = None
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((callee, False) for callee in reversed(calls_of(mod[name])) if callee in wanted)
    return list(done)


def _raise_all(errors: Sequence[TypeCheckError]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TypeCheckError(
            f"{len(errors)} type errors:\n" + "\n".join(f"  {error}" for error in errors), errors=errors
        )
