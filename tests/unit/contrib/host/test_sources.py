"""The C that the host writes: no warnings, nothing but arithmetic in it, and clean under the sanitizers."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runners.compiled import Batch, call, generate, target_params, weight
from runners.test_host import BATCHES, add_case
from suites.ops import Case

from relaybuild.build.toolchain import probe
from relaybuild.compilation.weights import evaluate_weights
from relaybuild.ir.expr import Expr, Function, Tuple
from relaybuild.ir.interpreter import interpret
from relaybuild.lower.sources import include_dir as kernel_include_dir
from relaybuild.partition.backend import GeneratedCode
from relaybuild.runtime import include_dir, model_sources
from relaybuild.target import Target

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-O1")
BYTES_A_LINE = 32


def compiler() -> str:
    return str(probe(None).path)


def compile_text(text: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    source = folder / "unit.c"
    source.write_text(text)
    folders = [f"-I{include_dir()}", f"-I{kernel_include_dir()}"]
    return subprocess.run([compiler(), *flags, *folders, str(source)], capture_output=True, text=True)


def network(batch: Batch) -> Expr:
    """A small network with a kernel of every template."""
    r = np.random.default_rng(3)

    def real(*shape: int) -> Expr:
        return weight(r.normal(size=shape).astype("float32") * np.float32(0.3))

    x = batch.input(r.normal(size=(2, 3, 14, 11)).astype("float32"))
    y = batch.input(r.normal(size=(2, 33, 7, 6)).astype("float32"))
    scale = batch.input(r.normal(size=(33, 1, 1)).astype("float32"))
    first = call("nn.relu", call("nn.conv2d", x, real(33, 3, 3, 3), padding=1, strides=2))
    first = call("multiply", call("add", first, y), scale)
    first = call("add", first, call("nn.max_pool2d", call("nn.conv2d", y, real(33, 33, 1, 1)), pool_size=3, padding=1))
    first = call("subtract", first, call("tanh", call("multiply", y, scale)))
    wide = call("tanh", call("nn.conv2d", first, real(40, 33, 3, 3), padding=1))
    deep = call("nn.conv2d", first, real(33, 1, 5, 5), padding=2, groups=33)
    grouped = call("nn.conv2d", first, real(66, 11, 1, 3), padding=(0, 1), groups=3)
    joined = call("concatenate", Tuple([wide, deep, grouped, first]), axis=1)
    pooled = call("nn.max_pool2d", joined, pool_size=3, strides=2, padding=1, ceil_mode=True)
    smooth = call("nn.avg_pool2d", pooled, pool_size=2, padding=1)
    up = call("nn.conv2d_transpose", smooth, real(172, 5, 3, 3), strides=2, padding=1, output_padding=1)
    sized = call("image.resize2d", up, size=(7, 9), method="linear")
    gate = call("sigmoid", call("nn.global_avg_pool2d", sized))
    gated = call("multiply", sized, gate)
    rows = call("reshape", gated, newshape=(2, 5, 63))
    scores = call("nn.softmax", call("nn.matmul", rows, rows, transpose_b=True))
    mixed = call("nn.matmul", scores, rows)
    flat = call("nn.dense", call("reshape", mixed, newshape=(2, -1)), real(19, 315))
    normal = call("nn.layer_norm", flat, real(19), real(19))
    batch.add("normal", normal, 1e-4)
    batch.add("best", call("argmax", normal, axis=1))
    padded = call("nn.pad", gated, pad_width=((0, 0), (1, 2), (0, 3), (2, 0)))
    batch.add("padded", call("strided_slice", padded, begin=(7, 0), end=(0, 9), strides=(-2, 1), axes=(1, 3)), 1e-4)
    return normal


def without_halves(cases: list[Case]) -> Batch:
    """The cases without numbers of 16 bits, which are no standard C."""
    batch = Batch()
    for case in cases:
        if not any(tensor.dtype.name == "float16" for tensor in case.tensors) and case.attrs.get("dtype") != "float16":
            add_case(batch, case)
    return batch


@pytest.mark.parametrize("target", target_params())
def test_strict_warnings(target: str, tmp_path: Path) -> None:
    whole = Batch()
    network(whole)
    batches = [whole, *map(without_halves, BATCHES)]
    kernels = dict.fromkeys(unit.text for batch in batches for unit in batch.generate(target).units if unit.hot)
    standard = "-std=c11" if target == "c" else "-std=gnu11"
    found = compile_text("\n".join(kernels), tmp_path, standard, *STRICT, *Target.parse(target).cflags)
    assert found.returncode == 0, found.stderr[:3000]


def test_a_kernel_holds_nothing_but_arithmetic() -> None:
    batch = Batch()
    network(batch)
    for unit in batch.generate("x86-64-v3", 3).units:
        assert not re.search(r"\b(malloc|calloc|free|printf|fopen|stdio|stdlib)\b", unit.text if unit.hot else "")
        assert not unit.hot or unit.text.startswith("/* ")


def main_text(batch: Batch, function: Function) -> str:
    """A program that runs the model twice on the batch's arguments and prints every output as float."""
    lines = ['#include "relaybuild/model.h"', "#include <stdio.h>"]
    inputs = [argument.astype("float32") for argument in batch.arguments]
    for number, argument in enumerate(inputs):
        values = ", ".join(f"{float(value)!r}f" for value in argument.reshape(-1))
        lines.append(f"static float input{number}[] = {{{values}}};")
    kinds = [result.tensor_type for result in batch.results]
    for number, kind in enumerate(kinds):
        ctype = {"float32": "float", "int64": "int64_t", "int32": "int32_t"}[kind.dtype]
        lines.append(f"static {ctype} output{number}[{kind.num_elements}];")
    create = ["RbStatus model_create(int32_t threads, RbInstance **out);", "void model_destroy(RbInstance *instance);"]
    create.append("RbStatus model_run(RbInstance *, const DLTensor *const *, int32_t, DLTensor *const *, int32_t);")
    create.append("const RbModelInfo *model_describe(void);")
    body = ["RbInstance *instance;", "const RbModelInfo *info = model_describe();"]
    body += [f"DLTensor in{n} = rb_tensor(&info->inputs[{n}], input{n});" for n in range(len(inputs))]
    body += [f"DLTensor out{n} = rb_tensor(&info->outputs[{n}], output{n});" for n in range(len(kinds))]
    body.append(f"const DLTensor *ins[] = {{{', '.join(f'&in{n}' for n in range(len(inputs)))}}};")
    body.append(f"DLTensor *outs[] = {{{', '.join(f'&out{n}' for n in range(len(kinds)))}}};")
    run = f"model_run(instance, ins, {len(inputs)}, outs, {len(kinds)})"
    body.append(f"if (model_create(3, &instance) || {run} || {run}) return 1;")
    for number, kind in enumerate(kinds):
        body.append(f'for (int i = 0; i < {kind.num_elements}; ++i) printf("%.9g\\n", (double)output{number}[i]);')
    body.append("model_destroy(instance);")
    return "\n".join([*lines, *create, "int main(void) {", *body, "return 0;", "}", ""])


def weights_text(code: GeneratedCode) -> str:
    """The weights as an array, instrumented like the rest."""
    blob = evaluate_weights(code)
    assert blob is not None
    stream = io.BytesIO()
    blob.write(stream)
    data = stream.getvalue()
    # a literal takes far less time than a list, and its zero at the end is left out where the size is given
    rows = [
        "".join(f"\\{byte:03o}" for byte in data[at : at + BYTES_A_LINE]) for at in range(0, len(data), BYTES_A_LINE)
    ]
    text = "\n".join(f'"{row}"' for row in rows)
    return (
        '#include "relaybuild/program.h"\n'
        "extern const unsigned char rb_weights[];\n"
        f"_Alignas(64) const unsigned char rb_weights[{len(data)}] =\n{text};\n"
    )


@pytest.mark.parametrize("target", target_params())
def test_a_network_under_the_sanitizers(target: str, tmp_path: Path) -> None:
    batch = Batch()
    network(batch)
    code = generate(batch.function(), target, 3)
    kernels = "\n".join(unit.text for unit in code.units if unit.hot)
    programs = "\n".join(unit.text for unit in code.units if not unit.hot)
    texts = {
        "kernels": kernels,
        "program": programs,
        "weights": weights_text(code),
        "main": main_text(batch, batch.function()),
    }
    texts.update((source.stem, source.read_text()) for source in model_sources())
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
    sources = [str(tmp_path / f"{name}.c") for name in texts]
    # unoptimised, every access is looked at, and that takes a fifth of the time
    flags = [
        "-std=gnu11",
        "-O0",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-ffp-contract=fast",
    ]
    folders = [f"-I{include_dir()}", f"-I{kernel_include_dir()}"]
    program = tmp_path / "program"
    command = [
        compiler(),
        *flags,
        *Target.parse(target).cflags,
        *folders,
        *sources,
        "-lm",
        "-lpthread",
        "-o",
        str(program),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:2000]
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:3000]
    found = np.asarray([float(line) for line in ran.stdout.split()])
    expected = np.concatenate([value.reshape(-1) for value in interpret(batch.function(), *batch.arguments)])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
