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

    A named dimension becomes the same number in every parameter. Raises UserError for a name that is no tensor
    parameter of `main`, and for a shape that does not fit the parameter's type.
    """
    main = module["main"]
    params = {param.name_hint: param for param in main.params}
    dims: dict[str, int] = {}
    fixed: dict[str, TensorType] = {}
    for name, shape in shapes.items():
        fixed[name] = _fixed(name, params, tuple(shape), dims)
    replaced: dict[Expr, Expr] = {}
    for param in main.params:
        kind = fixed.get(param.name_hint, param.type_annotation)
        replaced[param] = Var(param.name_hint, None if kind is None else _filled(kind, dims), param.span)
    result = None if main.ret_type is None or _is_open(main.ret_type) else main.ret_type
    inputs = [var for var in replaced.values() if isinstance(var, Var)]
    body = substitute(main.body, dict(replaced))
    changed = Function(inputs, body, result, main.type_params, main.attrs, main.span)
    return module.with_function("main", changed)


def _fixed(name: str, params: Mapping[str, Var], shape: tuple[int, ...], dims: dict[str, int]) -> TensorType:
    """The type of a parameter with a shape given; `dims` collects what that says of named dimensions."""
    declared = params[name].type_annotation if name in params else None
    if not isinstance(declared, TensorType):
        known = ", ".join(f"'{known}'" for known in params) or "none"
        raise UserError(
            f"a shape is given for '{name}', which is no tensor parameter of '@main'; its parameters: {known}"
        )
    if len(shape) != declared.rank:
        raise UserError(f"the shape {shape} for '{name}' has {len(shape)} extents, expected {declared.rank}")
    for number, (wanted, extent) in enumerate(zip(declared.shape, shape)):
        if isinstance(wanted, Dim) and wanted.name != "?":
            wanted = dims.setdefault(wanted.name, extent)
        if isinstance(wanted, int) and wanted != extent:
            raise UserError(f"the shape {shape} for '{name}' has {extent} as dimension {number}, expected {wanted}")
    return TensorType(shape, declared.dtype)


def _filled(kind: Type, dims: Mapping[str, int]) -> Type:
    if isinstance(kind, TensorType):
        extents: list[Extent] = [dims.get(e.name, e) if isinstance(e, Dim) else e for e in kind.shape]
        return TensorType(tuple(extents), kind.dtype)
    return TupleType(tuple(_filled(item, dims) for item in kind.fields)) if isinstance(kind, TupleType) else kind


def _is_open(kind: Type) -> bool:
    pending = [kind]
    while pending:
        item = pending.pop()
        if isinstance(item, TensorType) and not item.is_static:
            return True
        pending.extend(item.fields if isinstance(item, TupleType) else ())
    return False
