"""What is drawn of a partitioned program: its calls by region, and what they depend on; knows no place on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from relaybuild.cli._drawing.page import Legend, page
from relaybuild.cli._drawing.svg import Node, draw
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.partition.constants import constant_exprs
from relaybuild.partition.regions import Regions
from relaybuild.partition.report import PlacedCall, Report, call_title, operators_of

_HOST = "host"
_END = "end"


def drawing(report: Report, title: str) -> str:
    """An HTML file with every function of a program, regions by colour."""
    graph = _Graph(report)
    for name, regions in report.regions.items():
        graph.add(name, regions)
    picture = draw(graph.nodes, graph.edges)
    return page(title, picture, _legend(report))


def _legend(report: Report) -> list[Legend]:
    facts = report.region_facts()
    host = sum(call.region is None for call in report.calls)
    found = [Legend(_HOST, f"host: {_counted(host, 'call')}")]
    for tag, colour in _colours(report).items():
        own = [each for each in facts if each.backend == tag]
        calls = _counted(sum(each.calls for each in own), "call")
        found.append(Legend(colour, f"{tag}: {_counted(len(own), 'region')}, {calls}", [each.name for each in own]))
    return found


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _colours(report: Report) -> dict[str, str]:
    """A class name for each backend that has regions, those that were asked first."""
    used = dict.fromkeys([*report.tags, *(each.backend for each in report.region_facts())])
    own = {each.backend for each in report.region_facts()}
    return {tag: f"b{number}" for number, tag in enumerate(tag for tag in used if tag in own)}


@dataclass
class _Graph:
    """Nodes and edges being gathered, function by function."""

    report: Report
    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._calls = {id(call.placement.call): call for call in self.report.calls}
        self._colour_of = _colours(self.report)

    def add(self, name: str, regions: Regions) -> None:
        """Draw a function: parameters, calls and conditionals, and its result; what is constant is left out."""
        constant = constant_exprs(regions.order)
        shown: dict[int, tuple[int, ...]] = {}
        values = {id(node.var): node.value for node in regions.order if isinstance(node, Let)}
        for node in regions.order:
            shown[id(node)] = () if constant.holds(node) else self._added(node, name, regions, shown, values)
        result = self._node(Node(f"@{name}", _type_text(regions.function.body), f"result of @{name}", None, _END))
        self._connect(shown[id(regions.function.body)], result)

    def _added(
        self,
        node: Expr,
        function: str,
        regions: Regions,
        shown: Mapping[int, tuple[int, ...]],
        values: Mapping[int, Expr],
    ) -> tuple[int, ...]:
        """The nodes from which a value comes: its own, or those of what it is made of."""
        if isinstance(node, Var):
            if id(node) in values:
                return shown.get(id(values[id(node)]), ())
            is_param = any(node is param for param in regions.function.params)
            return (self._node(_param(node, function)),) if is_param else ()
        operands = [each for child in node.children() for each in shown.get(id(child), ())]
        if isinstance(node, Let):
            return shown[id(node.body)]
        if isinstance(node, (Function, GlobalVar, Constant, Tuple, TupleGetItem)) or regions.blocks.of(node) is None:
            return tuple(dict.fromkeys(operands))
        number = self._node(self._drawn(node, function))
        self._connect(operands, number)
        return (number,)

    def _drawn(self, node: Expr, function: str) -> Node:
        call = self._calls.get(id(node))
        if call is None or not isinstance(node, Call):
            title = "if" if isinstance(node, If) else type(node).__name__
            title = call_title(node) if isinstance(node, Call) else title
            return Node(title, _type_text(node), _detail(node, title, None))
        colour = self._colour_of.get(call.placement.backend or "", _HOST) if call.region else _HOST
        return Node(call.title, _type_text(node), _detail(node, call.title, call), call.region, colour)

    def _node(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _connect(self, operands: Sequence[int], number: int) -> None:
        self.edges += [(each, number) for each in dict.fromkeys(operands)]


def _param(param: Var, function: str) -> Node:
    name = f"%{param.name_hint}"
    return Node(name, _type_text(param), f"{name}\nparameter of @{function}\ntype: {_full_type(param)}", None, _END)


def _detail(node: Expr, title: str, call: PlacedCall | None) -> str:
    """What is known of a node, one fact a line."""
    lines = [title]
    if node.span is not None:
        lines.append(f"node: {node.span.name or node.span}")
    if call is not None:
        lines.append(f"region: {call.region}" if call.region else f"host: {call.placement.reason}")
    if isinstance(node, Call):
        if isinstance(node.op, Function):
            lines.append(f"operators: {', '.join(operators_of(node))}")
        lines += [f"{name}: {value}" for name, value in (node.attrs.items() if node.attrs else ())]
        lines += [f"operand {number}: {_full_type(arg)}" for number, arg in enumerate(node.args)]
    return "\n".join([*lines, f"result: {_full_type(node)}"])


def _full_type(node: Expr) -> str:
    return str(node.checked_type) if node.has_type else "not known"


def _type_text(node: Expr) -> str:
    return _short_type(node.checked_type) if node.has_type else ""


def _short_type(kind: Type) -> str:
    """A shape, with the dtype where it is not the usual one."""
    if isinstance(kind, TensorType):
        shape = "×".join(map(str, kind.shape)) or "scalar"
        return shape if kind.dtype == "float32" else f"{shape} {kind.dtype}"
    if isinstance(kind, TupleType):
        return f"{len(kind.fields)} values: {_short_type(kind.fields[0])}" if kind.fields else "()"
    return str(kind)
