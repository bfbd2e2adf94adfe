"""Several points of a CUDA thread along an axis along which they share what they load, or where they load it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import sympy

from halide_backend.program.access import WORD
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, expanded
from halide_backend.program.loop_program import Load, LoopProgram
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.vector_access import VectorAccess
from halide_backend.schedule.tiling import Tiling, TilingKind

ACROSS = Knob("pointwise.across", (1, 2, 3, 4, 6, 8), "points of a thread along an axis along which they share loads")

#: Rows of a stencil that a thread may compute, the most that divide their number: six of 3 x 3 points load 24
#: elements, each on its own 54 (measured on an H200: depthwise_3 of 334 x 32 x 56 x 56 floats 132 us with one, 78 us
#: with six; box_blur of 8192 x 4096 bfloat16 51 and 42 us).
ROWS = (1, 2, 3, 4, 6, 8)

#: Threads of a block where one loads several single elements for less than a vector that it stores (measured:
#: concatenation of two matrices of 4099 x 2001 floats 37.7 us with 128 threads, 36.5 us with 256; one load: 42.8 us and
#: 43.3 us).
BLOCK_OF_SINGLES = 256

#: Bytes of rows that the threads of a block read all over: what they pick of a sector is then still in the L1 cache
#: (measured on an H100: half of the columns of 8192 x 4096, rows of 32 KiB at a time by 1,024 threads 42 us in bfloat16
#: and 83 us in float32; of 128 KiB by 256 threads 69 us and 107 us).
ROWS_BYTES = 32 << 10

#: Loads of single elements that a thread has in flight at most: more compete for its registers (measured: normalising
#: groups of 84 x 32 x 55 x 55 floats, five loads for an element, 33.8 us in eight steps, 32.8 us in four).
MOST_LOADS = 24

#: Waves of threads, each as many as the GPU runs at once: with fewer, threads had better not take several steps
#: (measured on an H200: padding to 64 x 260 x 260 bfloat16 7.2 us in eight steps, which is one wave, 6.7 us in four).
ENOUGH_WAVES = 2


def shared_indices(facts: Facts, choices: Choices, along: str) -> Tiling | None:
    """Several points of a thread along an axis on which no computed index depends, where one depends on the axis along
    which memory is adjacent: their indices, and the weights that belong to these, are computed once for all.

    A thread has a word of adjacent elements, so that the threads of a warp read what is near.
    """
    program = facts.program
    indices = [value.axes for value in program.values if value.operation == "indirect"]
    depending = frozenset().union(*indices)
    axes = [name for name in facts.outer if name not in depending and not facts.is_dynamic(name)]
    if along not in depending or len(program.stores) > 1 or facts.is_dynamic(along):
        return None
    if sum(isinstance(value.attribute, Load) for value in program.values) < 2:
        # The index of a single load is soon computed: nearest upsampling of 84 x 32 x 55 x 55 floats had 0.93 of the
        # speed with several channels a thread that it has with one, of 167 x 32 x 56 x 56 bfloat16 0.96.
        return None
    most = math.prod(facts.hints[name] for name in facts.outer)
    word = word_elements(program)
    elements = word if facts.divides(word, along) else 1
    enough = ENOUGH_WAVES * facts.device.sms * facts.device.threads
    for name in reversed(axes):
        fewest = _row_bytes(facts, name) if facts.hints[along] > elements * BLOCK_OF_SINGLES else 0
        counts = [
            n
            for n in (1, 2, 4, 8)
            if facts.divides(n, name) and most >= n * elements * enough and n * fewest <= ROWS_BYTES
        ]
        count = choices.number(ACROSS, max(counts, default=1), "as many as divide the axis and leave enough threads")
        choices.require(ACROSS, facts.divides(count, name), f"{count} points do not divide the axis {name}")
        if count > 1:
            tiling = Tiling(TilingKind.THREAD, facts.outer, lines=count, across=name)
            return replace(tiling, chunk=along, elements=elements) if elements > 1 else tiling
    return None


def shared_rows(facts: Facts, choices: Choices, along: str) -> Tiling | None:
    """Several points of a thread along an axis on which what one reads is mostly what the next one reads, the rows of
    a stencil: the thread loads it once. Not where conditions along a row say what is read: places that are clamped
    are not known to be one (local maxima of 8192 x 4096 floats 73.6 us on an H200, with four rows of a thread 81.3).
    """
    program = facts.program
    loads = [value for value in program.values if isinstance(value.attribute, Load)]
    operands = {operand for value in loads for operand in value.operands}
    conditions = frozenset().union(*(program.values[k].axes for k in operands))
    if len(program.stores) > 1 or facts.is_dynamic(along) or along in conditions:
        return None
    places = {(load.buffer, expanded(load.index)) for value in loads if isinstance(load := value.attribute, Load)}
    if any(index.has(FloorDiv, Mod) for _, index in places):
        return None
    most = math.prod(facts.hints[name] for name in facts.outer)
    word = word_elements(program)
    elements = word if facts.divides(word, along) else 1
    enough = ENOUGH_WAVES * facts.device.sms * facts.device.threads
    for name in reversed(facts.outer):
        # Nor where they say so along several axes: averages of windows of 3 x 3 in channels-last, 90 x 48 x 64 x 64,
        # take 65 us in float32 and 47 us in bfloat16 with eight points of a thread, 52 and 34 us with a vector.
        if name == along or facts.is_dynamic(name) or (name in conditions and len(conditions) > 1):
            continue
        symbol = AxisSymbol(name)
        moved = {(buffer, expanded(index.subs(symbol, symbol + 1))) for buffer, index in places if index.has(symbol)}
        again = len(moved & places)
        if again < 2 or again * 2 < len(moved):
            continue
        counts = [n for n in ROWS if facts.divides(n, name) and most >= n * elements * enough]
        count = choices.number(ACROSS, max(counts, default=1), f"{again} of {len(moved)} loads are the next one's, too")
        choices.require(ACROSS, facts.divides(count, name), f"{count} points do not divide the axis {name}")
        if count > 1:
            tiling = Tiling(TilingKind.THREAD, facts.outer, lines=count, across=name, threads=BLOCK_OF_SINGLES)
            return replace(tiling, chunk=along, elements=elements) if elements > 1 else tiling
    return None


def with_shared_places(facts: Facts, choices: Choices, along: str, tiling: Tiling) -> Tiling:
    """Several points of a thread along an axis that all places step along evenly, and no mask depends on, where single
    narrow elements are loaded under masks: a thread finds their places, and what masks say of them, once for all. Not
    of what has no masks (dimensions 1, 0, 3, 2 of 590 x 59 x 7 x 35 bfloat16 on an H200 12.2 us, with two points 17.5
    us), nor of words (im2col of 60 x 32 x 52 x 52 floats 55.1 us, with six points 57.1 us).
    """
    program = facts.program
    known = not (program.checks or facts.reductions or any(v.operation == "indirect" for v in program.values))
    masks = [value.axes for value in program.values if value.operation == "index"]
    narrow = all(ELEMENT[buffer.dtype][1] < WORD for buffer in program.outputs)
    if len(program.stores) > 1 or not (known and masks and narrow) or VectorAccess(program, tiling).loads:
        return tiling
    loads = [value.attribute.index for value in program.values if isinstance(value.attribute, Load)]
    own = frozenset({along}).union(*masks)
    enough = tiling.elements * ENOUGH_WAVES * facts.device.sms * facts.device.threads
    most = min(
        math.prod(facts.hints[name] for name in facts.outer) // enough,
        MOST_LOADS // (tiling.elements * max(1, len(loads))),
    )
    points, axis = 1, ""
    for name in facts.outer:
        if name in own or facts.is_dynamic(name) or not all(map(_steps_along(name), (*loads, program.stores[0].index))):
            continue
        count = max((n for n in ROWS if facts.divides(n, name) and n <= most), default=1)
        points, axis = max((points, axis), (count, name), key=lambda each: each[0])
    if points > 1:
        points = choices.number(ACROSS, points, "as many as divide the axis and leave enough threads")
        choices.require(ACROSS, facts.divides(points, axis), f"{points} points do not divide the axis {axis}")
    return replace(tiling, lines=points, across=axis, threads=BLOCK_OF_SINGLES) if points > 1 else tiling


def _steps_along(name: str) -> Callable[[sympy.Expr], bool]:
    """Whether an index goes on by the same number of elements with each step of an axis."""
    symbol = AxisSymbol(name)

    def steps(index: sympy.Expr) -> bool:
        whole = expanded(index)
        step = whole.coeff(symbol)
        return bool(step.is_Integer) and symbol not in expanded(whole - step * symbol).free_symbols

    return steps


def _row_bytes(facts: Facts, across: str) -> int:
    """Bytes from one point along `across` to the next, of what is read at computed indices."""
    found = [0]
    for value in facts.program.values:
        if isinstance(load := value.attribute, Load) and value.operands:
            step = expanded(load.index).coeff(AxisSymbol(across))
            found.append(int(step) * facts.element_bytes(load) if step.is_Integer else 0)
    return max(found)


def word_elements(program: LoopProgram) -> int:
    """Elements of the widest output that are a word."""
    return max(1, WORD // 8 // max(ELEMENT[buffer.dtype][1] // 8 for buffer in program.outputs))
