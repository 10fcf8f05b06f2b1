"""Programs as text that `relaybuild.ir.parser` reads back without loss; knows nothing of files or passes.

One call stands on one line and is named `%0`, `%1`, …; a node used twice is written once, in the innermost scope that
encloses its uses. Constants that are structure stand inline, weights as `meta[relay.Constant][slot]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from relaybuild.ir.adt import Constructor, TypeData
from relaybuild.ir.expr import Constant, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.text.literals import attr_items
from relaybuild.ir.text.metadata import WeightForm, metadata_text
from relaybuild.ir.text.names import global_text, type_name_text
from relaybuild.ir.text.writer import (
    FunctionWriter,
    PrintOptions,
    constant_text,
    constructor_text,
    span_before,
    span_behind,
    type_params_text,
    type_text,
)
from relaybuild.ir.visitor import free_vars

__all__ = ["constant_text", "functions_text", "print_expr", "print_module", "type_text"]

VERSION = '#[version = "0.0.5"]'
Annotate = Callable[[Expr], str]


def print_module(
    mod: IRModule,
    weights: WeightForm = "data",
    show_types: bool = False,
    show_spans: bool = False,
    annotate: Annotate | None = None,
) -> str:
    """A module as text.

    `weights` says what the metadata section holds of each: "data" (all of it, in base64: the text is complete),
    "digest" (dtype, shape, SHA-256) or "slot" (dtype and shape); the latter two are read back only together with the
    arrays. `show_types` adds the type of every call as a comment, `annotate` what it returns for a node that is
    written out (variables and globals are not asked about); `show_spans` writes the span of every node, which is read
    back.
    """
    text, slots = _definitions(mod, PrintOptions(show_types, show_spans, annotate))
    return f"{VERSION}\n{text}{metadata_text(slots, weights)}"


def functions_text(
    mod: IRModule, show_types: bool = False, show_spans: bool = False, annotate: Annotate | None = None
) -> str:
    """The definitions of a module, and its attributes, as people want to see them: no version line, no metadata."""
    return _definitions(mod, PrintOptions(show_types, show_spans, annotate))[0]


def print_expr(
    expr: Expr,
    weights: WeightForm = "data",
    show_types: bool = False,
    show_spans: bool = False,
    annotate: Annotate | None = None,
) -> str:
    """An expression as text; free variables are declared first by `free_var %x: type;`."""
    writer = FunctionWriter(expr, PrintOptions(show_types, show_spans, annotate))
    slots = _slots([writer])
    declared = "".join(f"free_var {writer.binder(var)};\n" for var in free_vars(expr))
    return f"{declared}{writer.body(0, _table(slots))}{metadata_text(slots, weights)}"


def expr_text(expr: Expr) -> str:
    """An expression as people want to see it: its variables are not declared, and there is no metadata."""
    writer = FunctionWriter(expr, PrintOptions())
    return writer.body(0, _table(_slots([writer]))).removesuffix("\n")


def _slots(writers: Iterable[FunctionWriter]) -> list[Constant]:
    """The weights of all, each object once, as `weight_slots` numbers them."""
    return list({id(weight): weight for writer in writers for weight in writer.weights()}.values())


def _table(slots: Sequence[Constant]) -> dict[int, int]:
    return {id(weight): index for index, weight in enumerate(slots)}


def _definitions(mod: IRModule, options: PrintOptions) -> tuple[str, list[Constant]]:
    """The text of all definitions, and the slots they speak of."""
    writers = {name: FunctionWriter(each.body, options) for name, each in mod.functions.items()}
    slots = _slots(writers.values())
    table = _table(slots)
    attrs = [f"#[attrs({', '.join(attr_items(mod.attrs))})]\n"] if mod.attrs else []
    types = [_type_definition(data, options) for data in mod.type_definitions.values()]
    functions = [_function(name, each, writers[name], table) for name, each in mod.functions.items()]
    return "".join([*attrs, *types, *functions]), slots


def _type_definition(data: TypeData, options: PrintOptions) -> str:
    head = f"type {span_before(data.span, options)}{type_name_text(data.name)}{type_params_text(data.type_vars)}"
    if not data.constructors:
        return f"extern {head}\n"
    lines = "".join(f"  {_constructor(each, options)},\n" for each in data.constructors)
    return f"{head} {{\n{lines}}}\n"


def _constructor(constructor: Constructor, options: PrintOptions) -> str:
    inputs = ", ".join(map(type_text, constructor.inputs))
    fields = f"({inputs})" if inputs else ""
    return f"{constructor_text(constructor.name)}{fields}{span_behind(constructor.span, options)}"


def _function(name: str, function: Function, writer: FunctionWriter, table: Mapping[int, int]) -> str:
    head = f"def {span_before(function.span, writer.options)}{global_text(name)}{writer.signature(function)}"
    return f"{head} {{\n{writer.body(1, table)}}}\n"
