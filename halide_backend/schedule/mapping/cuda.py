"""How a program lies on the blocks and threads of a GPU: from its axes, extents and index expressions alone."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.errors import Unsupported
from halide_backend.program.access import ADDED_AT_ONCE, VECTOR, WORD, first_word, is_contiguous
from halide_backend.program.aliasing import old_values
from halide_backend.program.applications import without_applications
from halide_backend.program.dtypes import ELEMENT, FLOAT8
from halide_backend.program.extents import is_multiple
from halide_backend.program.flattening import flattened
from halide_backend.program.loop_program import Extent, Load, LoopProgram, Reduction, Scan
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.mapping.cache_hints import priority_of_loads
from halide_backend.schedule.mapping.chunks import (
    adjacent_bytes,
    chunk_elements,
    contiguous_axis,
    element_bytes,
    is_a_line,
    row_loads,
    typical_extents,
)
from halide_backend.schedule.mapping.cuda_funcs import cuda_funcs
from halide_backend.schedule.mapping.division import division_forms
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.registers import register_limit
from halide_backend.schedule.mapping.scans import scan_tiling
from halide_backend.schedule.mapping.vector_access import WordAccess
from halide_backend.schedule.tiling import WARP, Team, Tiling

#: Bytes of one memory instruction.
_VECTOR = 16

#: Words of a row that one lane of a warp keeps in registers: 32 of 255 (half-filled warps spill from four times that).
_LANE_WORDS = 32

#: Words of a row that a thread of a larger team keeps: 2 vectors, 4 where the team would be too large (measured on an
#: H200: rms_norm of 4096 numbers 67.1 us with 2, 69.5 us with 4; softmax of 8192 38.4 us with 1024 threads, 36.4 us).
#: Where rows are as many as multiprocessors threads need not be: 8 vectors if 4 leave too large a team (group_norm of
#: 12100 floats 34.6 us with 4, 33.8 us with 8), and 4 of what is used but once (sums of 2048 floats 18.8 us with 2
#: vectors, 18.3 us with 4).
_THREAD_WORDS, _MANY_WORDS, _PASSING_WORDS = (8, 16), (8, 16, 32), (16,)

#: Registers of a multiprocessor, what one thread may have of them, and what it needs besides its share of the row.
_REGISTERS, _MOST_REGISTERS, _OTHER_REGISTERS = 1 << 16, 255, 14

_MOST_THREADS_OF_A_BLOCK = 1024

#: Elements of a row that one thread may have: all its steps are written out, and Halide's time grows with them.
_MOST_ELEMENTS = 64

#: Shared memory of a block without an opt-in is 48 KiB; the rest is for the exchange between warps.
_SHARED_BYTES = 40 << 10

#: Sides of the square through which a block transposes. Where rows do not begin with a sector of memory, of so many
#: bytes, fewer of them belong to two large squares (measured on an H200: 4099 x 2001 floats 29 us, of small ones 40 us;
#: but 8192 x 2048 floats 53 us, of 32 x 64 elements 50.5 us, of small ones 52 us). So many large squares fill the GPU.
_SMALL_SIDE, _LARGE_SIDE, _SECTOR, _ENOUGH_SQUARES = 32, 64, 32, 512

#: Threads that keep enough loads under way where each transposes a patch of whole vectors in its registers (128 bytes
#: of each are as much as an H200 needs for its bandwidth), and the least sides of a patch: of 4 x 4 floats half of a
#: line's memory is another thread's (measured: 8192 x 2048 floats 53.5 us, through shared memory 50.9 us).
_FEWEST_PATCHES, _LEAST_PATCH = 1 << 15, 8

#: Threads of a block per row: about 4 vectors each (measured on an H200; one vector each is a cliff).
_THREAD_VECTORS = 4
_FEWEST_THREADS, _MOST_THREADS = 128, 512

#: Threads of each multiprocessor that fill a GPU: 131,072 on an H200, about a thousand on each of 132.
_BUSY = 993

#: Points that a single thread may reduce; more of them belong to a team or to another backend.
_SERIAL_POINTS = 1 << 14


def cuda_mapping(program: LoopProgram, device: Gpu) -> Mapping:
    """The mapping that the rules choose for `program`, which has been prepared for a GPU.

    Raises:
        Unsupported: its loops fit no tiling, or an old value of what it overwrites would have to be kept.
    """
    if any(old_values(program)):
        raise Unsupported(
            "overwritten-memory-read-by-outputs", "an old value of overwritten memory goes to several stores"
        )
    dtypes = {buffer.dtype for buffer in (*program.inputs, *program.outputs)} | {v.dtype for v in program.values}
    if dtypes & FLOAT8:
        raise Unsupported("float8-on-gpu", f"a tensor of {min(dtypes & FLOAT8)} on a GPU")
    tiling = tile(program, device)
    funcs = cuda_funcs(program, tiling)
    loads, divisions = priority_of_loads(program, tiling), division_forms(program, tiling)
    return Mapping(funcs, tiling, loads, divisions, register_limit(tiling))


def tile(program: LoopProgram, device: Gpu) -> Tiling:
    """The tiling of `program` on `device`.

    Raises:
        Unsupported: its loops fit no tiling, or one that would leave the GPU idle.
    """
    extents = {axis.name: axis.extent for axis in program.axes}
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    scattered = any(layout.scattered for layout in layouts.values())
    if any(isinstance(value.attribute, Scan) for value in program.values):
        return scan_tiling(program, extents, layouts)
    if any(isinstance(value.attribute, Reduction) for value in program.values):
        if any(value.operation in RECURRENCES for value in program.values):
            raise Unsupported("data-dependent-loop-in-reduction", "a loop as long as data say beside a reduction")
        if scattered:
            raise Unsupported("scatter-of-reduction", "a scatter beside a reduction")
        return _reducing(program, extents, layouts, device)
    nests = {frozenset(axis.name for axis in store.nest.axes) for store in program.stores}
    if len(nests) != 1:
        raise Unsupported("stores-over-different-loops", f"stores over {sorted(map(sorted, nests))}")
    row = tuple(axis.name for axis in program.stores[0].nest.axes)
    if scattered:
        if len(program.stores) > 1:
            raise Unsupported("scatter-mixed-with-stores", f"{len(program.stores)} stores, one of them a scatter")
        return _scattering(program, extents, layouts, Tiling(Team.THREAD, row))
    if any(value.operation in RECURRENCES for value in program.values):
        return Tiling(Team.THREAD, row)
    square = _square(program, layouts)
    if square is not None and not any(_is_dynamic(extents[name]) for name in square):
        return _tiled(program, extents, layouts, Tiling(Team.TILE, row, square))
    return _chunked(program, extents, Tiling(Team.THREAD, row), row, device)


def one_tiling(program: LoopProgram, device: Gpu) -> Tiling:
    """The tiling of a program as it was captured, if one kernel computes it as well as several would.

    Sums of the sums of rows would leave each thread, or each team, a long way to go.

    Raises:
        Unsupported: it reduces rows of several kinds, or its loops fit no tiling.
    """
    reductions = [value.attribute for value in program.values if isinstance(value.attribute, Reduction)]
    kinds = {frozenset(axis.name for axis in reduction.axes) for reduction in reductions}
    if len(kinds) > 1:
        raise Unsupported("reductions-over-different-axes", f"reductions over {sorted(map(sorted, kinds))}")
    return tile(flattened(without_applications(program)), device)


def _square(program: LoopProgram, layouts: dict[str, OutputLayout]) -> tuple[str, str] | None:
    """The axes along which transposed operands are read and outputs are written, if there is one pair of them."""
    inner = {layout.variables[0] for layout in layouts.values() if layout.variables}
    across: set[str] = set()
    for position in strided_loads(program, layouts):
        value = program.values[position]
        assert isinstance(value.attribute, Load)
        across |= {name for name in value.axes if is_contiguous(value.attribute.index, name)}
    return (across.pop(), inner.pop()) if len(inner) == len(across) == 1 else None


def _scattering(
    program: LoopProgram, extents: dict[str, Extent], layouts: dict[str, OutputLayout], tiling: Tiling
) -> Tiling:
    """Chunks along the row that is added to, if that takes fewer instructions."""
    (store,) = program.stores
    (buffer,) = program.outputs
    along = layouts[store.buffer].variables[0]
    most = ADDED_AT_ONCE.get(buffer.dtype, 1)
    if store.mode != "atomic_add" or not buffer.aligned or along not in tiling.row:
        return tiling
    elements = next(count for count in (most, most // 2, 1) if count and is_multiple(extents[along], count))
    return replace(tiling, chunk=along, elements=elements) if elements > 1 else tiling


def _tiled(
    program: LoopProgram, extents: dict[str, Extent], layouts: dict[str, OutputLayout], tiling: Tiling
) -> Tiling:
    """Squares of single elements, or of pairs if all that is stored has 16 bits and they fill their squares."""
    across, along = tiling.inner
    patch = _patch(program, extents, tiling)
    if _moves_vectors(program, layouts, patch):
        return patch
    narrow = {ELEMENT[buffer.dtype][1] for buffer in program.outputs} == {16}
    for side in (_SMALL_SIDE, _SMALL_SIDE // 2):
        if narrow and is_multiple(extents[along], 2 * side):
            return replace(tiling, chunk=along, elements=2, side=side, lines=_LARGE_SIDE)
    shared, whole = 0, True
    for position in strided_loads(program, layouts):
        load = program.values[position].attribute
        assert isinstance(load, Load)
        shared += _LARGE_SIDE * (_LARGE_SIDE + 4) * element_bytes(program, load)
        whole = whole and is_multiple(extents[across] * element_bytes(program, load), _SECTOR)
    hints = typical_extents(program)
    count = math.prod(-(-hints[name] // (_LARGE_SIDE if name in tiling.inner else 1)) for name in tiling.row)
    large = not whole and shared <= _SHARED_BYTES and count >= _ENOUGH_SQUARES
    lines = _LARGE_SIDE if count >= _ENOUGH_SQUARES else _SMALL_SIDE
    return replace(tiling, side=_LARGE_SIDE if large else _SMALL_SIDE, lines=lines)


def _patch(program: LoopProgram, extents: dict[str, Extent], tiling: Tiling) -> Tiling:
    """A vector of elements of each axis for every thread."""
    across, along = tiling.inner
    elements, lines = (chunk_elements(program, name, extents[name]) for name in (along, across))
    return replace(tiling, team=Team.PATCH, chunk=along, elements=elements, lines=lines)


def _moves_vectors(program: LoopProgram, layouts: dict[str, OutputLayout], patch: Tiling) -> bool:
    """Whether there are threads enough, and each of them reads and stores its patch in vectors alone."""
    size = patch.elements * patch.lines
    points = math.prod(axis.hint for axis in program.axes if axis.name in patch.row)
    # Halide loses the bounds of a fused loop where outputs are computed together.
    alone = len(program.stores) == 1 and min(patch.elements, patch.lines) >= _LEAST_PATCH
    if not alone or size > _MOST_ELEMENTS or points < size * _FEWEST_PATCHES:
        return False
    access, words = WordAccess(program, patch), VECTOR // WORD
    for position, value in enumerate(program.values):
        if isinstance(value.attribute, Load) and not value.axes.isdisjoint(patch.cuts):
            load = access.loads.get(position)
            if load is None or load.unit != words:
                return False
    stored = [access.of_output(layouts[buffer.name], buffer) for buffer in program.outputs]
    return all(count and count % words == 0 for count in stored)


def _is_dynamic(extent: Extent) -> bool:
    return not isinstance(extent, int)


def _reducing(
    program: LoopProgram, extents: dict[str, Extent], layouts: dict[str, OutputLayout], device: Gpu
) -> Tiling:
    row = tuple(axis.name for axis in program.row)
    inner = tuple(name for name in extents if name not in row)
    reductions = [v.attribute for v in program.values if isinstance(v.attribute, Reduction)]
    whole = all({axis.name for axis in reduction.axes} == set(inner) for reduction in reductions)
    nests = [frozenset(axis.name for axis in store.nest.iteration) for store in program.stores]
    flat = all(nest in (frozenset(row), frozenset((*row, *inner))) for nest in nests)
    order = _order(program, inner)
    hints = typical_extents(program)
    points = math.prod(hints[name] for name in inner)
    along = contiguous_axis(program, inner)
    if whole and flat and order and points >= WARP and along not in row:
        return _team(program, extents, layouts, Tiling(Team.BLOCK, row, order), points, device)
    if points > _SERIAL_POINTS:
        raise Unsupported(
            "reduction-too-long-for-thread", f"a thread would reduce {points} elements, more than {_SERIAL_POINTS}"
        )
    return _chunked(program, extents, Tiling(Team.THREAD, row, inner), row, device)


def _order(program: LoopProgram, inner: tuple[str, ...]) -> tuple[str, ...]:
    """The inner axes outermost first: as a reduction or a store nests them."""
    for value in program.values:
        if isinstance(value.attribute, Reduction):
            names = tuple(axis.name for axis in value.attribute.axes)
            if set(names) == set(inner):
                return names
    return ()


def _team(
    program: LoopProgram,
    extents: dict[str, Extent],
    layouts: dict[str, OutputLayout],
    tiling: Tiling,
    points: int,
    device: Gpu,
) -> Tiling:
    last = tiling.inner[-1]
    elements = chunk_elements(program, last, extents[last])
    chunks = points // elements
    shared = sum(element_bytes(program, load) for load in row_loads(program, tiling, uses=2))
    computed = any(_is_dynamic(extents[name]) for name in tiling.inner)
    if not computed and all(is_a_line(layout, tiling.inner, extents) for layout in layouts.values()):
        threads = _holders(program, tiling, extents, elements, chunks, device)
        # Through long rows whose numbers are used but once threads had better walk.
        if 0 < threads <= (_MOST_THREADS_OF_A_BLOCK if shared else _MOST_THREADS):
            return replace(tiling, team=Team.REGISTERS, chunk=last, elements=elements, chunks=chunks, threads=threads)
    # An arg-reduction reads its row twice: for the best element, and for the first place that has it.
    positional = any(isinstance(v.attribute, Reduction) and v.attribute.position is not None for v in program.values)
    again = sum(element_bytes(program, load) for load in row_loads(program, tiling, uses=1 if positional else 2))
    if points * again > _SHARED_BYTES or (computed and again):
        # Read again from the cache, each time adjacent threads adjacent elements.
        elements = 1
    chunks = points // elements
    chunk = last if elements > 1 else ""
    wanted = 1 << max(chunks // _THREAD_VECTORS, 1).bit_length() - 1
    threads = min(max(wanted, _FEWEST_THREADS), _MOST_THREADS)
    threads = min(threads, -(-chunks // WARP) * WARP)
    return Tiling(Team.BLOCK, tiling.row, tiling.inner, chunk, elements, chunks, threads, computed=computed)


def _holders(
    program: LoopProgram, tiling: Tiling, extents: dict[str, Extent], elements: int, chunks: int, device: Gpu
) -> int:
    """Threads of a team that holds a row in registers, 0 if there is none."""

    def words(uses: int) -> list[int]:
        return [max(elements * element_bytes(program, load), 4) // 4 for load in row_loads(program, tiling, uses)]

    widest, together = max(words(uses=1), default=1), sum(words(uses=2))
    threads = WARP
    while (
        threads > 8
        and 2 * chunks <= threads
        and all(is_multiple(extents[name], 2 * WARP // threads) for name in tiling.row)
    ):
        threads //= 2
    if -(-chunks // threads) * widest > _LANE_WORDS:
        hints = typical_extents(program)
        many = math.prod(hints[name] for name in tiling.row) >= device.sms
        shares = (_MANY_WORDS if together else _PASSING_WORDS) if many else _THREAD_WORDS
        teams = [-(-chunks // max(1, words // widest)) for words in shares]
        wanted = next((team for team in teams if team <= _MOST_THREADS), teams[-1])
        threads = min(-(-wanted // WARP) * WARP, _MOST_THREADS_OF_A_BLOCK)
    steps = -(-chunks // threads)
    room = min(_MOST_REGISTERS, _REGISTERS // threads) - _OTHER_REGISTERS
    return threads if steps * together <= room and steps * elements <= _MOST_ELEMENTS else 0


def _chunked(
    program: LoopProgram, extents: dict[str, Extent], tiling: Tiling, candidates: tuple[str, ...], device: Gpu
) -> Tiling:
    """Cut the axis along which memory is contiguous, if every store runs along it."""
    along = contiguous_axis(program)
    everywhere = all(along in {axis.name for axis in store.nest.iteration} for store in program.stores)
    if along not in candidates or not everywhere:
        return tiling
    elements = chunk_elements(program, along, extents[along])
    whole = min(chunk_elements(program, along, 0), VECTOR // 8 // max(adjacent_bytes(program, along)))
    hints = typical_extents(program)
    long = _is_dynamic(extents[along]) or hints[along] > whole
    if not tiling.inner and long and whole > elements and _may_be_short(program, along, whole):
        return replace(tiling, chunk=along, elements=whole, short=not is_multiple(extents[along], whole))
    if tiling.inner and math.prod(hints[name] for name in tiling.row) < elements * _BUSY * device.sms:
        # A long loop for each of few threads: more threads with a word each keep more loads under way.
        elements = min(elements, max(1, elements * WORD // VECTOR))
    if elements == 1:
        return tiling
    return Tiling(tiling.team, tiling.row, tiling.inner, along, elements)


def _may_be_short(program: LoopProgram, along: str, elements: int) -> bool:
    """Whether the axis `along` may end within a chunk, of no more than one vector of any number: all memory is moved in
    words along it, and nothing else depends on what is read beyond the end, inside the vector that the tensor ends in.
    """
    if program.checks or any(value.operation == "indirect" for value in program.values):
        return False
    for value in program.values:
        if isinstance(value.attribute, Load) and along in value.axes and value.operands:
            return False
    buffers = {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}
    loads = [v.attribute for v in program.values if isinstance(v.attribute, Load) and along in v.axes]
    accesses = [(load.buffer, load.index) for load in loads]
    accesses += [(store.buffer, store.index) for store in program.stores]
    return all(
        buffers[name].aligned
        and ELEMENT[buffers[name].dtype][1] < 64
        and first_word(index, along, buffers[name].dtype, elements) is not None
        for name, index in accesses
    )
