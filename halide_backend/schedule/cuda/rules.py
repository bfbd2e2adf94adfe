"""Rules for CUDA: what becomes of the loops of a kernel, from its tiling and the structure of its stages.

All outputs share one grid: the others are computed with the first one, down to the thread. What a thread needs lies in
registers, which takes loops that unroll to constants; what threads of a block share lies in shared memory. The numbers
are explained in docs/design/cuda.md.
"""

from __future__ import annotations

from halide_backend.schedule.cuda import (
    block_lines,
    column_reductions,
    pointwise,
    register_lines,
    register_transposes,
    scans,
    scatters,
    shared_transposes,
)
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.stage import Role, StageGraph
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Team, Tiling


def cuda_steps(graph: StageGraph, tiling: Tiling, device: Gpu, choices: Choices) -> tuple[Step, ...]:
    """The steps that the rules choose for `graph`, whose Funcs are written for `tiling`, on `device`.

    Raises:
        Unsupported: its rows fit no grid.
        IllegalPlan: a requested knob has no such value.
    """
    kernel = TiledKernel(graph, tiling, device, choices)
    if kernel.parent.role is Role.SCATTER:
        return scatters.steps(kernel)
    match tiling.team:
        case Team.TILE:
            return shared_transposes.steps(kernel)
        case Team.PATCH:
            return register_transposes.steps(kernel)
        case Team.REGISTERS:
            return scans.steps(kernel) if kernel.has(Role.SCAN) else register_lines.steps(kernel)
        case Team.BLOCK:
            return block_lines.steps(kernel)
        case Team.THREAD:
            return column_reductions.steps(kernel) if kernel.has(Role.REDUCTION) else pointwise.steps(kernel)
