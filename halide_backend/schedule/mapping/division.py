"""Which form a division takes: the processor's own has a branch, before which threads wait for what they load."""

from __future__ import annotations

from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.tiling import WARP, Team, Tiling


class Divisions:
    """The divisions of `program` under `tiling`; `constants` and `exact` are positions as `precision` finds them."""

    def __init__(self, program: LoopProgram, tiling: Tiling, constants: frozenset[int], exact: frozenset[int]) -> None:
        self._program = program
        self._tiling = tiling
        self._constants = constants
        self._exact = exact

    def text(self, position: int, text: str) -> str:
        """`text`, that of the value at `position`, or another one if it divides."""
        operands = self._program.values[position].operands
        names = [f"t{operand}" for operand in operands]
        if position in self._constants or text not in (" / ".join(names), f"ops.truediv({', '.join(names)})"):
            return text
        if position not in self._exact:
            return f"ops.divide({', '.join(names)})"
        if operands[1] in self._constants:
            return f"ops.divide_by_constant({', '.join(names)})"
        return f"ops.divide_by_shared({', '.join(names)})" if self._is_shared(operands[1]) else text

    def _is_shared(self, divisor: int) -> bool:
        """Whether a thread divides several numbers by it, while other warps of its multiprocessor do something else.

        Without branches the assembler puts all stores at the end: dequantising 8192 rows of 2048 bfloat16 took 28.4 us,
        and takes 23.4 us; but softmax of 50257 floats, where all warps divide at once, 132 us, and would take 163 us.
        """
        axes, tiling = self._program.values[divisor].axes, self._tiling
        if tiling.team is Team.REGISTERS:
            return tiling.threads <= WARP and axes.isdisjoint(tiling.inner)
        return tiling.team is not Team.BLOCK and bool(tiling.chunk) and axes.isdisjoint(tiling.cuts)
