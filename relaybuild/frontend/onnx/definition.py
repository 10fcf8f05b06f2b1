"""Expands an operator by the function that the standard defines it with; knows no operator by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, defs

from relaybuild.dataclass import dataclass
from relaybuild.ir.types import TensorType

_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


@dataclass(frozen=True)
class Definition:
    """The nodes of a function, of the standard in version `opset`, over the names of its inputs.

    `graph` has the outputs that are asked for; `inputs` are names, "" for an input that is not given.
    """

    graph: GraphProto
    inputs: Sequence[str]
    opset: int


def has_definition(op_type: str, domain: str, opset: int) -> bool:
    """Whether the standard, in this version, defines an operator by others."""
    schema = _schema(op_type, domain, opset)
    return schema is not None and bool(_versions(schema))


def definition_of(node: NodeProto, domain: str, opset: int, inputs: Sequence[TensorType | None]) -> Definition | None:
    """The function that is a node of inputs of these types (None: not given); None where the standard has none."""
    schema = _schema(node.op_type, domain, opset)
    function = _function(schema, node, inputs) if schema is not None else None
    if schema is None or function is None:
        return None
    given = [name if kind is not None else "" for name, kind in zip(function.input, inputs)]
    given += [""] * (len(function.input) - len(given))
    absent = {name for name, known in zip(function.input, given) if not known}
    attributes = {name: entry.default_value for name, entry in schema.attributes.items() if entry.default_value.type}
    attributes |= {entry.name: entry for entry in node.attribute}
    graph = GraphProto(
        name=node.op_type,
        node=[_bound(inner, attributes, absent) for inner in function.node],
        output=[ValueInfoProto(name=name) for name, wanted in zip(function.output, node.output) if wanted],
    )
    versions = [entry.version for entry in function.opset_import if entry.domain in ("", "ai.onnx")]
    return Definition(graph, given, versions[0] if versions else opset)


def _schema(op_type: str, domain: str, opset: int) -> Any | None:
    """The operator's schema, whose functions onnx's own stubs leave out."""
    if not isinstance(op_type, str):  # it is no text, as protobuf has it
        return None
    return defs.get_schema(op_type, opset, domain) if defs.has(op_type, opset, domain) else None


def _versions(schema: Any) -> Sequence[int]:
    return [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]


def _function(schema: Any, node: NodeProto, inputs: Sequence[TensorType | None]) -> FunctionProto | None:
    function = FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
        return function
    if not schema.has_context_dependent_function:
        return None
    kinds = [_type_proto(kind).SerializeToString() for kind in inputs]
    function.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), kinds))
    return function if function.node else None


def _type_proto(kind: TensorType | None) -> TypeProto:
    proto = TypeProto()
    if kind is not None:
        proto.tensor_type.elem_type = TensorProto.DataType.Value(_NAMES.get(kind.dtype, kind.dtype.upper()))
        for extent in kind.static_shape:
            proto.tensor_type.shape.dim.add(dim_value=extent)
    return proto


def _bound(node: NodeProto, attributes: Mapping[str, AttributeProto], absent: set[str]) -> NodeProto:
    """A node of a function with the attributes and without the inputs that a call gives and leaves out."""
    bound = NodeProto()
    bound.CopyFrom(node)
    bound.input[:] = ["" if name in absent else name for name in node.input]
    bound.ClearField("attribute")
    bound.attribute.extend(_bound_attributes(node, attributes, absent))
    return bound


def _bound_attributes(
    node: NodeProto, attributes: Mapping[str, AttributeProto], absent: set[str]
) -> Iterator[AttributeProto]:
    for entry in node.attribute:
        bound = AttributeProto()
        source = attributes.get(entry.ref_attr_name) if entry.ref_attr_name else entry
        if source is None:
            continue
        bound.CopyFrom(source)
        bound.name = entry.name
        if bound.type == AttributeProto.GRAPH:
            inner = [_bound(each, attributes, absent) for each in entry.g.node]
            bound.g.ClearField("node")
            bound.g.node.extend(inner)
        yield bound
