"""What the tests of partitioning and code generation share: a program for several backends, cut and generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.backends.generation import Region
from relaybuild.backends.selection import Selection
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.codegens import CodeGenerator, HostCode
from relaybuild.compilation.known import Known
from relaybuild.compilation.partitions import Cut, Partitioned, partition_step
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Weights
from relaybuild.contrib import codegen_c, example_json
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import weight_slots
from relaybuild.partition.backend import Backend, CodegenOptions, GeneratedCode
from relaybuild.passes.infra import PassContext
from relaybuild.target import chosen

from .stepping import Site, request_of

C, JSON = codegen_c.BACKEND, example_json.BACKEND


def network(
    *values: float, second: str = "multiply", middle: str = "nn.softmax", shape: tuple[int, ...] = (4, 4)
) -> IRModule:
    """Two regions of arithmetic with a small weight each, another operator between them."""
    first, other = values or (1.0, 2.0)
    kind = f"Tensor[{shape}, float32]"
    entry = f'{{"dtype": "float32", "shape": {list(shape)}}}'
    text = f"""#[version = "0.0.5"]
def @main(%x: {kind}) {{
  %0 = add(%x, meta[relay.Constant][0]);
  %1 = {middle}(%0);
  %2 = {second}(%1, meta[relay.Constant][1]);
  nn.softmax(%2)
}}
#[metadata]
{{"relay.Constant": [{entry}, {entry}]}}
"""
    weights: list[NDArray[Any]] = [np.full(shape, value, "float32") for value in (first, other)]
    return infer_types(parse(text, weights=weights, positions=False))


@dataclass(frozen=True)
class Parts:
    """What became of a program."""

    cut: Partitioned
    regions: tuple[Region, ...]
    host: HostCode

    def codes(self) -> list[tuple[GeneratedCode, str]]:
        """All generated code, with the text of its weights."""
        host = self.host.with_weights()
        has_weights = host.weights is not None and host.weight_bytes
        text = print_module(IRModule({"weights": host.weights})) if has_weights and host.weights else ""
        return [(replace(host, weights=None), text), *((region.code, region.ports.symbol) for region in self.regions)]


def made(
    program: Program, actions: Actions, known: Known, backends: Sequence[Backend], context: PassContext, **options: Any
) -> Parts:
    """A program cut for backends, and the code of its parts."""
    selection = Selection(tuple(backends))

    with context:
        cut = partition_step(program, Cut(selection, "model", chosen("c"), context), actions, known)
    settings = CodegenOptions("model", "model", chosen("c"), ("-O2",), ("x",), ("y",), config={"source": "a test"})
    generator = CodeGenerator(actions, replace(settings, **options), known)
    return Parts(cut, generator.regions(cut, selection), generator.host(cut))


@dataclass
class Cutting:
    """Cuts and generates with one cache, and compares with what comes out without one."""

    folder: Path

    def __post_init__(self) -> None:
        self.site = Site(self.folder)

    def __call__(
        self,
        module: IRModule,
        backends: Sequence[Backend] = (C,),
        context: PassContext | None = None,
        **options: Any,
    ) -> Parts:
        context = context or PassContext(opt_level=3)
        with self.site.run(module) as current:
            found = made(current.program, current.actions, current.known, backends, context, **options)
            codes = found.codes()
            regions = found.cut.regions
        weights = Weights.of(weight_slots(module))
        actions = Actions(None, weights, "model")
        known = Known.of(request_of(module), actions)
        wanted = made(Program(weights, module=module), actions, known, backends, context, **options)
        for have, want in zip(codes, wanted.codes(), strict=True):
            assert have == want
        assert regions == wanted.cut.regions
        return found

    def executed(self, layer: str) -> list[str]:
        """What the last run executed of a layer, without kernels."""
        return sorted(slot for slot in self.site.executed(layer) if not slot.startswith("host/"))
