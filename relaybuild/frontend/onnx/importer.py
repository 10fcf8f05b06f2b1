"""Turns an ONNX model into an IRModule; knows no operator by name: converters are found in the `ops` folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, RelayBuildError, UnsupportedError, UserError
from relaybuild.frontend.onnx.definition import Definition, definition_of
from relaybuild.frontend.onnx.fold import Folder
from relaybuild.frontend.onnx.inputs import input_types
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.reader import LoadedModel, ModelSource, read_model
from relaybuild.frontend.onnx.registry import find_converter
from relaybuild.frontend.onnx.support import (
    check_signature,
    check_supported,
    domain_of,
    label,
    live_nodes,
    node_name,
    unsupported,
    used_names,
)
from relaybuild.ir.expr import Constant, Expr, Function, Span, Tuple, Var
from relaybuild.ir.module import IRModule

MIN_OPSET, MAX_OPSET = 6, 28
_Read: TypeAlias = Callable[[TensorProto], NDArray[Any]]


@dataclass(frozen=True)
class ImportedModel:
    """A module with one function `main`, whose parameters stand in the order of `input_names`."""

    module: IRModule
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    opset: int
    producer: str


def import_model(
    path_or_proto: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    on_weight: Callable[[str, NDArray[Any]], None] | None = None,
) -> ImportedModel:
    """Import a model from a path, its bytes, or a ModelProto, which stays as it is.

    `shapes` gives, by input, the shape to compile for; `name` is what errors call the model, by default the file's
    name. Weights stay in the file, mapped; `on_weight` is told the name and the array of each that is an initializer of
    the model's own graph, before any node is imported. Raises UserError for a file that is no model, for shapes that
    are missing or do not fit, and for a malformed node; UnsupportedError with all operators that have no converter.
    """
    loaded = read_model(path_or_proto, name)
    opset = _opset(loaded.proto, loaded.source)
    graph = loaded.proto.graph
    if not graph.output:
        raise UserError("the graph has no outputs", where=loaded.source)
    nodes = live_nodes(graph)
    check_supported(nodes, opset, loaded.source)
    params = _params(loaded, shapes or {})
    outputs = _Importer(loaded, opset, on_weight).run(graph, nodes, {param.name_hint: param for param in params})
    output_names = tuple(output.name for output in graph.output)
    input_names = tuple(param.name_hint for param in params)
    body = outputs[0] if len(outputs) == 1 else Tuple(outputs, Span(loaded.source))
    main = Function(params, body, attrs={"input_names": input_names, "output_names": output_names})
    return ImportedModel(IRModule({"main": main}), input_names, output_names, opset, _producer(loaded.proto))


def _opset(proto: ModelProto, source: str) -> int:
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise UserError("it imports no version of the standard operator set; is the file complete?", where=source)
    if not MIN_OPSET <= versions[0] <= MAX_OPSET:
        raise UserError(
            f"it is of opset {versions[0]}, expected {MIN_OPSET} to {MAX_OPSET}; export the model with one of these, or"
            " convert it with onnx.version_converter",
            where=source,
        )
    return int(versions[0])


def _producer(proto: ModelProto) -> str:
    return f"{proto.producer_name} {proto.producer_version}".strip()


def _params(loaded: LoadedModel, shapes: Mapping[str, Sequence[int]]) -> list[Var]:
    graph = loaded.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    types = input_types(inputs, shapes, loaded.source)
    return [Var(name, found, Span(loaded.source, name)) for name, found in types.items()]


@dataclass
class _Importer:
    loaded: LoadedModel
    opset: int
    on_weight: Callable[[str, NDArray[Any]], None] | None = None
    folder: Folder = field(default_factory=Folder)

    def run(self, graph: GraphProto, nodes: Sequence[NodeProto], inputs: Mapping[str, Expr]) -> list[Expr]:
        """The outputs of the model's graph, over its inputs."""
        return self._graph(graph, nodes, inputs, self.loaded.initializer)

    def _graph(
        self, graph: GraphProto, nodes: Sequence[NodeProto], outer: Mapping[str, Expr], read: _Read
    ) -> list[Expr]:
        used = used_names(graph, nodes)
        scope = {**outer, **self._initializers(graph, used, read)}
        computed: set[str] = set()
        for node in nodes:
            self._convert(node, scope, used)
            for name in filter(None, node.output):
                if name in computed:
                    where = f"{Span(self.loaded.source, node_name(node))} ({label(node)})"
                    raise UserError(f"its output '{name}' is that of another node, too", where=where)
                computed.add(name)
        return [self._lookup(output.name, scope, f"output '{output.name}'") for output in graph.output]

    def _initializers(self, graph: GraphProto, used: set[str], read: _Read) -> dict[str, Expr]:
        if graph.sparse_initializer:
            raise UserError("sparse initializers are not supported", where=self.loaded.source)
        constants: dict[str, Expr] = {}
        is_told = graph is self.loaded.proto.graph
        for tensor in graph.initializer:
            if tensor.name in used:
                constant = Constant(read(tensor), Span(self.loaded.source, tensor.name))
                constants[tensor.name] = constant
                if is_told and self.on_weight is not None and constant.is_weight:
                    self.on_weight(tensor.name, constant.array)
        return constants

    def _convert(self, proto: NodeProto, scope: dict[str, Expr], used: set[str]) -> None:
        name = node_name(proto)
        span = Span(self.loaded.source, name)
        where = f"{span} ({label(proto)})"
        try:
            check_signature(proto, self.opset)
            results = self._results(proto, self._node(proto, span, scope, used))
        except RelayBuildError as error:
            error.where = _located(error.where, span, where)
            raise
        except Exception as error:
            raise InternalError(f"its converter failed: {type(error).__name__}: {error}", where=where) from error
        for output, value in zip(proto.output, results):
            if output:
                scope[output] = value
        missing = [output for output in proto.output[len(results) :] if output in used]
        if missing:
            raise UserError(f"its output '{missing[0]}' is used, but not supported", where=where)

    def _node(self, proto: NodeProto, span: Span, scope: Mapping[str, Expr], used: set[str]) -> Node:
        inputs = tuple(self._lookup(item, scope, f"input '{item}'") if item else None for item in proto.input)

        def inline(graph: GraphProto, given: Mapping[str, Expr]) -> Sequence[Expr]:
            return self._graph(graph, live_nodes(graph), {**scope, **given}, self.loaded.array)

        def outer(graph: GraphProto) -> Mapping[str, Expr]:
            inner = {value.name for value in (*graph.input, *graph.initializer)}
            return {name: scope[name] for name in sorted(used_names(graph, graph.node) - inner) if name in scope}

        return Node(
            op_type=proto.op_type,
            domain=domain_of(proto),
            opset=self.opset,
            span=span,
            inputs=inputs,
            outputs=tuple(output if output in used else "" for output in proto.output),
            attrs={attr.name: helper.get_attribute_value(attr) for attr in proto.attribute},
            folder=self.folder,
            array=self.loaded.array,
            inline=inline,
            outer=outer,
        )

    def _results(self, proto: NodeProto, node: Node) -> Sequence[Expr]:
        """What a node computes: as its converter has it, or where that has not, as the standard defines it."""
        convert = find_converter(node.domain, node.op_type, self.opset)
        if convert is None:
            return self._expanded(proto, node, self._definition(proto, node))
        try:
            result = convert(node)
        except UnsupportedError:
            found = self._definition(proto, node)
            if found is None or unsupported(found.graph.node, found.opset):
                raise
            return self._expanded(proto, node, found)
        return (result,) if isinstance(result, Expr) else tuple(result)

    def _definition(self, proto: NodeProto, node: Node) -> Definition | None:
        types = [None if given is None else given.tensor_type for given in node.inputs]
        return definition_of(proto, node.domain, self.opset, types)

    def _expanded(self, proto: NodeProto, node: Node, found: Definition | None) -> Sequence[Expr]:
        """The outputs by the nodes that define an operator; raises UnsupportedError for those without a converter."""
        if found is None:
            raise UnsupportedError("its operator is not supported in this form")
        check_supported(found.graph.node, found.opset, self.loaded.source)
        scope = {name: given for name, given in zip(found.inputs, node.inputs) if given is not None}
        inner = replace(self, opset=found.opset)
        outputs = iter(inner._graph(found.graph, live_nodes(found.graph), scope, self.loaded.array))
        return [next(outputs) if name else Tuple([]) for name in proto.output]

    def _lookup(self, name: str, scope: Mapping[str, Expr], what: str) -> Expr:
        if name not in scope:
            raise UserError(
                f"{what} is not computed by any node before, nor an input or initializer", where=self.loaded.source
            )
        return scope[name]


def _located(found: str | None, span: Span, where: str) -> str:
    """Where an error is: at this node, unless it already names a tensor, a part of this node or a nested node."""
    if found is None or found in (span.source, str(span)):
        return where
    return found if found.startswith(f"{span.source}: ") else f"{where}: {found}"
