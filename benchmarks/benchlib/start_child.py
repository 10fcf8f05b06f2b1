"""One start, in a process of its own: load, first inference, further ones, memory; prints JSON and knows no other run.

python start_child.py relaybuild|onnxruntime FILE INPUTS.npz THREADS
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FURTHER_SECONDS = 0.5
FURTHER_LEAST, FURTHER_MOST = 5, 500

Inputs = dict[str, Any]


def open_relaybuild(file: str, threads: int) -> Callable[[Inputs], object]:
    """A function that runs the library `file`."""
    from relaybuild.runtime import load_model

    return load_model(file, threads).run


def open_onnxruntime(file: str, threads: int) -> Callable[[Inputs], object]:
    """A function that runs the model `file`."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def import_of(kind: str) -> None:
    """What a process pays before it opens anything."""
    if kind == "relaybuild":
        import relaybuild.runtime  # noqa: F401
    else:
        import onnxruntime  # noqa: F401


def resident_bytes() -> int:
    """Memory of this process that is in RAM, files that it maps included; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    import resource

    return pages * resource.getpagesize()


def measure(kind: str, file: str, inputs: Inputs, threads: int) -> dict[str, float]:
    """Seconds and bytes of one start."""
    begin = time.perf_counter()
    import_of(kind)
    imported = time.perf_counter()
    resident_before = resident_bytes()
    start = time.perf_counter()
    run = {"relaybuild": open_relaybuild, "onnxruntime": open_onnxruntime}[kind](file, threads)
    opened = time.perf_counter()
    run(inputs)
    first = time.perf_counter()
    resident = resident_bytes()
    times: list[float] = []
    while len(times) < FURTHER_LEAST or (sum(times) < FURTHER_SECONDS and len(times) < FURTHER_MOST):
        before = time.perf_counter()
        run(inputs)
        times.append(time.perf_counter() - before)
    return {
        "import": imported - begin,
        "load": opened - start,
        "first": first - opened,
        "inference": statistics.median(times),
        "beyond": first - start - statistics.median(times),
        "resident_before": resident_before,
        "resident": resident,
    }


if __name__ == "__main__":
    kind, file, arrays, threads = sys.argv[1:]
    with np.load(arrays) as loaded:
        inputs = dict(loaded)
    json.dump(measure(kind, file, inputs, int(threads)), sys.stdout)
