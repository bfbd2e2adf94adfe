"""The grid of a CUDA kernel whose blocks are not counted by one fused loop."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.errors import Unsupported
from halide_backend.schedule.steps import GpuBlocks

#: Blocks in the second and third dimension of a grid.
MOST_BLOCKS = 65_535


def grid(func: str, loops: Sequence[tuple[str, int]]) -> GpuBlocks:
    """Give the (name, extent) loops of `func` to the dimensions of a grid, of which only the first may be long.

    Loops of one step for which no dimension is left stay loops.

    Raises:
        Unsupported: they are too many, or too long.
    """
    ordered = sorted(loops, key=lambda loop: -loop[1])
    if any(extent > 1 for _, extent in ordered[3:]) or any(extent > MOST_BLOCKS for _, extent in ordered[1:]):
        raise Unsupported(f"a CUDA grid of {' x '.join(str(extent) for _, extent in ordered)} blocks")
    return GpuBlocks(func, tuple(name for name, _ in ordered[:3]))
