"""Lines on CUDA that lie along memory in some tensors and side by side in others: neighbouring threads of a block have
neighbouring lines, and hold them in their registers."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.build.target import SHARED_BYTES
from halide_backend.schedule.cuda import register_lines
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.grid import blocks, fits_grid, grid
from halide_backend.schedule.cuda.lines import are_lines, is_computed, points_of
from halide_backend.schedule.cuda.register_lines import MOST_ELEMENTS
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.thread_groups import hold
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, load_words, unroll_chunk
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import ComputeAt, ComputeWith, GpuThreads, Reorder, Split, Step, Unroll
from halide_backend.schedule.tiling import LINE, STEP, THREAD, WARP, Tiling, TilingKind

APPLIES = Knob("interleaved_lines.applies", (False, True), "neighbouring threads have neighbouring lines")
ELEMENTS = Knob("interleaved_lines.elements", (1, 2, 4, 8), "adjacent elements of a line that a thread has at a time")
LINES = Knob("interleaved_lines.lines", (4, 8, 16, 32), "neighbouring lines of a block")
THREADS = Knob("interleaved_lines.threads", (1, 2, 4, 8, 16, 32, 64, 128, 256), "threads of a line")

#: Bytes of a sector of memory, which neighbouring lines fill, or half of it where that leaves fewer than so many blocks
#: for each SM, and the fewest lines of a block, where half of it leaves fewer than half a block (measured on an H200:
#: layer norms of 384 x 1500 floats 4.7 us with 8 lines in each of 188 blocks, 4.1 us with 4; with a sum before, of
#: bfloat16, 5.7 us with 4 lines, 4.8 us with 8; those of 8 x 1024 x 49 bfloat16 3.7 us with 8, 3.2 us with 4).
_SECTOR, _BLOCKS, _FEW_BLOCKS, _FEWEST = 32, 1.5, 0.5, 4

#: Threads of a block, the same where SMs have no more than one, and chunks that each has of a line at least: many small
#: blocks wait for one another less (measured on an H200: layer norms of x + y, 8 x 768 x 196 and 8 x 196 x 768 floats,
#: 12.4 us with 512 threads, 10.0 us with 192; those of 8 x 1024 x 49 floats 4.5 us with 256, 4.1 us with 512).
_BLOCK, _LONE_BLOCK, _STEPS = 256, 512, 2

#: Warps of a block of lines in registers, whose lines fill a sector that its cache keeps if they are short (measured on
#: an H200: layer norms of 64 x 192 x 784 floats 28.5 us by this rule, 26.9 us by that of lines in registers, of 32 x 96
#: x 3136 floats 28.2 and 25.6 us, but of 64 x 768 x 196 floats, which have a warp each, 30.2 and 38.5 us).
_WARPS = 4

#: CUDA's limits of a block and of a thread's registers, and those that a thread needs besides its share of the line.
_MOST_THREADS, _MOST_REGISTERS, _OTHER_REGISTERS = 1024, 255, 24

#: The part of the lines that may be beyond the end.
_BEYOND = 8


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Lines of known length, of which some tensors have neighbouring elements and others neighbouring lines."""
    if facts.interleaved_lines is None or facts.moments or facts.iterates:
        return None
    line, along, size = facts.interleaved_lines
    points, last = points_of(facts, line), line.inner[-1]
    possible = not (is_computed(facts, line) or facts.is_dynamic(along)) and facts.stored_bytes(line)
    if not possible or not fits_grid([facts.hints[name] for name in line.outer]):
        return None
    if len(line.inner) > 1 and not are_lines(facts, line):
        return None
    elements, why = facts.chunk_elements(last), "one vector of the narrowest numbers along the line"
    base = replace(line, kind=TilingKind.REGISTERS, chunk=last, adjacent=along)
    fitted = _fitted(facts, replace(base, elements=elements, chunks=points // elements), size)
    if points < WARP or fitted is None:
        return None
    applies, reason = elements > 1, "each tensor is read and written in whole sectors"
    stored = any(layout.variables[:1] == (along,) for layout in facts.layouts.values() if last in layout.variables)
    if not stored and 0 < register_lines.threads(facts) * _SECTOR <= _WARPS * WARP * size:
        applies, reason = False, "the lines of a block are short, and fill sectors of what is read across them"
    if not choices.flag(APPLIES, applies, reason):
        return None
    elements = choices.number(ELEMENTS, elements, why)
    choices.require(ELEMENTS, facts.divides(elements, last), f"{elements} elements do not divide the line")
    lines = choices.number(LINES, fitted.side, "a sector of the narrowest numbers, or less if SMs had no block")
    base = replace(base, elements=elements, chunks=points // elements, side=lines)
    rule = _shared_out(facts, base).threads
    threads = choices.number(THREADS, rule, f"{_BLOCK} threads of a block, {_LONE_BLOCK} of one that has an SM")
    tiling = replace(base, threads=threads)
    choices.require(THREADS, lines * threads % WARP == 0, "a block has whole warps")
    choices.require(THREADS, threads <= max(tiling.chunks, WARP // lines), "some threads would have nothing")
    excess = _excess(facts, tiling)
    choices.require(THREADS, not excess, excess)
    return tiling


def _fitted(facts: Facts, line: Tiling, size: int) -> Tiling | None:
    """Lines of a block and their threads: lines that fill a sector with elements of `size` bytes, or fewer where SMs
    had no block, many were beyond the end, or threads could not hold them; None if they cannot in any case."""
    lines, extent = _SECTOR // size, facts.hints[line.adjacent]
    while lines >= _FEWEST:
        tiling = _shared_out(facts, replace(line, side=lines))
        wanted = _BLOCKS if lines * size == _SECTOR else _FEW_BLOCKS
        few = _blocks(facts, tiling) < wanted * facts.device.sms or -extent % lines * _BEYOND > extent
        if not (few and lines > _FEWEST) and not _excess(facts, tiling):
            return tiling
        lines //= 2
    return None


def _blocks(facts: Facts, tiling: Tiling) -> int:
    return math.prod(facts.hints[name] for name in tiling.outer) // tiling.side


def _shared_out(facts: Facts, tiling: Tiling) -> Tiling:
    """`tiling` with threads for each line: those of a block are whole warps, and more where fewer cannot hold it."""
    lanes = WARP // tiling.side
    block = _BLOCK if _blocks(facts, tiling) >= facts.device.sms else _LONE_BLOCK
    while True:
        steps = max(-(-tiling.chunks * tiling.side // block), _STEPS)
        found = replace(tiling, threads=-(-tiling.chunks // (steps * lanes)) * lanes)
        if block >= _MOST_THREADS or not _excess(facts, found):
            return found
        block *= 2


def _words(facts: Facts, tiling: Tiling) -> list[int]:
    """Words that a thread holds of a chunk of each load that is used several times: of what does not lie along the
    line each element has one."""
    return [tiling.elements for _ in facts.loaded_bytes(tiling, 2)]


def _excess(facts: Facts, tiling: Tiling) -> str:
    """Why the threads of a block cannot hold its lines, "" if they can."""
    block = tiling.threads * tiling.side
    if block > _MOST_THREADS:
        return f"a block of {block} threads, {_MOST_THREADS} are the most"
    room = min(_MOST_REGISTERS, facts.device.registers // block) - _OTHER_REGISTERS
    held = tiling.steps * sum(_words(facts, tiling))
    if held > room:
        return f"a thread would hold {held} words in {room} registers"
    if (count := tiling.steps * tiling.elements) > MOST_ELEMENTS:
        return f"a thread would have {count} elements, all unrolled; {MOST_ELEMENTS} are the most"
    shared = len(facts.reductions) * 8 * tiling.side * block // WARP
    return f"{shared} bytes of shared memory are too many" if shared > SHARED_BYTES else ""


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Everything is computed by the threads of a block, and exchanged between lanes and warps."""
    found: list[Step] = []
    parent, side = kernel.parent, kernel.tiling.side
    for stage in kernel.outputs:
        order = unroll_chunk(found, stage.name, stage.loops)
        for loop in (loop for loop in stage.loops if loop.kind is LoopKind.STEP):
            found.append(Unroll(stage.name, loop.name))
            order.append(loop.name)
        first, *rest = sorted(kernel.outer_loops(stage), key=lambda loop: loop.axis != kernel.tiling.adjacent)
        found += [
            Split(stage.name, first.name, "block", LINE, side),
            Reorder(stage.name, (*order, LINE, THREAD, "block", *(loop.name for loop in rest))),
            GpuThreads(stage.name, (LINE, THREAD)),
            *grid(stage.name, [blocks(first, "block", side), *rest]),
        ]
    for stage in kernel.outputs[1:]:
        same = kernel.runs_along_line(stage) and kernel.runs_along_line(parent)
        found.append(ComputeWith(stage.name, parent.name, STEP if same else LINE))
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                _load(found, kernel, stage)
            case Role.REDUCTION:
                found += [Unroll(stage.name, loop.name, update=0) for loop in stage.updates]
                found.append(ComputeAt(stage.name, parent.name, LINE))
            case Role.GROUP_REDUCTION:
                found.append(ComputeAt(stage.name, parent.name, LINE))
            case Role.PACKED:
                found += [ComputeAt(stage.name, parent.name, _step(kernel)), Unroll(stage.name, stage.loops[0].name)]
        found += kernel.narrowed(stage)
    return tuple(found)


def _step(kernel: TiledKernel) -> str:
    """The loop of the steps of a thread."""
    return STEP if kernel.runs_along_line(kernel.parent) else LINE


def _load(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    """Load a chunk where it is used, or all of a thread's before a reduction that uses them."""
    reduced = bool(kernel.reductions_of(stage.name))
    load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, LINE if reduced else _step(kernel)))
    if reduced:
        found += hold(stage)


RULE = Rule("interleaved_lines", tile, steps)
