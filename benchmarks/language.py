"""Measures what the language costs per node, on a chain of additions: build, print, parse, infer, digest, fold, fuse.

    python benchmarks/language.py [--nodes 90000] [--runs 3] [--json FILE]

Times are the process's own (what other programs take does not count), the least of all runs, over the number of nodes.
"infer, untyped" is a chain over a parameter whose type only its caller says, so that every operator waits for it. The
limit is on print, parse and infer together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchlib.report import progress, save, table

from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Var, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import get_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_digest
from relaybuild.ir.types import TensorType
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.fuse_ops import FuseOps

LIMIT = 60.0
"""Microseconds per node for print, parse and infer together."""

Step = Callable[[], Callable[[], Any]]
"""Prepares a run, which is not measured, and returns what is."""


def chain(nodes: int, parameter: Var) -> IRModule:
    """`main`: so many additions, each of the one before and the parameter."""
    add = get_op("add")
    attrs = add.make_attrs({})
    total: Expr = parameter
    for _ in range(nodes):
        total = Call(add, [total, parameter], attrs)
    return IRModule({"main": Function([parameter], total)})


def constants(nodes: int) -> IRModule:
    """`main`: so many additions of constants."""
    add = get_op("add")
    total: Expr = const(0)
    for _ in range(nodes):
        total = Call(add, [total, const(1)], add.make_attrs({}))
    return IRModule({"main": Function([], total)})


def untyped(nodes: int) -> IRModule:
    """A chain over a parameter without a type, and its caller."""
    mod = chain(nodes, Var("x"))
    return mod.with_function("caller", Function([], Call(GlobalVar("main"), [const(1.0)])))


def steps(nodes: int) -> dict[str, Step]:
    """What is measured, by name; every run is on a module of its own."""

    def typed() -> IRModule:
        return chain(nodes, var("x", TensorType((3,))))

    def over(make: Callable[[], Any], work: Callable[[Any], Any]) -> Step:
        def prepare() -> Callable[[], Any]:
            subject = make()
            return lambda: work(subject)

        return prepare

    return {
        "build": lambda: typed,
        "print": over(typed, lambda mod: mod.astext()),
        "parse": over(lambda: typed().astext(), parse),
        "infer": over(typed, infer_types),
        "infer, untyped": over(lambda: untyped(nodes), infer_types),
        "digest": over(typed, structural_digest),
        "fold": over(lambda: infer_types(constants(nodes)), FoldConstant()),
        "fuse": over(lambda: infer_types(typed()), FuseOps()),
    }


def measure(step: Step, runs: int) -> float:
    """Seconds of the best run."""
    best = float("inf")
    for _ in range(runs):
        work = step()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=90_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, float] = {}
    for name, step in steps(options.nodes).items():
        progress(name)
        found[name] = measure(step, options.runs) / options.nodes * 1e6
    total = found["print"] + found["parse"] + found["infer"]
    rows = [[name, f"{value:.1f}"] for name, value in (*found.items(), ("print + parse + infer", total))]
    print(table(["step", "us per node"], rows))
    save(options.json, {"nodes": options.nodes, "microseconds_per_node": found, "limit": LIMIT})
    return 0 if total <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
