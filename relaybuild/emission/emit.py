"""Packs the folder that a library's parts become; knows which forms are folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from relaybuild.build.bundle import pack
from relaybuild.build.files import write_atomically
from relaybuild.build.forms import Form
from relaybuild.build.weights import check_weights
from relaybuild.digest import digest_file
from relaybuild.emission.layout import Parts
from relaybuild.emission.project import project_files
from relaybuild.emission.recording import can_record, recorded_outputs
from relaybuild.emission.sources import source_files
from relaybuild.ir.module import IRModule
from relaybuild.runtime.spec import TensorSpec


def emit(
    form: Form,
    parts: Parts,
    path: Path,
    tensors: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    module: Callable[[], IRModule],
) -> None:
    """Pack the folder of a form into a file at `path`, beside which its weights are written.

    `tensors` are the inputs and the outputs of the model, `module` gives the model as it was read: a project's test
    expects what the interpreter computes. Raises UserError where a file cannot be written.
    """
    check_weights(parts.spec.weights)
    whole = _with_weights(parts, path.with_suffix(".weights"))
    if form is Form.SOURCES:
        pack(source_files(whole), path)
        return
    inputs, outputs = tensors
    is_checked = can_record((*inputs, *outputs))
    pack(project_files(whole, recorded_outputs(module(), inputs) if is_checked else None), path)


def _with_weights(parts: Parts, path: Path) -> Parts:
    weights = parts.spec.weights
    if weights is None:
        return parts
    write_atomically(path, weights.write)
    return replace(parts, weights=path, weights_digest=digest_file(path).hex)
