"""Compiles modules for the tests of this folder, quickly: kernels in few units, little optimised; knows no program."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from runners.compiled import build_together, compiler, difference

from relaybuild.compilation.weights import evaluate_weights
from relaybuild.contrib.host.codegen import generate as host_code
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, flat_types
from relaybuild.passes.infra import PassContext
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.runtime import Module, load_module
from relaybuild.target import Target

Array: TypeAlias = NDArray[Any]

HEAD = '#[version = "0.0.5"]\n'


def generated(program: IRModule | str, target: str = "c", *, passes: bool = True) -> GeneratedCode:
    """The host's code of a module, or of its text, after the passes."""
    module = program if isinstance(program, IRModule) else parse(HEAD + program)
    if passes:
        with PassContext(opt_level=3):
            module = infer_types(default_pipeline()(module))
    main = module["main"]
    inputs = tuple(f"x{n}" for n in range(sum(len(flat_types(param.checked_type)) for param in main.params)))
    outputs = tuple(f"y{n}" for n in range(len(flat_types(main.body.checked_type))))
    chosen = Target.parse(target)
    flags = (*compiler().kernel_cflags, *chosen.cflags)
    options = CodegenOptions("model", "model", chosen, flags, inputs, outputs, opt_level=3, module=module)
    return host_code(main, options)


def compiled(
    program: IRModule | str, folder: Path, threads: int = 1, target: str = "c", *, passes: bool = True
) -> Module:
    """The program, compiled into `folder` and loaded."""
    path = folder / "model.so"
    build_together(generated(program, target, passes=passes), target, path)
    return load_module(path, threads=threads)


def program_text(code: GeneratedCode) -> str:
    """The C text of everything that is no kernel."""
    return "\n".join(unit.text for unit in code.units if not unit.hot)


def weights_text(code: GeneratedCode) -> str:
    """The weights as a C array."""
    stream = io.BytesIO()
    blob = evaluate_weights(code)
    if blob is not None:
        blob.write(stream)
    values = ",".join(map(str, stream.getvalue() or b"0"))
    declared = "extern const unsigned char rb_weights[];\n"
    return f"{declared}_Alignas(64) const unsigned char rb_weights[] = {{{values}}};\n"


def kernel_calls(code: GeneratedCode, operator: str) -> int:
    """How many calls of kernels that compute an operator stand in the program."""
    titles = re.findall(r"^ *(?:/\* )([^\n]*) \*/$", program_text(code), re.MULTILINE)
    return sum(title.split(", ").count(operator) for title in titles)


def flat(value: Any) -> list[Array]:
    """The arrays of nested tuples, in order."""
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [np.asarray(value)]


def check(program: IRModule | str, model: Module, arguments: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Fail where the compiled program and the interpreter disagree."""
    module = program if isinstance(program, IRModule) else parse(HEAD + program)
    wanted = flat(interpret(module, *arguments))
    found = model.run_list(flat(tuple(arguments)))
    problems = [difference(want, have, tolerance) for want, have in zip(wanted, found)]
    assert len(wanted) == len(found)
    assert not any(problems), "\n".join(problems)
