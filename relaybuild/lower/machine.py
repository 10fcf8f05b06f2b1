"""The few facts about a machine that schedules are made from; knows nothing of templates."""

from __future__ import annotations

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Machine:
    """Vector lanes (float32), vector registers, cache sizes of one core, bytes a cycle it reads from memory, and
    whether a multiply-add is one instruction."""

    lanes: int
    registers: int
    l2_bytes: int = 512 * 1024
    memory_bytes_per_cycle: float = 4.0
    has_fma: bool = True

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Cycles of one step of a register tile: `pixels` broadcasts times `vectors` loads, a product of each pair.

        Two multiply-adds a cycle, each four cycles long; a broadcast or a load costs about half a cycle. Where there is
        none, instructions are what limits: three for a product, which loads its weights anew, and two for a broadcast.
        The figures are fitted to measured tiles.
        """
        products = pixels * vectors
        loads = pixels + vectors
        if not self.has_fma:
            return max((3 * products + 2 * pixels + 3) / 5.5, 4.0)
        return max(products / 2, 0.55 * loads, 6.0) + 0.05 * loads + 0.3

    def weight_cycles(self, columns: int, steps: int) -> float:
        """Cycles to bring one row of `columns` weights near, of `steps` rows that are read for every tile: from the
        second-level cache where they all stay there, else from beyond it."""
        stays = 4 * columns * steps <= 0.75 * self.l2_bytes
        return 4 * columns / (20.0 if stays else 10.0)

    def fits(self, pixels: int, vectors: int) -> bool:
        """Whether the accumulators, one row of weights and a broadcast fit into the registers; without multiply-adds, a
        product takes the place of the weights."""
        if self.lanes == 1:
            return pixels * vectors <= 32
        if not self.has_fma:
            return pixels * vectors + 3 <= self.registers
        return pixels * vectors + vectors + 1 <= self.registers
