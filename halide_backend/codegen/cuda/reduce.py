"""Reductions: by a thread alone, or by the threads of a group, each its share and then together."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.cuda.axes import inner_first
from halide_backend.codegen.cuda.kernel_builder import KernelBuilder
from halide_backend.codegen.cuda.text import call_text, tuple_text
from halide_backend.codegen.index_text import index_text
from halide_backend.program.loop_program import Reduction, Value
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage, rvar
from halide_backend.schedule.tiling import STEP, TilingKind


def write_reduction(builder: KernelBuilder, position: int, value: Value, text: str, roots: Sequence[int]) -> str:
    """Write the Funcs that reduce `text`, made of the values `roots`, to `value`; returns the text of its result."""
    reduction = value.attribute
    assert isinstance(reduction, Reduction)
    kind = reduction.kind
    (operand,) = value.operands
    axes = {axis.name for axis in reduction.axes}.union(*(builder.program.values[root].axes for root in roots))
    loops = builder.axes.loops(axes, group=not builder.reduced_by_group.isdisjoint(roots))
    text = f"reductions.encode({kind!r}, {text})"
    encoded = builder.fresh(f"{kind}_operand")
    builder.func(encoded, Role.INLINE, loops, text, builder.calls_of(roots))
    total, best = _reduce(builder, kind, kind, encoded, loops, reduction, value)
    builder.calls[position] = best
    if kind not in ("argmax", "argmin"):
        return f"reductions.decode({kind!r}, t{operand}.type(), {total})"
    assert reduction.position is not None
    candidate = builder.fresh(f"{kind}_position")
    key = f"hl.Expr({call_text(encoded, [loop.name for loop in loops])})"
    text = f"reductions.candidate({kind!r}, {key}, {total}, {index_text(reduction.position)})"
    # The best key is a value of the group: in a warp every lane has its own copy.
    loops = builder.axes.loops(axes, group=True)
    builder.func(candidate, Role.INLINE, loops, text, [encoded, best])
    first, builder.calls[position] = _reduce(builder, f"{kind}_first", "min", candidate, loops, reduction, value)
    return f"ops.to_dtype('int32', {value.dtype!r}, {first})"


def _reduce(
    builder: KernelBuilder,
    stem: str,
    kind: str,
    operand: str,
    loops: Sequence[Loop],
    reduction: Reduction,
    value: Value,
) -> tuple[str, str]:
    """Write the reduction of Func `operand`; returns the text of its result, and the Func that has it."""
    if builder.tiling.kind is TilingKind.THREAD:
        return _reduce_alone(builder, stem, kind, operand, loops, reduction, value)
    tiling = builder.tiling
    region = builder.fresh("r")
    steps = index_text(builder.axes.line_steps)
    builder.lines.append(f'{region} = hl.RDom([(0, {tiling.elements}), (0, {steps})], "{region}")')
    step = Loop(f"{region}$y", tiling.steps, STEP, not tiling.computed, LoopKind.STEP)
    updates = (Loop(f"{region}$x", tiling.elements, "e", kind=LoopKind.ELEMENT), step)
    lines, places = builder.axes.thread_coordinates(f"{region}[1]", f"{region}[0]")
    builder.lines += lines
    kept = [builder.axes.thread, *builder.axes.loops(value.axes)]
    partial, names = builder.fresh(stem), [loop.name for loop in kept]
    own = call_text(partial, names)
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    start = f"reductions.initial({kind!r}, {element})"
    if tiling.ragged and not tiling.computed:
        element = f"hl.select({region}_c < {tiling.chunks}, {element}, {start})"
    stage = Stage(partial, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind)
    _define(builder, stage, own, start, element)
    whole = f"{partial}_group"
    if tiling.kind is TilingKind.REGISTERS:
        number = sum(stage.role is Role.GROUP_REDUCTION for stage in builder.stages)
        text = f"reductions.across_group({kind!r}, hl.Expr({own}), {tiling.threads}, {number})"
        return builder.func(whole, Role.GROUP_REDUCTION, kept, text, [partial]), whole
    if tiling.kind is TilingKind.COLUMNS:
        builder.func(whole, Role.GROUP_REDUCTION, kept, f"hl.Expr({own})", [partial])
        return f"reductions.across_threads({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole
    builder.func(whole, Role.GROUP_REDUCTION, kept, f"reductions.across_warp({kind!r}, hl.Expr({own}))", [partial])
    return f"reductions.across_block({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole


def _reduce_alone(
    builder: KernelBuilder,
    stem: str,
    kind: str,
    operand: str,
    loops: Sequence[Loop],
    reduction: Reduction,
    value: Value,
) -> tuple[str, str]:
    names = inner_first(axis.name for axis in reduction.axes)
    region = builder.fresh("r")
    extents = ", ".join(f"(0, {index_text(builder.axes.extents[name])})" for name in names)
    builder.lines.append(f'{region} = hl.RDom([{extents}], "{region}")')
    places = {name: f"{region}[{k}]" for k, name in enumerate(names)}
    updates = tuple(builder.axes.loop(rvar(region, k), name) for k, name in enumerate(names))
    kept = builder.axes.loops(value.axes)
    func = builder.fresh(stem)
    own = call_text(func, [loop.name for loop in kept])
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    stage = Stage(func, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind)
    _define(builder, stage, own, f"reductions.initial({kind!r}, {element})", element)
    return f"hl.Expr({own})", func


def _define(builder: KernelBuilder, stage: Stage, own: str, start: str, element: str) -> None:
    """Write the Func of `stage`, which is `own` at its Vars: `start`, then combined with each `element`."""
    builder.lines += [
        f'{stage.name} = hl.Func("{stage.name}")',
        f"{own} = {start}",
        f"{own} = reductions.combine({stage.operator!r}, hl.Expr({own}), ops.opaque({element}))",
    ]
    builder.stages.append(stage)
