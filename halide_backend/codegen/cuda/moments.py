"""Moments: the mean of what a thread has of a column and the squared deviations from it, a chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.axes import TiledAxes, unflatten
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import reduction_stage
from halide_backend.program.extents import ceil_div, is_multiple, product
from halide_backend.program.loop_program import Reduction, Value
from halide_backend.program.moments import MOMENTS
from halide_backend.schedule.stage import Loop, LoopKind, Role
from halide_backend.schedule.tiling import STEP, THREAD, TilingKind


def write_moments(builder: KernelBuilder[TiledAxes], position: int) -> str:
    """The text of the value at `position`, after writing the Func that has it and its counterpart."""
    value = builder.program.values[position]
    reduction = value.attribute
    assert isinstance(reduction, Reduction)
    key, key_of_origin = (("moments", what, value.operands, reduction.axes) for what in ("whole", "origin"))
    if key not in builder.known:
        write = _write if len(value.operands) == 1 else _write_weighted
        builder.known[key], builder.known[key_of_origin] = write(builder, value, reduction)
    builder.calls[position] = name = builder.known[key]
    own = builder.stage(name)
    number = MOMENTS.index(reduction.kind)
    if own.role is Role.GROUP_REDUCTION:
        rest = tuple_text([loop.name for loop in own.loops[1:]])
        if len(value.operands) == 1:
            text = f"reductions.moments_across_threads({name}, {_counts(builder.axes, reduction)}, {rest})[{number}]"
        else:
            threads = builder.axes.tiling.threads
            text = f"reductions.weighted_moments_across_threads({name}, {threads}, {rest})[{number}]"
    else:
        text = f"hl.Expr({call_text(name, [loop.name for loop in own.loops])}[{number}])"
    return f"{text} + {builder.known[key_of_origin]}" if reduction.kind == "mean" else text


def _loops(builder: KernelBuilder[TiledAxes], value: Value, reduction: Reduction) -> list[Loop]:
    """The loops over what is reduced, and over what it depends on."""
    axes = {axis.name for axis in reduction.axes}
    return builder.axes.loops(axes.union(*(builder.program.values[operand].axes for operand in value.operands)))


def _origin(read: str, loops: Sequence[Loop], reduction: Reduction) -> str:
    """The text of a column's first value, from which all are measured: what is left has no large mean to round."""
    reduced = {axis.name for axis in reduction.axes}
    return f"hl.Expr({call_text(read, ['0' if loop.axis in reduced else loop.name for loop in loops])})"


def _counts(axes: TiledAxes, reduction: Reduction) -> list[int]:
    """How many values each thread of a column has."""
    threads = axes.tiling.threads
    points = math.prod(int(axis.extent) for axis in reduction.axes)
    return [-(-(points - thread) // threads) for thread in range(threads)]


def _write(builder: KernelBuilder[TiledAxes], value: Value, reduction: Reduction) -> tuple[str, str]:
    """Write the Func of both moments, of a column or of each thread's part of one; its name, and the text of what they
    are measured from.

    Whole chunks are a loop. The values before them, of which some threads have one more than others, come first.
    """
    axes, operand, inner = builder.axes, value.operands[0], _loops(builder, value, reduction)
    tiling = axes.tiling
    read = builder.encode("sum", operand, inner, f"t{operand}", [operand])
    counts = _counts(axes, reduction)
    chunk = min(tiling.unroll, counts[-1])
    chunks, first = counts[-1] // chunk, counts[-1] % chunk
    shared, ragged = tiling.kind is TilingKind.COLUMNS, counts[0] > counts[-1]
    loops = [*([axes.thread] if shared else []), *axes.loops(value.axes)]

    def values(step: str, count: int) -> str:
        number = f"({step})*{tiling.threads} + {THREAD}" if shared else step
        if step == last:
            number = f"hl.min({number}, {sum(counts) - 1})"
        places = unflatten(f"({number})", [(axis.name, axis.extent) for axis in reduction.axes])
        call = call_text(read, [places.get(loop.axis, loop.name) for loop in inner])
        return f"[hl.Expr({call}) - {origin} for j in range({count})]"

    origin = _origin(read, inner, reduction)
    name, region = builder.unique_name("moments"), builder.unique_name("r")
    own = call_text(name, [loop.name for loop in loops])
    # The last step of those threads that have one more; the others read it and leave it out.
    last, more = str(counts[-1]), f"{THREAD} < {counts.count(counts[0])}"
    before, start = f"{region}[0]*{chunk} + {first}", values("j", first)
    if ragged:
        before, start = f"{before} + hl.select({more}, 1, 0)", f"{start} + {values(last, 1)}, {more}"
    elif not first:
        start = values("j", 1)
    step = Loop(f"{region}$x", chunks, STEP, kind=LoopKind.CHUNK)
    builder.lines += [
        f'{region} = hl.RDom([(0, {chunks})], "{region}")',
        f'{name} = hl.Func("{name}")',
        f"{own} = hl.Tuple(reductions.moments({start}))",
        f"{own} = reductions.with_moments({own}, {values(f'{region}[0]*{chunk} + {first} + j', chunk)}, {before})",
    ]
    builder.stages.append(reduction_stage(builder, name, "moments", read, loops, (step,)))
    return _of_threads(builder, name, own, loops, 2) if shared else name, origin


def _of_threads(builder: KernelBuilder[TiledAxes], name: str, own: str, loops: Sequence[Loop], elements: int) -> str:
    """Write the Func in which the threads of a column see what each has: the `elements` of Func `name`'s Tuple."""
    whole, parts = f"{name}_group", ", ".join(f"hl.Expr({own}[{k}])" for k in range(elements))
    builder.func(whole, Role.GROUP_REDUCTION, loops, f"hl.Tuple([{parts}])", calls=[name])
    return whole


def _write_weighted(builder: KernelBuilder[TiledAxes], value: Value, reduction: Reduction) -> tuple[str, str]:
    """The same of parts, each with a weight. Those beyond the end of the last chunk have none."""
    axes, inner = builder.axes, _loops(builder, value, reduction)
    tiling = axes.tiling
    reads = [builder.encode("sum", operand, inner, f"t{operand}", [operand]) for operand in value.operands]
    shared = tiling.kind is TilingKind.COLUMNS
    threads, chunk = tiling.threads if shared else 1, tiling.unroll
    points = product(axis.extent for axis in reduction.axes)
    steps = ceil_div(points, chunk * threads)
    loops = [*([axes.thread] if shared else []), *axes.loops(value.axes)]
    name, region = builder.unique_name("moments"), builder.unique_name("r")
    own = call_text(name, [loop.name for loop in loops])
    first, _, values = (_origin(read, inner, reduction) for read in reads)
    origin = f"hl.select({values} > 0, {first}, hl.f32(0.0))"
    number = f"({region}[0]*{chunk} + j)"
    if shared:
        number = f"({number}*{threads} + {THREAD})"
    ends = is_multiple(points, chunk * threads)
    place = number if ends else f"hl.min({number}, {index_text(points - 1)})"
    places = unflatten(place, [(axis.name, axis.extent) for axis in reduction.axes])
    means, squares, weights = (
        f"hl.Expr({call_text(read, [places.get(loop.axis, loop.name) for loop in inner])})" for read in reads
    )
    if not ends:
        inside = f"{number} < {index_text(points)}"
        squares, weights = (f"hl.select({inside}, {text}, hl.f32(0.0))" for text in (squares, weights))
    lists = ", ".join(f"[{text} for j in range({chunk})]" for text in (f"{means} - {origin}", squares, weights))
    fixed = isinstance(steps, int)
    typical = ceil_div(math.prod(axis.hint for axis in reduction.axes), chunk * threads)
    step = Loop(f"{region}$x", steps if fixed else int(typical), STEP, fixed, kind=LoopKind.CHUNK)
    builder.lines += [
        f'{region} = hl.RDom([(0, {index_text(steps)})], "{region}")',
        f'{name} = hl.Func("{name}")',
        f"{own} = reductions.no_moments()",
        f"{own} = reductions.with_weighted_moments({own}, {lists})",
    ]
    stage = reduction_stage(builder, name, "moments", reads[0], loops, (step,))
    builder.stages.append(replace(stage, calls=tuple(reads)))
    return _of_threads(builder, name, own, loops, 3) if shared else name, origin
