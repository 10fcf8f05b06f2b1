"""The weights of a library: what they are computed from, and when they are; does not know how they are computed.

A library is looked up by what goes into its weights. They are evaluated only where somebody has to write them, straight
into the file.
"""

from __future__ import annotations

import contextlib
import mmap
import os

from relaybuild.build.weights import WeightBlob
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.codegens import HostCode
from relaybuild.compilation.evaluation import WeightsPlan
from relaybuild.compilation.known import Known
from relaybuild.compilation.programs import origins
from relaybuild.digest import Digest, Hasher
from relaybuild.partition.backend import GeneratedCode

_EVALUATION = "relaybuild.compilation.evaluation"


def plan_of(code: GeneratedCode) -> WeightsPlan | None:
    """How the weights of generated code are evaluated; None if it has none."""
    if code.weights is None or not code.weight_bytes:
        return None
    return WeightsPlan(code.weights, tuple(code.weight_offsets), code.weight_bytes)


def evaluate_weights(code: GeneratedCode) -> WeightBlob | None:
    """The weights of generated code, evaluated into memory, with the digest of their bytes."""
    plan = plan_of(code)
    if plan is None:
        return None
    memory = mmap.mmap(-1, plan.num_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    digest = plan.write(memory)
    return WeightBlob.from_bytes(memoryview(memory), digest.hex)


def library_weights(host: HostCode, actions: Actions, known: Known) -> WeightBlob | None:
    """The weights of the host's code, to be evaluated when they are written; None if it has none."""
    if host.weights is None or not host.code.weight_bytes:
        return None
    if actions.cache is None:
        # Nobody compares: no digest is worth reading all constants for.
        digest = os.urandom(32).hex()
    elif known.objection or not actions.has_cache:
        return evaluate_weights(host.with_weights())
    else:
        digest = _digest(host, known).hex

    def plan() -> WeightsPlan:
        found = plan_of(host.with_weights())
        assert found is not None
        return found

    offsets = tuple(host.code.weight_offsets)
    return WeightBlob(lambda file: plan().write_unhashed(file), digest, host.code.weight_bytes, offsets)


def _digest(host: HostCode, known: Known) -> Digest:
    """The digest of all that decides the bytes: the function, its constants, their places, and the code that runs."""
    program = host.weights
    assert program is not None
    hasher = Hasher("weights.2").field("function", program.digest)
    for origin in origins(program.stored):
        hasher.field("constant", program.weights.digest(origin))
    hasher.field("offsets", tuple(host.code.weight_offsets)).field("size", host.code.weight_bytes)
    return hasher.field("code", known.codes.of(_EVALUATION)).field("numpy", known.codes.package("numpy")).digest()
