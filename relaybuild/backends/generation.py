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
class RegionFunction:
    """A function of a module that is marked for a backend: its name there, its tensors, and the numbers of those of its
    inputs that are the same at every call."""

    name: str
    ports: RegionPorts
    constants: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Region:
    """A region of a module: its function's name there, its tensors, its backend, and what that made of it."""

    name: str
    ports: RegionPorts
    backend: Backend
    code: GeneratedCode


def region_functions(module: IRModule) -> tuple[RegionFunction, ...]:
    """The functions of a typed module that are marked for a backend.

    Raises UserError for a symbol that is no C identifier, and for one that two functions, or a function and the model,
    have.
    """
    marked = {name: function for name, function in module.functions.items() if _tag_of(function) is not None}
    _check_symbols(marked)
    return tuple(
        RegionFunction(
            name,
            RegionPorts(
                str(function.attrs["global_symbol"]), _tag_of(function) or "", _inputs(function), _outputs(function)
            ),
            constant_arguments(module, name),
        )
        for name, function in marked.items()
    )


def backend_of(region: RegionFunction, selection: Selection) -> Backend:
    """The backend of a region; raises UserError where it is unknown or off."""
    tag = region.ports.compiler
    backend = all_backends().get(tag)
    if backend is None:
        known = ", ".join(f"'{each}'" for each in sorted(all_backends()))
        raise UserError(
            f"'@{region.name}' is marked for the compiler '{tag}', but no backend has this tag; known are {known}"
        )
    if backend.cmake_flag and backend.tag not in selection.tags:
        raise UserError(
            f"'@{region.name}' is marked for the compiler '{tag}', but its backend '{backend.name}' is off; switch "
            f"it on with -D {backend.cmake_flag}=ON or in config.cmake"
        )
    return backend


def region_options(region: RegionFunction, options: CodegenOptions) -> CodegenOptions:
    """What a region's code generator is told, `options` being those of the whole program."""
    return replace(
        options,
        name=region.ports.symbol,
        symbol=region.ports.symbol,
        inputs=tuple(port.name for port in region.ports.inputs),
        outputs=tuple(port.name for port in region.ports.outputs),
        constants=region.constants,
    )


def generate_regions(module: IRModule, options: CodegenOptions, selection: Selection) -> tuple[Region, ...]:
    """What the backends make of the functions of a typed module that are marked for them.

    `options` are those of the whole program. Raises UserError for a function whose backend is unknown or off, and for
    the symbols that `region_functions` refuses.
    """
    found: list[Region] = []
    for region in region_functions(module):
        backend = backend_of(region, selection)
        code = backend.codegen(module[region.name], region_options(region, replace(options, module=module)))
        found.append(Region(region.name, region.ports, backend, code))
    return tuple(found)


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
