"""Fixes dimensions that the main function of a module leaves open; knows nothing of what else the module computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Function, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import Dim, Extent, TensorType, TupleType, Type
from relaybuild.ir.visitor import substitute


def with_shapes(module: IRModule, shapes: Mapping[str, Sequence[int]]) -> IRModule:
    """The module, untyped, with `main` over inputs of the shapes given by name.

    A field of a tuple is named by its number behind the tuple's name, `p.0`. A named dimension becomes the same number
    in every parameter. Raises UserError for a name that is no tensor of a parameter of `main`, and for a shape that
    does not fit its type.
    """
    main = module["main"]
    known = {name: kind for param in main.params for name, kind in leaves(param.name_hint, param.type_annotation)}
    dims: dict[str, int] = {}
    fixed = {name: _fixed(name, known, tuple(shape), dims) for name, shape in shapes.items()}
    replaced: dict[Expr, Expr] = {}
    for param in main.params:
        replaced[param] = Var(param.name_hint, _placed(param.name_hint, param.type_annotation, fixed, dims), param.span)
    result = None if main.ret_type is None or _is_open(main.ret_type) else main.ret_type
    inputs = [var for var in replaced.values() if isinstance(var, Var)]
    body = substitute(main.body, dict(replaced))
    changed = Function(inputs, body, result, main.type_params, main.attrs, main.span)
    return module.with_function("main", changed)


def leaves(name: str, kind: Type | None) -> list[tuple[str, Type | None]]:
    """What a value of that name is made of, with types: itself, or, of a tuple, its fields with numbers behind it."""
    if not isinstance(kind, TupleType):
        return [(name, kind)]
    return [leaf for number, item in enumerate(kind.fields) for leaf in leaves(f"{name}.{number}", item)]


def _fixed(name: str, known: Mapping[str, Type | None], shape: tuple[int, ...], dims: dict[str, int]) -> TensorType:
    """The type of an input with a shape given; `dims` collects what that says of named dimensions."""
    declared = known.get(name)
    if not isinstance(declared, TensorType):
        names = ", ".join(f"'{each}'" for each in known) or "none"
        raise UserError(
            f"a shape is given for '{name}', which is no tensor parameter of '@main'; its parameters: {names}"
        )
    if len(shape) != declared.rank:
        raise UserError(f"the shape {shape} for '{name}' has {len(shape)} extents, expected {declared.rank}")
    for number, (wanted, extent) in enumerate(zip(declared.shape, shape)):
        if isinstance(wanted, Dim) and wanted.name != "?":
            wanted = dims.setdefault(wanted.name, extent)
        if isinstance(wanted, int) and wanted != extent:
            raise UserError(f"the shape {shape} for '{name}' has {extent} as dimension {number}, expected {wanted}")
    return TensorType(shape, declared.dtype)


def _placed(name: str, kind: Type | None, fixed: Mapping[str, TensorType], dims: Mapping[str, int]) -> Type | None:
    """The type of a parameter, or of a part of one, with the shapes given and the dimensions they name."""
    if isinstance(kind, TupleType):
        parts = [_placed(f"{name}.{number}", item, fixed, dims) for number, item in enumerate(kind.fields)]
        return TupleType(tuple(part for part in parts if part is not None))
    if not isinstance(kind, TensorType):
        return kind
    extents: list[Extent] = [dims.get(e.name, e) if isinstance(e, Dim) else e for e in kind.shape]
    return fixed.get(name, TensorType(tuple(extents), kind.dtype))


def _is_open(kind: Type) -> bool:
    pending = [kind]
    while pending:
        item = pending.pop()
        if isinstance(item, TensorType) and not item.is_static:
            return True
        pending.extend(item.fields if isinstance(item, TupleType) else ())
    return False
