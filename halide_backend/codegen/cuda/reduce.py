"""Reductions: by a thread alone, or by the threads of a team, each its share and then together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halide_backend.codegen.cuda.axes import STEP, inner_first
from halide_backend.codegen.cuda.text import call_text, tuple_text
from halide_backend.codegen.index_text import index_text
from halide_backend.program.loop_program import Reduction, Value
from halide_backend.schedule.stage import Loop, Role, Stage, rvar
from halide_backend.schedule.tiling import Team

if TYPE_CHECKING:
    from halide_backend.codegen.cuda.source import Writer


def write_reduction(writer: Writer, position: int, value: Value, reduction: Reduction) -> str:
    """Write the Funcs that reduce `value`; returns the text of its result."""
    kind = reduction.kind
    (operand,) = value.operands
    text, roots = writer.checked(position, writer.reference(operand), [operand])
    axes = {axis.name for axis in reduction.axes}.union(*(writer.program.values[root].axes for root in roots))
    loops = writer.axes.loops(axes, team=not writer.team_made.isdisjoint(roots))
    text = f"reductions.encode({kind!r}, {text})"
    encoded = writer.fresh(f"{kind}_operand")
    writer.func(encoded, Role.INLINE, loops, text, writer.calls_of(roots))
    total, best = _reduce(writer, kind, kind, encoded, loops, reduction, value)
    writer.calls[position] = best
    if kind not in ("argmax", "argmin"):
        return f"reductions.decode({kind!r}, t{operand}.type(), {total})"
    assert reduction.position is not None
    candidate = writer.fresh(f"{kind}_position")
    key = f"hl.Expr({call_text(encoded, [loop.name for loop in loops])})"
    text = f"reductions.candidate({kind!r}, {key}, {total}, {index_text(reduction.position)})"
    # The best key is a value of the team: in a warp every lane has its own copy.
    loops = writer.axes.loops(axes, team=True)
    writer.func(candidate, Role.INLINE, loops, text, [encoded, best])
    first, writer.calls[position] = _reduce(writer, f"{kind}_first", "min", candidate, loops, reduction, value)
    return f"ops.to_dtype('int32', {value.dtype!r}, {first})"


def _reduce(
    writer: Writer, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
) -> tuple[str, str]:
    """Write the reduction of Func `operand`; returns the text of its result, and the Func that has it."""
    if writer.tiling.team is Team.THREAD:
        return _reduce_alone(writer, stem, kind, operand, loops, reduction, value)
    tiling = writer.tiling
    region = writer.fresh("r")
    steps = index_text(writer.axes.row_steps)
    writer.lines.append(f'{region} = hl.RDom([(0, {tiling.elements}), (0, {steps})], "{region}")')
    step = Loop(f"{region}$y", tiling.steps, STEP, fixed=not tiling.computed)
    updates = (Loop(f"{region}$x", tiling.elements, "e"), step)
    lines, places = writer.axes.share(f"{region}[1]", f"{region}[0]")
    writer.lines += lines
    kept = [writer.axes.thread, *writer.axes.loops(value.axes)]
    partial, names = writer.fresh(stem), [loop.name for loop in kept]
    own = call_text(partial, names)
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    start = f"reductions.initial({kind!r}, {element})"
    if tiling.ragged and not tiling.computed:
        element = f"hl.select({region}_c < {tiling.chunks}, {element}, {start})"
    stage = Stage(partial, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind)
    _define(writer, stage, own, start, element)
    whole = f"{partial}_team"
    if tiling.team is Team.REGISTERS:
        number = sum(stage.role is Role.TEAM for stage in writer.stages)
        text = f"reductions.across_team({kind!r}, hl.Expr({own}), {tiling.threads}, {number})"
        return writer.func(whole, Role.TEAM, kept, text, [partial]), whole
    writer.func(whole, Role.TEAM, kept, f"reductions.across_warp({kind!r}, hl.Expr({own}))", [partial])
    return f"reductions.across_block({kind!r}, {whole}, {tiling.threads}, {tuple_text(names[1:])})", whole


def _reduce_alone(
    writer: Writer, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
) -> tuple[str, str]:
    names = inner_first(axis.name for axis in reduction.axes)
    region = writer.fresh("r")
    extents = ", ".join(f"(0, {index_text(writer.axes.extents[name])})" for name in names)
    writer.lines.append(f'{region} = hl.RDom([{extents}], "{region}")')
    places = {name: f"{region}[{k}]" for k, name in enumerate(names)}
    updates = tuple(writer.axes.loop(rvar(region, k), name) for k, name in enumerate(names))
    kept = writer.axes.loops(value.axes)
    func = writer.fresh(stem)
    own = call_text(func, [loop.name for loop in kept])
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    stage = Stage(func, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind)
    _define(writer, stage, own, f"reductions.initial({kind!r}, {element})", element)
    return f"hl.Expr({own})", func


def _define(writer: Writer, stage: Stage, own: str, start: str, element: str) -> None:
    """Write the Func of `stage`, which is `own` at its Vars: `start`, then combined with each `element`."""
    writer.lines += [
        f'{stage.name} = hl.Func("{stage.name}")',
        f"{own} = {start}",
        f"{own} = reductions.combine({stage.operator!r}, hl.Expr({own}), ops.opaque({element}))",
    ]
    writer.stages.append(stage)
