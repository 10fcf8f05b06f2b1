"""What the backends make of the regions of a module; knows no backend by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from relaybuild.backends.selection import Selection
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule
from relaybuild.partition.backend import HOST, Backend, CodegenOptions, GeneratedCode, all_backends, flat_types
from relaybuild.partition.c_text import Port
from relaybuild.partition.constants import constant_arguments
from relaybuild.partition.region_text import RegionPorts

MODEL_FUNCTION = "main"
"""The packed function that a library exports for the model itself."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Region:
    """A region of a module: its function's name there, its tensors, its backend, and what that made of it."""

    name: str
    ports: RegionPorts
    backend: Backend
    code: GeneratedCode


def generate_regions(module: IRModule, options: CodegenOptions, selection: Selection) -> tuple[Region, ...]:
    """What the backends make of the functions of a typed module that are marked for them.

    `options` are those of the whole program. Raises UserError for a function whose backend is unknown or off, for a
    symbol that is no C identifier, and for one that two functions, or a function and the model, have.
    """
    marked = {name: function for name, function in module.functions.items() if _tag_of(function) is not None}
    _check_symbols(marked)
    return tuple(_generate(name, function, module, options, selection) for name, function in marked.items())


def _tag_of(function: Function) -> str | None:
    tag = function.attrs.get("Compiler")
    return tag if isinstance(tag, str) and tag != HOST else None


def _check_symbols(marked: Mapping[str, Function]) -> None:
    owners: dict[str, str] = {}
    for name, function in marked.items():
        symbol = function.attrs.get("global_symbol")
        if not isinstance(symbol, str) or not _IDENTIFIER.fullmatch(symbol):
            raise UserError(f"'@{name}' has the 'global_symbol' {symbol!r}, expected a C identifier")
        if symbol == MODEL_FUNCTION:
            raise UserError(f"'@{name}' has the 'global_symbol' '{symbol}', which is the function of the whole model")
        if symbol in owners:
            raise UserError(f"'@{owners[symbol]}' and '@{name}' have the same 'global_symbol', '{symbol}'")
        owners[symbol] = name


def _generate(name: str, function: Function, module: IRModule, options: CodegenOptions, selection: Selection) -> Region:
    backend = _backend_of(name, function, selection)
    symbol = str(function.attrs["global_symbol"])
    ports = RegionPorts(symbol, backend.tag, _inputs(function), _outputs(function))
    own = replace(
        options,
        name=symbol,
        symbol=symbol,
        inputs=tuple(port.name for port in ports.inputs),
        outputs=tuple(port.name for port in ports.outputs),
        module=module,
        constants=constant_arguments(module, name),
    )
    return Region(name, ports, backend, backend.codegen(function, own))


def _backend_of(name: str, function: Function, selection: Selection) -> Backend:
    tag = _tag_of(function)
    backend = all_backends().get(tag or "")
    if backend is None:
        known = ", ".join(f"'{each}'" for each in sorted(all_backends()))
        raise UserError(f"'@{name}' is marked for the compiler '{tag}', but no backend has this tag; known are {known}")
    if backend.cmake_flag and backend.tag not in selection.tags:
        raise UserError(
            f"'@{name}' is marked for the compiler '{tag}', but its backend '{backend.name}' is off; switch it on with "
            f"-D {backend.cmake_flag}=ON or in config.cmake"
        )
    return backend


def _inputs(function: Function) -> tuple[Port, ...]:
    ports: list[Port] = []
    for param in function.params:
        kinds = flat_types(param.checked_type)
        plain = len(kinds) == 1
        ports += [
            Port(param.name_hint if plain else f"{param.name_hint}_{number}", kind) for number, kind in enumerate(kinds)
        ]
    return tuple(ports)


def _outputs(function: Function) -> tuple[Port, ...]:
    kinds = flat_types(function.body.checked_type)
    return tuple(Port(f"out{number}", kind) for number, kind in enumerate(kinds))
