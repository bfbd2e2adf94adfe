"""Lines on CUDA through which the threads of a block walk: they lie in shared memory, or are read again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from halide_backend.build.target import SHARED_BYTES
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.lines import is_computed, points_of
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.thread_groups import (
    Levels,
    compute_together,
    fused_outer_loops,
    levels,
    map_to_blocks,
    pack,
)
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, fuse, load_words, unroll_chunk
from halide_backend.schedule.cuda.unrolling import divisor, unroll, waits
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.tuples import gpu_tuples
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import (
    Bound,
    ComputeAt,
    GpuThreads,
    Reorder,
    Split,
    Step,
    StoreIn,
    Unroll,
)
from halide_backend.schedule.tiling import STEP, THREAD, WARP, Tiling

RESIDENCE = Knob("block_lines.residence", ("shared memory", "cache"), "where a line lies that is read several times")
ELEMENTS = Knob("block_lines.elements", (1, 2, 4, 8), "adjacent elements that a thread loads and stores at a time")
THREADS = Knob("block_lines.threads", (32, 64, 128, 256, 512, 1024), "threads of a line, which are a block")
UNROLL = Knob("block_lines.unroll", (1, 2, 4, 8, 16), "unroll factor of a thread's loop over a line")
STORES = Knob("block_lines.stores", (1, 2, 4, 8), "the same where it stores, if the number of its steps is computed")

#: Bytes of shared memory that a line may have: the rest is for the exchange between warps.
_LINE_BYTES = 40 << 10

#: Threads of a block per line: about 4 vectors each (measured on an H200; one vector each is a cliff); half of them if
#: all lines have a block at a time then (places of the largest of 684 x 49,000 floats 46.3 us with 512 threads, 41.8 us
#: with 256; with the largest themselves 47.3 and 42.1 us).
_THREAD_VECTORS, _FEWEST_THREADS, _MOST_THREADS = 4, 128, 512

#: The most that a block has (measured on an H200: gradients of a softmax of 838 rows of 30,000 floats 272 us with 512
#: threads, 159 us with 1,024 and without branches in its quotients).
_ALL_THREADS = 1024

#: Unroll factor of a thread's loop over a line of dynamic extent.
PART = "part"


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """A block for each line. It reads a line several times from shared memory, if that holds it; else again from the
    cache, adjacent threads adjacent elements."""
    line = facts.line
    if line is None or points_of(facts, line) < WARP:
        return None
    last, computed, points = line.inner[-1], is_computed(facts, line), points_of(facts, line)
    # An arg-reduction of 64-bit numbers reads its line twice: for the best element, and for its first place.
    twice = len(facts.searched)
    together = gpu_tuples(facts.program, line.kind, choices)
    again = sum(facts.loaded_bytes(line, 1 if twice else 2, together))
    whole, kept = facts.chunk_elements(last), 0
    while whole > 1 and points // whole < WARP:
        whole //= 2  # Halide loses the bounds of outputs that are computed together in fewer steps than threads.
    if again and whole > 1 and not computed and points * again <= _LINE_BYTES:
        why = f"{points * again} bytes are read several times, and {_LINE_BYTES} fit"
        kept = points * again if choices.choose(RESIDENCE, "shared memory", why) == "shared memory" else 0
    elements = 1
    if kept or not again:
        elements = choices.number(ELEMENTS, whole, "one vector of the narrowest numbers, or what divides the line")
        possible = facts.divides(elements, last)
        choices.require(ELEMENTS, possible, f"{elements} elements do not divide the innermost axis of the line")
        choices.require(ELEMENTS, not kept or elements > 1, "what lies in shared memory is loaded in chunks")
    chunks = points // elements
    unrolled = choices.number(UNROLL, 8, "that many loads are in flight; not tuned")
    number, why = _threads(chunks), f"about {_THREAD_VECTORS} vectors for each"
    lines = math.prod(facts.hints[name] for name in line.outer)
    if not (computed or again) and number * lines > facts.device.sms * facts.device.threads >= number * lines // 2:
        number, why = number // 2, "all lines at a time"
    if not computed and not kept and facts.stored_bytes(line) and _overflows(facts, line, points * again, number):
        number, why = _ALL_THREADS, "what as many blocks read again as run at a time is more than the cache holds"
    if computed:
        number, why = _patient_threads(facts, points, again, number, unrolled), "they wait for loads the fewest times"
    threads = choices.number(THREADS, number, why)
    exchanged = (len(facts.reductions) + twice) * threads * 8
    fits = kept + exchanged <= SHARED_BYTES
    choices.require(THREADS, fits, f"{kept + exchanged} bytes of shared memory are more than {SHARED_BYTES}")
    chunk = last if elements > 1 else ""
    cut = replace(line, chunk=chunk, elements=elements, chunks=chunks, threads=threads)
    return replace(cut, computed=computed, unroll=unrolled)


def _overflows(facts: Facts, line: Tiling, size: int, threads: int) -> bool:
    """Whether the lines that blocks of `threads` read at a time, `size` bytes each, overflow the cache."""
    lines = math.prod(facts.hints[name] for name in line.outer)
    return min(lines, facts.device.threads // threads * facts.device.sms) * size > facts.device.l2_bytes


def _threads(chunks: int) -> int:
    """A power of two, unless the line is short."""
    wanted = 1 << max(chunks // _THREAD_VECTORS, 1).bit_length() - 1
    return min(max(wanted, _FEWEST_THREADS), _MOST_THREADS, -(-chunks // WARP) * WARP)


def _patient_threads(facts: Facts, points: int, again: int, most: int, unrolled: int) -> int:
    """Threads of a line of computed length, of whose points `again` bytes are read several times.

    The fewest whose waits together are the fewest (a mean over 56 x 56 points by 512 threads, 4 loads and 3 one by one,
    takes 69 us, Triton 55 on an H100), of those that keep all SMs busy (softmax of 667 x 50257 floats 300 us with 128
    threads, 197 us with 512) and whose lines the L1 cache of an SM holds, which is its shared memory, too (gradient of
    an rms_norm of 4096 floats 115 us with 512 threads, 130 us with 256; of bfloat16 88 and 71 us).
    """
    device = facts.device
    lines = math.prod(facts.hints[name] for name in facts.outer)
    numbers = [threads for threads in (128, 256, 512) if threads <= most] or [most]
    numbers = [n for n in numbers if lines * n >= device.sms * device.threads] or numbers[-1:]
    numbers = [n for n in numbers if device.threads // n * points * again <= device.shared_bytes] or numbers[-1:]

    def together(threads: int) -> int:
        steps = -(-points // threads)
        return threads * min(waits(steps, 1 << bit) for bit in range(unrolled.bit_length()))

    return min(numbers, key=together)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """A block for each line; what its threads reduce meets in shared memory."""
    found: list[Step] = []
    for stage in kernel.outputs:
        _output(found, kernel, stage)
    compute_together(found, kernel)
    parent, places = kernel.parent, levels(kernel, groups=1)
    along = kernel.runs_along_line(parent)
    step = PART if along and kernel.tiling.computed else places.step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                _load(found, kernel, stage, places, step)
            case Role.REDUCTION:
                (whole,) = (s.name for s in kernel.graph.consumers(stage.name) if s.role is Role.GROUP_REDUCTION)
                element, loop = stage.updates
                found += [Unroll(stage.name, element.name, update=0), ComputeAt(stage.name, whole, THREAD)]
                unroll(found, stage, loop, divisor(loop, kernel.tiling.unroll))
            case Role.GROUP_REDUCTION:
                found += [
                    ComputeAt(stage.name, parent.name, places.block),
                    StoreIn(stage.name, "GPUShared"),
                    Bound(stage.name, THREAD, 0, kernel.tiling.threads),
                    GpuThreads(stage.name, (THREAD,)),
                ]
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def _output(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    order = unroll_chunk(found, stage.name, stage.loops)
    outer = fused_outer_loops(found, kernel, stage)
    if kernel.runs_along_line(stage):
        line = kernel.line(stage)
        names = (*order, *(loop.name for loop in line), *(loop.name for loop in outer))
        found.append(Reorder(stage.name, names))
        found += _shares(kernel, stage.name, fuse(found, stage.name, line, "n"))
        if kernel.tiling.computed:
            order = [*order, PART]
        elif kernel.tiling.steps <= kernel.tiling.unroll:
            found.append(Unroll(stage.name, STEP))
        order = [*order, STEP]
    map_to_blocks(found, kernel, stage, outer, order)


def _shares(kernel: TiledKernel, func: str, line: str) -> Iterator[Step]:
    """Share the loop `line` among the threads of a block, and unroll it if its extent is dynamic."""
    threads = kernel.tiling.threads
    if not kernel.tiling.computed:
        yield Split(func, line, STEP, THREAD, threads)
        return
    why = "that many loads are in flight: gradient of an rms_norm of 4096 floats 116 us with 4, 113 us with 8"
    count = kernel.choices.number(STORES, 8, why)
    yield Split(func, line, STEP, "round", threads * count)
    yield Split(func, "round", PART, THREAD, threads)
    yield Unroll(func, PART)


def _load(found: list[Step], kernel: TiledKernel, stage: Stage, places: Levels, step: str) -> None:
    """Load the words of a chunk where they are used, or a line that is read several times into shared memory."""
    sinks, reductions = kernel.sinks(stage.name), kernel.reductions_of(stage.name)
    if not reductions:
        load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, step))
    elif len(sinks) == 1:
        loop = reductions[0].updates[1]
        count = divisor(loop, kernel.tiling.unroll)
        at_once = count == 1 or (loop.fixed and loop.extent == count)
        load_words(found, stage, ComputeAt(stage.name, reductions[0].name, loop.name if at_once else f"{loop.name}i"))
    else:
        _share(found, kernel, stage, places)


def _share(found: list[Step], kernel: TiledKernel, stage: Stage, places: Levels) -> None:
    """Keep a line that is read several times in shared memory; the block's threads load it together."""
    line, threads = kernel.line(stage), kernel.tiling.threads
    found += [ComputeAt(stage.name, kernel.parent.name, places.block), StoreIn(stage.name, "GPUShared")]
    vector = unroll_chunk(found, stage.name, [stage.loops[0]])
    fused = fuse(found, stage.name, line, "n")
    found.append(Split(stage.name, fused, STEP, THREAD, threads))
    if math.prod(loop.extent for loop in line) <= threads * kernel.tiling.unroll:
        found.append(Unroll(stage.name, STEP))
    found += [Reorder(stage.name, (*vector, STEP, THREAD)), GpuThreads(stage.name, (THREAD,))]


RULE = Rule("block_lines", tile, steps)
