"""Reductions on CUDA that threads do alone: over an outer axis, so that neighbours read what is adjacent, or of few
points."""

from __future__ import annotations

import math
from dataclasses import replace

import sympy

from halide_backend.errors import Unsupported
from halide_backend.program.access import VECTOR, WORD
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.extents import is_multiple
from halide_backend.program.index import AxisSymbol, expanded, sizes_of
from halide_backend.program.loop_program import Load, Reduction, Value
from halide_backend.program.moments import UNROLLED
from halide_backend.schedule.cuda.alone import THREAD, along_reduced, compute_together, give_to_threads
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, is_element, load_words, unroll_chunk
from halide_backend.schedule.cuda.unrolling import divisor, unroll
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.chunks import contiguous_axis, contiguous_bytes
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import Bound, ComputeAt, Reorder, Step, Unroll
from halide_backend.schedule.tiling import WARP, Tiling, TilingKind

ELEMENTS = Knob("column_reductions.elements", (1, 2, 4, 8), "adjacent results of a thread")
THREADS = Knob("column_reductions.threads", (32, 64, 128, 256, 512), "threads of a block")
UNROLL = Knob(
    "column_reductions.unroll", (1, 4, 8, 16, 32, 64), "unroll factor; the loads of that many iterations are in flight"
)

#: Points that a single thread may reduce; more of them belong to a thread group or to another backend.
MOST_POINTS = 1 << 14

#: Threads of each SM that fill a GPU: 131,072 on an H200, about a thousand on each of 132.
_BUSY = 993

#: Points from which a thread's stores along what it has reduced are apart from its neighbours', of narrow and of wide
#: elements (measured on an H200: the gradient of a layer norm over the channels of 128 x 48 x 48 pixels, 16 of 512 in
#: bfloat16 345 us, with a kernel for that of its own 103 us, 32 of 256 in float32 155 and 149 us, but 16 of 512 138 and
#: 171 us), and points of a line that is long enough for a thread group.
_APART, _WIDE_APART, _LONG = 16, 32, 128

#: Points from which too few threads store longer than another kernel takes, which reads again what this one has.
_SERIAL = 8

#: Numbers of its columns that a thread holds in registers, of the 255 that it may have, those of columns that are whole
#: vectors, and threads of each SM that are then enough: each has all of its loads in flight.
_HELD, _HELD_IN_VECTORS, _HOLDING = 96, 48, 128

#: Loads of a round in a loop whose length, or whose strides, sizes say.
_ROUND = 16

#: Threads so few that each waits for its loads alone.
_FEW_THREADS = 1 << 14


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Chunks of the axis along which memory is adjacent, if it is an outer one and every store runs along it.

    Raises:
        Unsupported: a thread would have too many points to reduce.
    """
    if not facts.reductions:
        return None
    outer = tuple(axis.name for axis in facts.program.outer)
    inner = tuple(name for name in facts.extents if name not in outer)
    points = math.prod(facts.hints[name] for name in inner)
    if points > MOST_POINTS:
        raise Unsupported(
            "reduction-too-long-for-thread", f"a thread would reduce {points} elements, more than {MOST_POINTS}"
        )
    tiling = Tiling(TilingKind.THREAD, outer, inner, adjacent=_adjacent(facts, outer))
    along = facts.stored_along
    computed = _computed_strides(facts, inner) if points > _ROUND else []
    tiling = replace(tiling, computed=bool(computed))
    if facts.moments:
        rule, why = UNROLLED, "as many values as a sum has in flight"
        if computed:
            rule, why = _ROUND, "a thread has an address for each load of a round, whose stride is a size"
        count = choices.number(UNROLL, rule, why)
        tiling = replace(tiling, unroll=count)
    if along not in outer:
        return tiling
    elements, why = facts.chunk_elements(along), "one vector of the narrowest numbers, or what divides the axis"
    threads = math.prod(facts.hints[name] for name in outer)
    word = min(elements, max(1, elements * WORD // VECTOR))
    if held := _held_elements(facts, tiling, elements, word):
        elements, why, tiling = (
            held,
            "a vector of a few, a word, or one: a thread holds its points in registers",
            replace(tiling, held=True),
        )
    elif threads < elements * _BUSY * facts.device.sms:
        # A long loop for each of few threads: more threads with a word each keep more loads in flight.
        elements, why = word, "one word, since there are few threads"
        if any(along in value.axes for value in facts.program.values if _is_masked(value, facts)):
            elements, why = 1, "loads have conditions, each of which would be one for each element of a word"
    elif facts.moments:
        elements, why = word, "one word: a chunk is an expression, in which vectors have no place of their own"
    if not all(is_multiple(stride, elements) for stride in computed):
        elements, why = 1, "loads would be of single elements, each with an address that a thread goes on from"
    elements = choices.number(ELEMENTS, elements, why)
    possible = facts.divides(elements, along)
    choices.require(ELEMENTS, possible, f"{elements} elements do not divide the axis along which memory is adjacent")
    return replace(tiling, chunk=along, elements=elements) if elements > 1 else tiling


def _held_elements(facts: Facts, tiling: Tiling, whole: int, word: int) -> int:
    """Adjacent results of a thread that has registers for all points of each, where it needs them again after it has
    reduced them; 0 if it has not, or does not. Read again, they would come from the L2 cache, one after another."""
    if facts.moments or tiling.computed or any(map(facts.is_dynamic, tiling.inner)) or not _reads_again(facts, tiling):
        return 0
    points = math.prod(facts.hints[name] for name in tiling.inner) * len(facts.loaded_bytes(tiling, uses=2))
    threads = math.prod(facts.hints[name] for name in tiling.outer)
    if 0 < points * whole <= _HELD_IN_VECTORS and threads >= whole * _BUSY * facts.device.sms:
        return whole
    return next((n for n in (word, 1) if 0 < points * n <= _HELD), 0)


def _reads_again(facts: Facts, tiling: Tiling) -> bool:
    """Whether something is computed for each point from what all of them are reduced to."""
    reduced: set[int] = set()
    for position, value in enumerate(facts.program.values):
        if isinstance(value.attribute, Reduction) or not reduced.isdisjoint(value.operands):
            reduced.add(position)
            if not value.axes.isdisjoint(tiling.inner):
                return True
    return False


def _computed_strides(facts: Facts, inner: tuple[str, ...]) -> list[sympy.Expr]:
    """Elements from one reduced point to the next, in loads where sizes say how many."""
    loads = (value.attribute for value in facts.program.values if isinstance(value.attribute, Load))
    strides = (expanded(load.index).coeff(AxisSymbol(name)) for load in loads for name in inner)
    return [stride for stride in strides if sizes_of(stride)]


def _adjacent(facts: Facts, outer: tuple[str, ...]) -> str:
    """The outer axis along which more of what a kernel moves is adjacent than along the memory of its output, if there
    is one: parts of a sum of products of two layouts lie side by side, but what they consist of is farther apart."""
    layout = next(iter(facts.layouts.values()))
    moved = contiguous_bytes(facts.program)
    best = max(outer, key=lambda name: moved.get(name, 0), default="")
    stored = layout.variables[0] if layout.variables else best
    return best if moved.get(best, 0) > moved.get(stored, 0) else ""


def _is_masked(value: Value, facts: Facts) -> bool:
    """Whether `value` is loaded only where a condition holds."""
    conditions = (facts.program.values[operand].dtype == "bool" for operand in value.operands)
    return isinstance(value.attribute, Load) and any(conditions)


def stored_across(facts: Facts, tiling: Tiling) -> str:
    """An output that is contiguous along a long axis that threads reduce each on its own, across memory; "" if none."""
    points = math.prod(facts.hints[name] for name in tiling.inner)
    if points < _APART or contiguous_axis(facts.program, tiling.inner) not in tiling.outer:
        return ""
    wide = {buffer.name for buffer in facts.program.outputs if ELEMENT[buffer.dtype][1] >= WORD}
    layouts = ((name, layout.variables) for name, layout in facts.layouts.items())
    across = (name for name, axes in layouts if axes and axes[0] in tiling.inner)
    return next((name for name in across if name not in wide or points >= _WIDE_APART), "")


def stored_along_part(facts: Facts, tiling: Tiling) -> str:
    """An output along other axes than those that threads reduce, each a long line of memory on its own, which thread
    groups would share if it were not for that output; "" if none."""
    points = math.prod(facts.hints[name] for name in tiling.inner)
    if points < _LONG or contiguous_axis(facts.program, tiling.inner) not in tiling.inner:
        return ""
    reduced = {axis.name for reduction in facts.reductions for axis in reduction.axes}
    stores = ((store.buffer, {axis.name for axis in store.nest.iteration}) for store in facts.program.stores)
    parts = ((name, axes.intersection(tiling.inner)) for name, axes in stores)
    return next((name for name, axes in parts if axes and axes != reduced), "")


def stored_by_few(facts: Facts, tiling: Tiling) -> str:
    """An output that threads store one point after another along what each has reduced on its own, too few of them for
    a GPU; "" if none. A kernel without the reduction has a thread for each point. Typical extents tell too little."""
    points, threads = (math.prod(facts.hints[name] for name in names) for names in (tiling.inner, tiling.outer))
    enough = _HOLDING if tiling.held else _BUSY
    if any(map(facts.is_dynamic, facts.extents)) or points < _SERIAL or threads >= enough * facts.device.sms:
        return ""
    stores = ((store.buffer, {axis.name for axis in store.nest.iteration}) for store in facts.program.stores)
    return next((name for name, axes in stores if not axes.isdisjoint(tiling.inner)), "")


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Every thread reduces for a chunk of adjacent outer points."""
    found: list[Step] = []
    threads = _threads(kernel)
    for stage in kernel.outputs:
        give_to_threads(found, kernel, stage, threads, parts=1)
        if kernel.tiling.held:
            found += [Unroll(stage.name, loop.name) for loop in along_reduced(kernel, stage)]
    compute_together(found, kernel)
    parent = kernel.parent
    for stage in kernel.graph.stages:
        if stage.role is Role.STAGED_LOAD and kernel.tiling.held and len(kernel.sinks(stage.name)) > 1:
            _hold(found, kernel, stage)
        elif stage.role is Role.STAGED_LOAD:
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


def _threads(kernel: TiledKernel) -> int:
    """The number of threads of a block: an SM runs 32 blocks at most, which of one warp each are half of its threads.

    Threads with vectors have so many registers that no more would fit.
    """
    single = kernel.tiling.elements == 1
    if single and math.prod(loop.extent for loop in kernel.outer_loops(kernel.parent)) > _BUSY * kernel.device.sms:
        why = "middle_sum of 4099 x 2001 bfloat16 takes 9.0 us with 32, 7.1 to 7.4 us with 64 and more"
        return kernel.choices.number(THREADS, 2 * WARP, why)
    return kernel.choices.number(THREADS, WARP, "leaves each thread the registers for an unrolled sum")


def _hold(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    """Load all points of a thread at once, before the first loop that needs them."""
    found.append(ComputeAt(stage.name, kernel.parent.name, THREAD))
    unroll_chunk(found, stage.name, stage.loops)
    for loop in stage.loops:
        if is_element(loop) or loop.axis in kernel.tiling.inner:
            found.append(Bound(stage.name, loop.name, 0, loop.extent))
        if loop.axis in kernel.tiling.inner:
            found.append(Unroll(stage.name, loop.name))


def _load(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    """Load the words of a chunk at once, at the loop of its only user; without such a loop, one at a time."""
    sinks, reductions = kernel.sinks(stage.name), kernel.reductions_of(stage.name)
    if not reductions or not kernel.line(stage):
        load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, THREAD))
    elif len(sinks) == 1 and reductions[0].updates[0].kind is not LoopKind.CHUNK:
        _load_beside(found, kernel, stage, reductions[0])


def _load_beside(found: list[Step], kernel: TiledKernel, stage: Stage, reduction: Stage) -> None:
    """Load for one step of a reduction, or for all steps of an unrolled part whose words lie side by side."""
    loop = reduction.updates[0]
    count = _unroll_factors(kernel, reduction)[0]
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
        Reorder(stage.name, (*elements, *(loop.name for loop in stage.updates)), update=0),
    ]
    for name in elements:
        found += [Unroll(stage.name, name), Unroll(stage.name, name, update=0)]
    if all(loop.kind is not LoopKind.CHUNK for loop in stage.updates):
        factors = [loop.extent for loop in stage.updates] if kernel.tiling.held else _unroll_factors(kernel, stage)
        for loop, count in zip(stage.updates, factors):
            unroll(found, stage, loop, count)


def _unroll_factors(kernel: TiledKernel, reduction: Stage) -> list[int]:
    """Unroll factors of the loops of a reduction, innermost first: of one, and of those inside of which nothing else is
    a loop."""
    loop = reduction.updates[0]
    if max(stage.points for stage in kernel.graph.outputs) <= _FEW_THREADS:
        most, why = 64, "so few threads wait for their loads alone"
    elif kernel.tiling.computed:
        most, why = _ROUND, "a thread has an address for each load of a round, whose stride is a size"
    elif not loop.fixed:
        most, why = _ROUND, "iterations beyond the last multiple of the factor have a branch each"
    else:
        most, why = UNROLLED, "column sum of 8192 x 2048 bfloat16 takes 13.1 us, with 16 in larger blocks 14.4 us"
    left, factors = kernel.choices.number(UNROLL, most, why, at=reduction.name), list[int]()
    for loop in reduction.updates:
        factors.append(divisor(loop, left))
        left //= factors[-1]
        if left < 2 or not loop.fixed or factors[-1] < loop.extent:
            break
    return factors


RULE = Rule("column_reductions", tile, steps)
