"""Writes the C header of one model: its functions, and its inputs and outputs as named constants; runs nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from relaybuild.identifier import c_identifier as c_identifier
from relaybuild.runtime.sources import include_dir
from relaybuild.runtime.spec import TensorSpec

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def model_header(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """The header of the model `name`; it includes `relaybuild/model.h`."""
    return _header(name, inputs, outputs, '#include "relaybuild/model.h"\n')


def standalone_header(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """The header of the model `name` with everything that it needs inside: a C user takes this one file."""
    folder = include_dir() / "relaybuild"
    dlpack = (folder / "dlpack.h").read_text(encoding="utf-8")
    model = (folder / "model.h").read_text(encoding="utf-8")
    common = re.sub(r"#ifndef DLPACK_DLPACK_H_\n#include \"dlpack.h\"\n#endif\n", lambda _: dlpack, model)
    return _header(name, inputs, outputs, common)


def public_functions(name: str) -> tuple[str, ...]:
    """The functions of the model `name` that its header declares."""
    prefix = c_identifier(name)
    return tuple(dict.fromkeys(re.findall(rf"\b{prefix}_\w+(?=\()", _prototypes(prefix))))


def _header(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], common: str) -> str:
    prefix = c_identifier(name)
    upper = prefix.upper()
    taken = {f"{upper}_NUM_INPUTS", f"{upper}_NUM_OUTPUTS", f"{upper}_MODEL_H_"}
    input_constants = _constants(f"{upper}_INPUT", inputs, taken)
    output_constants = _constants(f"{upper}_OUTPUT", outputs, taken)
    parts = [
        _introduction(name, prefix, list(zip(input_constants, inputs)), list(zip(output_constants, outputs))),
        f"#ifndef {upper}_MODEL_H_\n#define {upper}_MODEL_H_\n",
        common,
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _tensor_list(f"{upper}_NUM_INPUTS", input_constants, inputs),
        _tensor_list(f"{upper}_NUM_OUTPUTS", output_constants, outputs),
        _prototypes(prefix),
        "#ifdef __cplusplus\n}\n#endif\n#endif\n",
    ]
    return "\n".join(parts)


def _constants(prefix: str, specs: Sequence[TensorSpec], taken: set[str]) -> list[str]:
    """One constant per tensor, such that none of the names derived from it meets another; adds them to `taken`."""
    constants = []
    for spec in specs:
        constant = next(c for c in _candidates(prefix, spec.name) if taken.isdisjoint(_family(c)))
        taken.update(_family(constant))
        constants.append(constant)
    return constants


def _candidates(prefix: str, name: str) -> Iterator[str]:
    stem = f"{prefix}_{re.sub(r'[^A-Z0-9]+', '_', name.upper()).strip('_')}".rstrip("_")
    yield stem
    number = 2
    while True:
        yield f"{stem}_{number}"
        number += 1


def _family(constant: str) -> list[str]:
    return [constant, *(f"{constant}_{suffix}" for suffix in ("NDIM", "SHAPE", "SIZE"))]


def _tensor_list(count: str, constants: Sequence[str], specs: Sequence[TensorSpec]) -> str:
    indices = [*(f"{constant} = {index}" for index, constant in enumerate(constants)), f"{count} = {len(specs)}"]
    blocks = ["enum {\n" + ",\n".join(f"  {entry}" for entry in indices) + "\n};\n"]
    for constant, spec in zip(constants, specs):
        lines = [
            f"/* {_comment(spec)} */",
            f"#define {constant}_NDIM {len(spec.shape)}",
            *([f"#define {constant}_SHAPE {{{', '.join(map(str, spec.shape))}}}"] if spec.shape else []),
            f"#define {constant}_SIZE {math.prod(spec.shape)} /* elements */",
        ]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _comment(spec: TensorSpec) -> str:
    return f"{_comment_text(spec.name)}: {spec.dtype} ({', '.join(map(str, spec.shape))})"


def _comment_text(name: str) -> str:
    """`name` without what would end the comment or the line."""
    printable = "".join(c if c.isprintable() else "?" for c in name)
    return f"'{printable}'".replace("*/", "*_/").replace("/*", "/_*")


def _prototypes(prefix: str) -> str:
    return f"""/* What the functions do is said at RbModelApi. */
const RbModelApi *{prefix}_api(void);
RbStatus {prefix}_create(int32_t threads, RbInstance **out);
RbStatus {prefix}_run(RbInstance *instance, const DLTensor *const *inputs, int32_t num_inputs,
                      DLTensor *const *outputs, int32_t num_outputs);
void {prefix}_destroy(RbInstance *instance);
const RbModelInfo *{prefix}_describe(void);
const char *{prefix}_last_error(void);
int32_t {prefix}_num_threads(const RbInstance *instance);
"""


def _introduction(
    name: str, prefix: str, inputs: Sequence[tuple[str, TensorSpec]], outputs: Sequence[tuple[str, TensorSpec]]
) -> str:
    upper = prefix.upper()
    buffers = [
        f"static {_C_TYPES.get(spec.dtype, 'unsigned char')} {kind}_{index}[{constant}_SIZE];"
        for kind, tensors in (("input", inputs), ("output", outputs))
        for index, (constant, spec) in enumerate(tensors)
    ]
    bindings = [
        f"{kind}s[{constant}] = rb_tensor(&info->{kind}s[{constant}], {kind}_{index});"
        for kind, tensors in (("input", inputs), ("output", outputs))
        for index, (constant, _) in enumerate(tensors)
    ]
    pointers = [
        f"{'const ' if kind == 'input' else ''}DLTensor *{kind}_list[] = "
        f"{{{', '.join(f'&{kind}s[{i}]' for i in range(len(tensors)))}}};"
        for kind, tensors in (("input", inputs), ("output", outputs))
    ]
    code = [
        *buffers,
        f"const RbModelInfo *info = {prefix}_describe();",
        f"DLTensor inputs[{upper}_NUM_INPUTS], outputs[{upper}_NUM_OUTPUTS];",
        *bindings,
        *pointers,
        "RbInstance *instance;",
        f"if ({prefix}_create(0, &instance) ||",
        f"    {prefix}_run(instance, input_list, {upper}_NUM_INPUTS, output_list, {upper}_NUM_OUTPUTS))",
        f'  fprintf(stderr, "%s\\n", {prefix}_last_error());',
        f"{prefix}_destroy(instance);",
    ]
    lines = [f"Model {_comment_text(name)}, compiled by relaybuild. Use:", "", *(f"  {line}" for line in code)]
    lines += ["", f"In C++, relaybuild/model.hpp makes an object of what {prefix}_api() returns."]
    return "/* " + "\n".join(f" * {line}".rstrip() for line in lines)[3:] + "\n */\n"
