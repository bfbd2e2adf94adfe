"""Reductions by the threads of a group: each reduces its part of the line, then the group their results."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.axes import TiledAxes
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import define_reduction, reduction_stage
from halide_backend.program.loop_program import Value
from halide_backend.schedule.stage import Loop, LoopKind, Role
from halide_backend.schedule.tiling import STEP, TilingKind


def reduce_by_group(
    builder: KernelBuilder[TiledAxes], stem: str, kind: str, operand: str, loops: Sequence[Loop], value: Value
) -> tuple[str, str]:
    """`KernelBuilder.reduce` by the threads of a group."""
    tiling = builder.axes.tiling
    region = builder.unique_name("r")
    steps = index_text(builder.axes.line_steps)
    builder.lines.append(f'{region} = hl.RDom([(0, {tiling.elements}), (0, {steps})], "{region}")')
    step = Loop(f"{region}$y", tiling.steps, STEP, not tiling.computed, LoopKind.STEP)
    updates = (Loop(f"{region}$x", tiling.elements, "e", kind=LoopKind.ELEMENT), step)
    lines, places = builder.axes.thread_coordinates(f"{region}[1]", f"{region}[0]")
    builder.lines += lines
    kept = [builder.axes.thread, *builder.axes.loops(value.axes)]
    partial, names = builder.unique_name(stem), [loop.name for loop in kept]
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    start = f"reductions.initial({kind!r}, {element})"
    if tiling.ragged and (tiling.kind is TilingKind.REGISTERS or not tiling.computed):
        element = f"hl.select({region}_c < {index_text(builder.axes.line_chunks)}, {element}, {start})"
    stage = reduction_stage(builder, partial, kind, operand, kept, updates)
    own = define_reduction(builder, stage, kind, start, element)
    whole = f"{partial}_group"
    if tiling.kind is TilingKind.REGISTERS:
        number = sum(stage.role is Role.GROUP_REDUCTION for stage in builder.stages)
        text = f"reductions.across_group({kind!r}, {own}, {tiling.threads}, {number})"
        return builder.func(whole, Role.GROUP_REDUCTION, kept, text, calls=[partial]), whole
    if tiling.kind is TilingKind.COLUMNS:
        builder.func(whole, Role.GROUP_REDUCTION, kept, own, calls=[partial])
        return f"reductions.across_threads({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole
    builder.func(whole, Role.GROUP_REDUCTION, kept, f"reductions.across_warp({kind!r}, {own})", calls=[partial])
    return f"reductions.across_block({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole
