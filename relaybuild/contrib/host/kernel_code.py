"""Kernels as C text under a symbol that is filled in later, each made once for all equal workloads; lowers nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.lower.c_writer import print_kernel
from relaybuild.lower.loop_ir import Kernel, Parameter
from relaybuild.partition.backend import Remember

PLACEHOLDER = "rb_kernel"
_SYMBOL = re.compile(rf"\b{PLACEHOLDER}\b")


@dataclass(frozen=True)
class KernelCode:
    """A kernel's text, in which it is called `PLACEHOLDER`, the operators it computes, its buffers, and the bytes of
    scratch memory that each thread gives it."""

    title: str
    text: str
    parameters: tuple[Parameter, ...]
    scratch_bytes: int

    @classmethod
    def of(cls, kernel: Kernel) -> KernelCode:
        """A kernel, printed."""
        return cls(kernel.title, print_kernel(kernel, PLACEHOLDER), kernel.parameters, kernel.scratch_bytes)

    def named(self, symbol: str) -> str:
        """The text of the kernel under a symbol."""
        return _SYMBOL.sub(symbol, self.text)

    def pack(self) -> bytes:
        """All of it as bytes: facts as JSON in a line, then the text."""
        parameters = [[each.name, each.ctype, each.const] for each in self.parameters]
        facts = {"title": self.title, "parameters": parameters, "scratch_bytes": self.scratch_bytes}
        return f"{json.dumps(facts)}\n{self.text}".encode()

    @classmethod
    def unpack(cls, data: bytes) -> KernelCode:
        """What was packed."""
        head, _, text = data.decode().partition("\n")
        facts = json.loads(head)
        parameters = tuple(Parameter(*each) for each in facts["parameters"])
        return cls(facts["title"], text, parameters, facts["scratch_bytes"])


class Kernels:
    """The kernels of one program by workload. `remember` gives what other programs have made, or makes it."""

    def __init__(self, remember: Remember | None = None) -> None:
        self._remember = remember
        self._made: dict[Digest, KernelCode] = {}

    def code(self, place: str, workload: Digest, lower: Callable[[], Kernel]) -> KernelCode:
        """The kernel of a workload, lowered where nobody has done it before; `place` says which nodes it serves."""
        if workload not in self._made:
            self._made[workload] = self._found(place, workload, lower)
        return self._made[workload]

    def _found(self, place: str, workload: Digest, lower: Callable[[], Kernel]) -> KernelCode:
        if self._remember is None:
            return KernelCode.of(lower())
        return KernelCode.unpack(self._remember(place, workload, lambda: KernelCode.of(lower()).pack()))
