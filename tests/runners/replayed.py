"""Runs models' libraries on an emulated machine, all of a list in one start; knows no model and no expected result."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relaybuild.build.toolchain import probe
from relaybuild.runtime import include_dir
from runners.compiled import Array
from runners.emulated import run_emulated

SOURCE = Path(__file__).with_name("replay.c")


@dataclass(frozen=True)
class Job:
    """A library, the arguments of a run, with how many threads, and environment variables (no spaces in them)."""

    library: Path
    arguments: Sequence[Array]
    threads: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a library says: the status of its C interface (negative: the signal that ended it), the target that runs,
    and the bytes of its outputs, or of the sentence of an error."""

    status: int
    target: str
    content: bytes

    def outputs(self, like: Sequence[Array]) -> list[Array]:
        """The outputs, of the types of other arrays; fails the test where there are none."""
        assert self.status == 0, f"status {self.status}: {self.content.decode(errors='replace')}"
        assert len(self.content) == sum(array.nbytes for array in like)
        ends = np.cumsum([0, *(array.nbytes for array in like)])
        return [
            np.frombuffer(self.content, array.dtype, array.size, begin).reshape(array.shape)
            for array, begin in zip(like, ends.tolist())
        ]


def replay(jobs: Sequence[Job], *, cpu: str, timeout: float = 600) -> list[Answer]:
    """The answers of all jobs, in one start of a machine with a processor that Bochs has.

    Skips the test where there is no such machine.
    """
    with tempfile.TemporaryDirectory(prefix="relaybuild-replayed-") as name:
        folder = Path(name)
        flags = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include_dir()}")
        subprocess.run([*probe(None).command, *flags, SOURCE, "-o", folder / "replay", "-ldl", "-lpthread"], check=True)
        libraries: dict[Path, str] = {}
        lines = []
        for number, job in enumerate(jobs):
            if job.library not in libraries:
                libraries[job.library] = f"./library{len(libraries)}.so"
                shutil.copy(job.library, folder / libraries[job.library])
            inputs = folder / f"inputs{number}"
            inputs.write_bytes(b"".join(argument.tobytes() for argument in job.arguments))
            variables = (f"{name}={value}" for name, value in job.variables.items())
            lines.append(" ".join([libraries[job.library], str(job.threads), inputs.name, *variables]))
        (folder / "jobs").write_text("".join(f"{line}\n" for line in lines))
        ended = run_emulated(folder, ["./replay", "jobs"], cpu=cpu, timeout=timeout)
    assert ended.code == 0, (ended.code, ended.err)
    answers = []
    rest = ended.out
    while rest:
        line, _, rest = rest.partition(b"\n")
        status, target, size = line.decode().split()
        answers.append(Answer(int(status), target, rest[: int(size)]))
        rest = rest[int(size) :]
    assert len(answers) == len(jobs), ended.err
    return answers
