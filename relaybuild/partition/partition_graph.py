"""PartitionGraph: each region becomes a function of the module that a backend compiles, and marks are gone.

A region's function has the attributes `Compiler` (the tag), `global_symbol` (its name), `Primitive` and `Inline`. It is
called once, where the region was. Its parameters are what the region is given, each once, tuples field by field;
constants stand in it, or are handed to it where they are large. Of several results it returns a tuple, in which tuples
are field by field too and nothing stands twice. What is marked for the host stays as it is.

    compiler_end(nn.relu(compiler_begin(%x, "a")), "a")  ->  @relaybuild_default_a_main_0(%x)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import TupleType
from relaybuild.ir.visitor import free_vars, post_order
from relaybuild.partition.backend import all_backends
from relaybuild.partition.constants import with_constants_outside
from relaybuild.partition.regions import Regions, read_regions, region_number, unit_graph
from relaybuild.passes._blocks import is_sealed
from relaybuild.passes._effects import find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone

PREFIX = "relaybuild"


@dataclass(frozen=True)
class Plan:
    """The regions of one function, by number the names of the functions to come, and whether references play a part."""

    regions: Regions
    names: Sequence[str]
    has_effects: bool


@dataclass(frozen=True, repr=False)
class PartitionGraph(ModulePass):
    """A region's function is named after `mod_name`, which may be empty, its compiler, the function that it was in,
    and its number there.

    Without `bind_constants`, constants are handed to it. With a `bind_limit`, weights of more bytes are, also those in
    the body of a pattern's function, so that what is generated for the region does not depend on their values.
    """

    info: ClassVar[PassInfo] = PassInfo("PartitionGraph", 0, ("InferType",))
    mod_name: str | None = "default"
    bind_constants: bool = True
    bind_limit: int | None = None

    def __post_init__(self) -> None:
        if self.mod_name and not re.fullmatch(r"[A-Za-z0-9_]+", self.mod_name):
            raise UserError(
                f"'mod_name' is '{self.mod_name}', which becomes part of symbols: use letters, digits and '_' alone"
            )

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        done = dict(mod.functions)
        for name, plan in self.plan(mod).items():
            cutter = _Cutter(plan.regions, plan.names, self._binds, self._lifts, plan.has_effects)
            done[name] = cutter.run() if plan.names else plan.regions.function
            done.update(cutter.functions)
        return mod.with_functions(done)

    def plan(self, mod: IRModule) -> dict[str, Plan]:
        """What will be cut out of each function, and what it will be named. Raises UserError for marks that contradict
        each other."""
        effects = find_effects(mod)
        taken = set(mod)
        plans: dict[str, Plan] = {}
        for name, function in mod.functions.items():
            if is_left_alone(function) or is_sealed(function):
                continue
            has_effects = bool(effects[name].own)
            regions = _with_calls(read_regions(function, in_order=has_effects))
            names = [self._name(tag, name, number, taken) for number, tag in enumerate(regions.tags)]
            plans[name] = Plan(regions, names, has_effects)
        return plans

    def _binds(self, constant: Constant) -> bool:
        """Whether a constant that a region is given stands in its function."""
        return self.bind_constants and not self._lifts(constant)

    def _lifts(self, constant: Constant) -> bool:
        """Whether a constant stays outside wherever it stood."""
        return self.bind_limit is not None and constant.is_weight and constant.array.nbytes > self.bind_limit

    def _name(self, tag: str, function: str, number: int, taken: set[str]) -> str:
        """A name that no function has, which is taken from now on."""
        parts = [PREFIX, self.mod_name, tag, function, str(number)]
        name = _fresh(re.sub(r"[^A-Za-z0-9_]", "_", "_".join(part for part in parts if part)), taken)
        taken.add(name)
        return name


def _with_calls(regions: Regions) -> Regions:
    """The regions that compute something: tuples and fields alone need no backend."""
    calling = {region_number(regions, node) for node in regions.order if isinstance(node, Call)} - {None}

    def tag_of(node: Expr) -> str | None:
        return regions.tag_of(node) if region_number(regions, node) in calling else None

    return regions.regrouped(lambda node: regions.region_of[id(node)], tag_of)


def _fresh(base: str, used: set[str]) -> str:
    name, number = base, 0
    while name in used:
        number += 1
        name = f"{base}_{number}"
    return name


_Leaf: TypeAlias = "tuple[int, tuple[int, ...]]"
"""A value within a value: the id of an expression, and the fields that lead to it."""


def _path(node: Expr, *fields: int) -> tuple[Expr, tuple[int, ...]]:
    """What a value, or a field of it, is a field of, as far as can be seen."""
    path = list(fields)
    while True:
        if isinstance(node, TupleGetItem):
            path.insert(0, node.index)
            node = node.tuple_value
        elif isinstance(node, Tuple) and path:
            node = node.fields[path.pop(0)]
        else:
            return node, tuple(path)


@dataclass
class _Cut:
    """A region's function being made."""

    name: str
    tag: str
    params_prefix: str
    inner: dict[int, Expr] = field(default_factory=dict)
    """Nodes of the region by the id of what they were."""
    params: dict[_Leaf, Var] = field(default_factory=dict)
    outside: dict[int, Expr] = field(default_factory=dict)
    """What is handed over for a parameter, by its id."""
    results: dict[_Leaf, int] = field(default_factory=dict)
    """Place of a result by what it is within the region."""
    values: list[Expr] = field(default_factory=list)
    shapes: dict[int, _Shape] = field(default_factory=dict)
    """Of each node that is needed outside, by its id: what makes it up."""


_Shape: TypeAlias = "int | Expr | list[_Shape]"
"""A result by its place, a value from outside that only passes through, or the fields of a tuple."""


@dataclass
class _Cutter:
    regions: Regions
    names: Sequence[str]
    binds: Callable[[Constant], bool]
    lifts: Callable[[Constant], bool]
    has_effects: bool
    done: dict[int, Expr] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    def run(self) -> Function:
        """The function with a call in the place of each region; fills `functions`."""
        needed = self._needed()
        for node in self.regions.order:
            if not node.children():
                self.done[id(node)] = node
        for unit in unit_graph(self.regions).units:
            if unit.region is None:
                self.done[id(unit.nodes[0])] = self._outside(unit.nodes[0])
            else:
                self._cut(unit.region, unit.nodes, needed)
        result = self.done[id(self.regions.function)]
        assert isinstance(result, Function)
        # where a tuple's fields are taken, others may turn out to be needed by nobody
        called = {node.name_hint for node in post_order(result) if isinstance(node, GlobalVar)}
        self.functions = {name: each for name, each in self.functions.items() if name in called}
        return result

    def _outside(self, node: Expr) -> Expr:
        """A node of the host over what its operands have become."""
        if isinstance(node, TupleGetItem) and region_number(self.regions, node.tuple_value) is not None:
            return _field(self.done[id(node.tuple_value)], node)
        return node.with_children([self.done[id(child)] for child in node.children()])

    def _needed(self) -> set[int]:
        """Ids of nodes of regions that something outside of their region needs."""
        found: set[int] = set()
        for node in self.regions.order:
            own = region_number(self.regions, node)
            for child in node.children():
                theirs = region_number(self.regions, child)
                if theirs is not None and theirs != own:
                    found.add(id(child))
        return found

    def _cut(self, region: int, nodes: Sequence[Expr], needed: set[int]) -> None:
        tag = self.regions.tags[region]
        cut = _Cut(self.names[region], tag, f"{tag}_{region}")
        for node in nodes:
            cut.inner[id(node)] = self._inside(cut, node)
        outputs = [node for node in nodes if id(node) in needed]
        for node in outputs:
            cut.shapes[id(node)] = run(self._result(cut, cut.inner[id(node)]))
        function = self._function(cut)
        callee = GlobalVar(cut.name)
        callee.set_checked_type(function.checked_type)
        args = [cut.outside[id(param)] for param in cut.params.values()]
        call = Call(callee, args, None, outputs[-1].span)
        results = [call] if len(cut.values) == 1 else [TupleGetItem(call, n) for n in range(len(cut.values))]
        for node in outputs:
            self.done[id(node)] = run(_rebuilt(cut.shapes[id(node)], results))

    def _inside(self, cut: _Cut, node: Expr) -> Expr:
        """A node of the region as it stands in the function."""
        # the other fields of a tuple that is written out may not be computed any more
        if isinstance(node, TupleGetItem) and id(node.tuple_value) not in cut.inner and not self.has_effects:
            return run(self._param(cut, _field(self.done[id(node.tuple_value)], node)))
        if isinstance(node, Call) and isinstance(node.op, Function) and is_sealed(node.op):
            node = with_constants_outside(node, self.lifts)
        return node.with_children([self._operand(cut, child) for child in node.children()])

    def _operand(self, cut: _Cut, child: Expr) -> Expr:
        """What a node of the region has in the place of an operand."""
        if id(child) in cut.inner:
            return cut.inner[id(child)]
        if isinstance(child, Function) and is_sealed(child):
            return child
        # a constant lifted out of a pattern's function is no node of what the regions were found in
        return run(self._param(cut, self.done.get(id(child), child)))

    def _param(self, cut: _Cut, value: Expr) -> Step[Expr]:
        """A parameter for a value from outside, or a tuple of parameters."""
        if isinstance(value, Constant) and self.binds(value):
            return value
        kind = value.checked_type
        if isinstance(kind, TupleType):
            fields: list[Expr] = []
            for number in range(len(kind.fields)):
                each = value.fields[number] if isinstance(value, Tuple) else TupleGetItem(value, number)
                fields.append((yield self._param(cut, each)))
            return Tuple(fields, value.span)
        base, path = _path(value)
        known = cut.params.get((id(base), path))
        if known is None:
            name = f"{cut.params_prefix}_i{len(cut.params)}"
            known = cut.params[id(base), path] = Var(name, kind, value.span)
            cut.outside[id(known)] = value
        return known

    def _result(self, cut: _Cut, value: Expr, *path: int) -> Step[_Shape]:
        """Add a value of the region, or the fields of a tuple, to what the function returns."""
        kind = value.checked_type
        for each in path:
            assert isinstance(kind, TupleType)
            kind = kind.fields[each]
        if isinstance(kind, TupleType):
            shape: list[_Shape] = []
            for number in range(len(kind.fields)):
                shape.append((yield self._result(cut, value, *path, number)))
            return shape
        base, rest = _path(value, *path)
        if isinstance(base, Constant):
            return base
        if isinstance(base, Var) and id(base) in cut.outside:
            return cut.outside[id(base)]
        place = cut.results.setdefault((id(base), rest), len(cut.values))
        if place == len(cut.values):
            for each in rest:
                base = TupleGetItem(base, each)
            cut.values.append(base)
        return place

    def _function(self, cut: _Cut) -> Function:
        body = cut.values[0] if len(cut.values) == 1 else Tuple(cut.values)
        if not self.has_effects:
            used = {id(node) for node in post_order(body)}
            cut.params = {leaf: param for leaf, param in cut.params.items() if id(param) in used}
        params = list(cut.params.values())
        attrs = {"Compiler": cut.tag, "Primitive": 1, "Inline": 1, "global_symbol": cut.name}
        function = Function(params, body, body.checked_type, span=body.span)
        captured = free_vars(function)
        if captured:
            raise UserError(
                f"a function within a region of the compiler '{cut.tag}' uses '%{captured[0].name_hint}' from outside: "
                "hand it over as an argument",
                where=str(captured[0].span) if captured[0].span else None,
            )
        plain = _optimized(cut, function)
        result = Function(plain.params, plain.body, plain.ret_type, plain.type_params, attrs, plain.span)
        self.functions[cut.name] = result
        return result


def _field(value: Expr, node: TupleGetItem) -> Expr:
    """The field that a node takes, of what its operand has become."""
    return value.fields[node.index] if isinstance(value, Tuple) else node.with_children([value])


def _rebuilt(shape: _Shape, results: Sequence[Expr]) -> Step[Expr]:
    if isinstance(shape, Expr):
        return shape
    if isinstance(shape, int):
        return results[shape]
    fields: list[Expr] = []
    for each in shape:
        fields.append((yield _rebuilt(each, results)))
    return Tuple(fields)


def _optimized(cut: _Cut, function: Function) -> Function:
    """The function as its backend wants it before it generates code."""
    backend = all_backends().get(cut.tag)
    if backend is None or backend.optimize is None:
        return function
    result = infer_types(backend.optimize(IRModule({"main": function})))
    if list(result) != ["main"] or result["main"].checked_type != function.checked_type:
        found = ", ".join(f"'@{name}' of type {each.checked_type}" for name, each in result.functions.items())
        raise UserError(
            f"'optimize' of the backend '{backend.name}' made of the function '{cut.name}' {found or 'nothing'}; "
            f"expected one function '@main' of the same type, {function.checked_type}"
        )
    return result["main"]
