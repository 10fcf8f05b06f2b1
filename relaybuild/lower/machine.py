"""The few facts about a machine that schedules are made from; knows nothing of templates."""

from __future__ import annotations

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Machine:
    """Vector lanes (float32), vector registers, cache sizes of one core, and bytes a cycle it reads from memory."""

    lanes: int
    registers: int
    l2_bytes: int = 512 * 1024
    memory_bytes_per_cycle: float = 4.0

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Cycles of one step of a register tile: `pixels` broadcasts times `vectors` loads, a product of each pair.

        Two multiply-adds a cycle, each four cycles long; a broadcast or a load costs about half a cycle. The figures
        are fitted to measured tiles.
        """
        products = pixels * vectors
        loads = pixels + vectors
        return max(products / 2, 0.55 * loads, 6.0) + 0.05 * loads + 0.3

    def weight_cycles(self, columns: int, steps: int) -> float:
        """Cycles to bring one row of `columns` weights near, of `steps` rows that are read for every tile: from the
        second-level cache where they all stay there, else from beyond it."""
        stays = 4 * columns * steps <= 0.75 * self.l2_bytes
        return 4 * columns / (20.0 if stays else 10.0)

    def fits(self, pixels: int, vectors: int) -> bool:
        """Whether the accumulators, one row of weights and a broadcast fit into the registers."""
        if self.lanes == 1:
            return pixels * vectors <= 32
        return pixels * vectors + vectors + 1 <= self.registers
