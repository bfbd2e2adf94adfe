"""Stores at computed positions on CUDA: every thread takes some of the points."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.program.access import ADDED_AT_ONCE
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import axes_of, values_of
from halide_backend.program.loop_program import Load, Store
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.points_across import ENOUGH_WAVES
from halide_backend.schedule.cuda.pointwise import BLOCK, parts_of_a_thread
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.steps import (
    AllowRaceConditions,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Step,
    Unroll,
)
from halide_backend.schedule.tiling import Tiling, TilingKind

ELEMENTS = Knob("scatters.elements", (1, 2, 4), "adjacent numbers that a thread adds to memory in one instruction")
THREADS = Knob("scatters.threads", (32, 64, 128, 256, 512), "threads of a block")
PARTS = Knob("scatters.steps", (1, 2, 4, 8), "iterations of a thread, all unrolled")
PARTITION = Knob(
    "scatters.partition", (False, True), "blocks that lie within the output have code of their own, without a guard"
)

#: Points of an axis that each thread walks along, and those of one along which it does so twice.
_MOST_OWN, _FEW = 16, 8

#: Threads of a block whose threads store single elements, or of which several waves take one step each.
_LARGE_BLOCK = 512


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Chunks along the axis that is added to, if that takes fewer instructions."""
    if not facts.scatters:
        return None
    (store,), (buffer,) = facts.program.stores, facts.program.outputs
    tiling, along = Tiling(TilingKind.THREAD, facts.outer), facts.layouts[store.buffer].variables[0]
    most, elements = ADDED_AT_ONCE.get(buffer.dtype, 1), 1
    if store.mode == "atomic_add" and buffer.aligned and along in tiling.outer and most > 1:
        rule = next(count for count in (most, most // 2, 1) if count and facts.divides(count, along))
        elements = choices.number(ELEMENTS, rule, "as many as one instruction adds, and divide the axis")
        choices.require(ELEMENTS, elements <= most, f"no instruction adds more than {most} numbers of {buffer.dtype}")
        choices.require(ELEMENTS, facts.divides(elements, along), f"{elements} elements do not divide the axis")
    own, adds = _own_axis(facts, along), store.mode == "atomic_add"
    lines = facts.hints[own] if own else 0
    parts = choices.number(PARTS, *_parts(facts, store, elements, lines))
    choices.require(PARTS, not own or parts % lines == 0, f"a thread has all {lines} points of {own}")
    many = _points(facts) // elements >= ENOUGH_WAVES * facts.device.sms * facts.device.threads
    if adds if parts > 1 else not many:
        threads = choices.number(THREADS, BLOCK, "as of pointwise kernels")
    else:
        threads = choices.number(THREADS, _LARGE_BLOCK, "large blocks are few, which store and are done")
    cut = replace(tiling, chunk=along, elements=elements) if elements > 1 else tiling
    return replace(cut, threads=threads, unroll=parts, across=own, lines=lines)


def _parts(facts: Facts, store: Store, elements: int, lines: int) -> tuple[int, str]:
    """The iterations of a thread, of `lines` points along an axis of its own if that is not 0, and why."""
    (buffer,), adds = facts.program.outputs, store.mode == "atomic_add"
    known = not any(facts.program.values[position].axes for position in values_of(store.index))
    if lines:
        if not known and lines <= _FEW and facts.layouts[store.buffer].variables[0] not in facts.outer:
            return 2 * lines, "two elements, since neighbours often add to one place, and all that is done to them"
        return lines, "all that is done to an element"
    if known and adds and not axes_of(store.index).issuperset(facts.outer):
        return 1, "to LLVM two additions to one known place are stores, of which the first has no effect"
    points = _points(facts) // elements
    stored = elements * ELEMENT[buffer.dtype][1] // 8
    parts = parts_of_a_thread(points, stored, facts.device, waves=ENOUGH_WAVES if adds else 1)
    return parts, "as of pointwise kernels: blocks that store little are as slow to start"


def _points(facts: Facts) -> int:
    return math.prod(facts.hints[name] for name in facts.outer)


def _own_axis(facts: Facts, along: str) -> str:
    """The innermost axis, if it has few points and nothing is loaded or adjacent along it: that of several scatters of
    one element, all of which a thread does. Else ""."""
    name = facts.outer[-1] if facts.outer else along
    loads = [value.attribute for value in facts.program.values if isinstance(value.attribute, Load)]
    loaded = frozenset().union(*(axes_of(load.index) for load in loads))
    few = name in facts.extents and not facts.is_dynamic(name) and 1 < facts.hints[name] <= _MOST_OWN
    return name if few and name != along and name not in loaded else ""


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """The points of the output in any order, several of those that move little for one thread."""
    stage = kernel.parent
    element, part, thread, block = stage.updates
    why = "LLVM would join both versions again, and part the additions that are one instruction"
    apart = kernel.choices.flag(
        PARTITION, element.extent == 1, why if element.extent > 1 else "no guard in most blocks"
    )
    once = () if apart else (NeverPartition(stage.name, block.name, update=0),)
    return (
        AllowRaceConditions(stage.name),
        Unroll(stage.name, element.name, update=0),
        Unroll(stage.name, part.name, update=0),
        GpuThreads(stage.name, (thread.name,), update=0),
        GpuBlocks(stage.name, (block.name,), update=0),
        *once,
    )


RULE = Rule("scatters", tile, steps)
