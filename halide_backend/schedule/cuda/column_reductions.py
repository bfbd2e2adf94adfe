"""Reductions on CUDA that threads do alone: over an outer axis, so that neighbours read what is adjacent, or of few
points."""

from __future__ import annotations

from halide_backend.schedule.cuda.alone import THREAD, along_reduced, compute_together, give_to_threads
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, is_element, load_words
from halide_backend.schedule.cuda.unrolling import round_alone, unroll
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import ComputeAt, Reorder, Step, Unroll
from halide_backend.schedule.tiling import WARP

THREADS = Knob("column_reductions.threads", (32, 64, 128, 256, 512), "threads of a block")


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Every thread reduces for a chunk of adjacent points of the row."""
    found: list[Step] = []
    threads = kernel.choices.number(THREADS, WARP, "leaves each thread the registers for an unrolled sum")
    for stage in kernel.outputs:
        give_to_threads(found, kernel, stage, threads, parts=1)
    compute_together(found, kernel)
    parent = kernel.parent
    for stage in kernel.graph.stages:
        if stage.role is Role.STAGED_LOAD:
            _load(found, kernel, stage)
        elif stage.role is Role.REDUCTION:
            _reduce(found, kernel, stage)
        elif stage.role is Role.PACKED:
            # In the loop along what others reduce, if it has one: all of them together would lie in local memory.
            (output,) = kernel.graph.consumers(stage.name)
            serial = along_reduced(kernel, output)
            place = ComputeAt(stage.name, output.name, serial[0].name) if serial else None
            found += [
                place or ComputeAt(stage.name, parent.name, THREAD),
                Unroll(stage.name, stage.loops[0].name),
            ]
        found += kernel.narrowed(stage)
    return tuple(found)


def _load(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    """Load the words of a chunk at once, where its user wants them; without such a place one at a time."""
    sinks, reductions = kernel.sinks(stage.name), kernel.reductions_of(stage.name)
    if not reductions or not kernel.line(stage):
        load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, THREAD))
    elif len(sinks) == 1:
        _load_beside(found, kernel, stage, reductions[0])


def _load_beside(found: list[Step], kernel: TiledKernel, stage: Stage, reduction: Stage) -> None:
    """Load for one step of a reduction, or for all steps of an unrolled part whose words lie side by side."""
    loop = reduction.updates[0]
    count = _round(kernel, reduction)
    if count == 1 or (loop.fixed and loop.extent == count):
        var = loop.name
    elif not loop.fixed or loop.extent % count:
        var = f"{loop.name}i"
    else:
        found += [Unroll(stage.name, own.name) for own in stage.loops if own.axis == loop.axis]
        var = f"{loop.name}o"
    load_words(found, stage, ComputeAt(stage.name, reduction.name, var))


def _reduce(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    elements = [loop.name for loop in stage.loops if is_element(loop)]
    found += [
        ComputeAt(stage.name, kernel.parent.name, THREAD),
        Reorder(stage.name, (*elements, *(loop.name for loop in stage.updates)), update=True),
    ]
    for name in elements:
        found += [Unroll(stage.name, name), Unroll(stage.name, name, update=True)]
    unroll(found, stage, stage.updates[0], _round(kernel, stage))


def _round(kernel: TiledKernel, reduction: Stage) -> int:
    """Steps of the innermost loop of a reduction that are written out."""
    return round_alone(reduction.updates[0], max(stage.points for stage in kernel.graph.outputs))
