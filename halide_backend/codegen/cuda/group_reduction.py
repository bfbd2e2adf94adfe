"""Reductions by the threads of a group: each reduces its part of the line, then the group their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.axes import TiledAxes
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import define_reduction, define_tuple, reduction_stage
from halide_backend.program.loop_program import Value
from halide_backend.schedule.stage import Loop, LoopKind, Role
from halide_backend.schedule.tiling import STEP, THREAD, WARP, TilingKind


def reduce_by_group(
    builder: KernelBuilder[TiledAxes], stem: str, kind: str, operand: str, loops: Sequence[Loop], value: Value
) -> tuple[str, str]:
    """`KernelBuilder.reduce` by the threads of a group."""
    tiling = builder.axes.tiling
    share = _share(builder, loops)
    kept = [builder.axes.thread, *builder.axes.loops(value.axes)]
    partial, names = builder.unique_name(stem), [loop.name for loop in kept]
    start, element = share.texts(kind, operand)
    stage = reduction_stage(builder, partial, kind, operand, kept, share.updates)
    own = define_reduction(builder, stage, kind, start, element)
    whole = f"{partial}_group"
    if tiling.interleaved:
        text = f"reductions.across_lines({kind!r}, {own}, {tiling.threads}, {tiling.side}, {_places(builder)})"
        return builder.func(whole, Role.GROUP_REDUCTION, kept, text, calls=[partial]), whole
    if tiling.kind is TilingKind.REGISTERS:
        number = sum(stage.role is Role.GROUP_REDUCTION for stage in builder.stages)
        text = f"reductions.across_group({kind!r}, {own}, {tiling.threads}, {number})"
        return builder.func(whole, Role.GROUP_REDUCTION, kept, text, calls=[partial]), whole
    if tiling.kind is TilingKind.COLUMNS:
        text = f"reductions.across_lanes({kind!r}, {own}, {tiling.side})"
        builder.func(whole, Role.GROUP_REDUCTION, kept, text, calls=[partial])
        rest = tuple_text(names[1:])
        return f"reductions.across_threads({kind!r}, {whole}, {tiling.threads}, {tiling.side}, {rest})", whole
    builder.func(whole, Role.GROUP_REDUCTION, kept, f"reductions.across_warp({kind!r}, {own})", calls=[partial])
    return f"reductions.across_block({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole


def reduce_together_by_group(
    builder: KernelBuilder[TiledAxes],
    kinds: Sequence[str],
    operands: Sequence[str],
    loops: Sequence[Loop],
    value: Value,
) -> tuple[list[str], str]:
    """`KernelBuilder.reduce_together` by the threads of a column, or of a block that walks along a line."""
    share = _share(builder, loops)
    kept = [builder.axes.thread, *builder.axes.loops(value.axes)]
    starts, elements = zip(*(share.texts(kind, operand) for kind, operand in zip(kinds, operands)))
    own, name = define_tuple(builder, kinds, operands, kept, share.updates, starts, elements)
    whole, rest = f"{name}_group", tuple_text([loop.name for loop in kept[1:]])
    tiling = builder.axes.tiling
    columns = tiling.kind is TilingKind.COLUMNS
    lanes, threads = ("lanes", "threads") if columns else ("warp", "block")
    side = f", {tiling.side}" * columns
    parts = [f"reductions.across_{lanes}({kind!r}, hl.Expr({own}[{k}]){side})" for k, kind in enumerate(kinds)]
    builder.func(whole, Role.GROUP_REDUCTION, kept, f"hl.Tuple([{', '.join(parts)}])", calls=[name])
    return [
        f"reductions.across_{threads}({kind!r}, {whole}, {tiling.threads}{side}, {rest}, {k})"
        for k, kind in enumerate(kinds)
    ], whole


def _places(builder: KernelBuilder[TiledAxes]) -> str:
    """The texts of a thread's number in its group, of its line's in the block, and of the first word of shared memory
    where threads meet: warps have a number of up to 64 bits for each of their lines."""
    tiling = builder.axes.tiling
    (line,) = builder.axes.loops([tiling.adjacent])
    words = 2 * tiling.side * max(1, tiling.side * tiling.threads // WARP)
    return f"{THREAD}, {line.name} % {tiling.side}, {builder.numbers('shared', words)}"


@dataclass(frozen=True)
class _Share:
    """What a thread of a group reduces: its loops `updates`, and the coordinates `places` of an element of them, which
    counts only if `inside`, or always if that is ""."""

    updates: tuple[Loop, ...]
    places: list[str]
    inside: str

    def texts(self, kind: str, operand: str) -> tuple[str, str]:
        """The texts of an empty reduction, and of an element of Func `operand`."""
        element = f"hl.Expr({call_text(operand, self.places)})"
        start = f"reductions.initial({kind!r}, {element})"
        return start, f"hl.select({self.inside}, {element}, {start})" if self.inside else element


def _share(builder: KernelBuilder[TiledAxes], loops: Sequence[Loop]) -> _Share:
    """Write the RDom of a thread's share of what has `loops`."""
    tiling = builder.axes.tiling
    region = builder.unique_name("r")
    steps = index_text(builder.axes.line_steps)
    builder.lines.append(f'{region} = hl.RDom([(0, {tiling.line_elements}), (0, {steps})], "{region}")')
    step = Loop(f"{region}$y", tiling.steps, STEP, not tiling.computed, LoopKind.STEP)
    updates = (Loop(f"{region}$x", tiling.line_elements, "e", kind=LoopKind.ELEMENT), step)
    lines, places = builder.axes.thread_coordinates(f"{region}[1]", f"{region}[0]")
    builder.lines += lines
    ragged = tiling.ragged and (tiling.kind is TilingKind.REGISTERS or not tiling.computed)
    inside = f"{region}_c < {index_text(builder.axes.line_chunks)}" if ragged else builder.axes.in_row
    return _Share(updates, [places.get(loop.name, loop.name) for loop in loops], inside)
