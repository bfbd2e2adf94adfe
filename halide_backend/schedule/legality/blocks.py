"""Kernels of a GPU: every nest is a grid of blocks, and threads that exchange values are where these expect them."""

from __future__ import annotations

import math

from halide_backend.schedule.legality.nests import Kind, Nest, NestLoop, Nests, Place
from halide_backend.schedule.legality.refusal import refuse, refuse_func
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import Bound, BoundExtent, Step, StoreIn, Vectorize
from halide_backend.schedule.tiling import LINE, THREAD, WARP, Tiling, TilingKind

#: Threads of a block, in all and in its third dimension (CUDA C++ Programming Guide, technical specifications).
MOST_THREADS, MOST_DEEP = 1024, 64

#: Lanes of the only vector that Halide turns into one memory instruction, of 32-bit numbers.
_LANES = 4

_LINE_KINDS = (TilingKind.REGISTERS, TilingKind.BLOCK)

#: Funcs whose threads exchange values, or that a thread keeps in registers.
_HELD = (Role.GROUP_REDUCTION, Role.SCAN, Role.REDUCTION, Role.PACKED)


def check_blocks(nests: Nests, steps: list[Step], tiling: Tiling) -> None:
    """Check the grid of every output, and what its threads do together.

    Raises:
        IllegalPlan: something would run on the host, a block has too many threads, or threads that exchange values
            are others than the algorithm expects.
    """
    for number, step in enumerate(steps):
        if isinstance(step, Vectorize):
            _check_vector(nests, number, step)
    for nest in nests.nests.values():
        if nest.stage.name in nests.computed or nest.stage.role in (Role.OUTPUT, Role.SCATTER):
            _check_elements(nest)
    for stage in nests.stages.values():
        if stage.role in (Role.OUTPUT, Role.SCATTER):
            _check_grid(nests.nests[stage.name, 0 if stage.role is Role.SCATTER else None])
        elif stage.name in nests.computed:
            _check_place(nests, steps, stage, tiling)
        else:
            _check_stray_threads(nests, stage)
    if tiling.kind in _LINE_KINDS:
        for stage in nests.outputs:
            _check_group(nests.nests[stage.name, None], tiling)
    if tiling.kind in (TilingKind.COLUMNS, TilingKind.SCANNED_COLUMNS):
        _check_columns(nests, steps, tiling)


def _of_kind(nest: Nest, kind: Kind) -> list[NestLoop]:
    return [loop for loop in nest.loops if loop.kind is kind]


def _check_vector(nests: Nests, number: int, step: Vectorize) -> None:
    loop = next(loop for loop in nests.nests[step.func, step.update].loops if loop.name == step.var)
    if loop.axes != {"k"} or loop.extent != _LANES or nests.stages[step.func].bits != 32:
        refuse(number, step, f"vectors of a GPU are {_LANES} adjacent words of memory", "unroll the loop")


def _check_elements(nest: Nest) -> None:
    """What a thread has at a time lies in its registers, which have no addresses; what marks a store is looked for
    there."""
    for loop in nest.loops:
        element = loop.axes & {"k", "e"} or loop.name.endswith("_e")
        if element and loop.extent > 1 and loop.kind not in (Kind.UNROLLED, Kind.VECTOR):
            why = f"the loop {loop.name!r} of adjacent elements is {loop.kind.value}"
            refuse_func(nest.stage.name, why, "Unroll it, or Vectorize four words")


def _check_grid(nest: Nest) -> None:
    name = nest.stage.name
    blocks, threads = _of_kind(nest, Kind.BLOCKS), _of_kind(nest, Kind.THREADS)
    if not blocks or not threads:
        refuse_func(name, "the processor would compute it, which cannot reach the memory", "add GpuBlocks, GpuThreads")
    _check_size(name, threads)
    kinds = [loop.kind for loop in nest.loops if not (loop.kind is Kind.SERIAL and loop.extent == 1 and loop.fixed)]
    order = [2 if kind is Kind.BLOCKS else 1 if kind is Kind.THREADS else 0 for kind in kinds]
    if order != sorted(order) and nest.stage.role is not Role.SCATTER:
        refuse_func(name, "its loops are not blocks around threads around the steps of a thread", "Reorder them")


def _check_size(name: str, threads: list[NestLoop]) -> None:
    if any(not loop.fixed for loop in threads):
        refuse_func(name, "the number of threads of a block is no constant", "split the loop first")
    if math.prod(loop.extent for loop in threads) > MOST_THREADS or (
        len(threads) == 3 and threads[-1].extent > MOST_DEEP
    ):
        sizes = " x ".join(str(loop.extent) for loop in threads)
        refuse_func(name, f"a block of {sizes} threads is larger than {MOST_THREADS}", "split by a smaller factor")


def _check_stray_threads(nests: Nests, stage: Stage) -> None:
    for nest in nests.of_func(stage.name):
        if _of_kind(nest, Kind.THREADS) or _of_kind(nest, Kind.BLOCKS):
            refuse_func(stage.name, "it has threads of its own, but no block to be computed in", "add a ComputeAt")


def _check_place(nests: Nests, steps: list[Step], stage: Stage, tiling: Tiling) -> None:
    place = nests.computed[stage.name]
    kinds = {loop.kind for loop in nests.enclosing(place)}
    own = [loop for nest in nests.of_func(stage.name) for loop in _of_kind(nest, Kind.THREADS)]
    shared = next(((k, s) for k, s in enumerate(steps) if isinstance(s, StoreIn) and s.func == stage.name), None)
    if any(_of_kind(nest, Kind.BLOCKS) for nest in nests.of_func(stage.name)):
        refuse(place.number, place.step, "it has blocks of its own inside a block")
    if Kind.BLOCKS not in kinds:
        refuse(place.number, place.step, "what lies outside of blocks has no memory", "compute it inside of them")
    if (Kind.THREADS in kinds) is bool(own):
        refuse(place.number, place.step, "each thread computes its own, or those of the block share it out")
    if own:
        _check_size(stage.name, own)
    if shared is not None and not own:
        refuse(*shared, "each thread computes its own, which the block would keep in one place")
    if stage.role in (Role.SHARED_TILE,) and not own:
        refuse(place.number, place.step, "the threads of a block load it together")
    if (
        stage.role in _HELD
        and Kind.THREADS not in kinds
        and not (stage.role is Role.GROUP_REDUCTION and tiling.kind in (TilingKind.BLOCK, TilingKind.COLUMNS))
    ):
        refuse(place.number, place.step, "it lies in a thread's registers", "compute it inside the loops of threads")
    if tiling.kind in _LINE_KINDS and stage.role in (Role.GROUP_REDUCTION, Role.SCAN):
        _check_exchange(nests, steps, stage, place, tiling)
    if tiling.kind is TilingKind.SCANNED_COLUMNS and stage.role is Role.SCAN:
        _check_round(nests, steps, stage, place)


def _check_exchange(nests: Nests, steps: list[Step], stage: Stage, place: Place, tiling: Tiling) -> None:
    """Threads wait for one another: all of them get there, in the same order and as often."""
    names = [loop.name for nest in nests.of_func(stage.name) for loop in _of_kind(nest, Kind.THREADS)]
    if tiling.kind is TilingKind.BLOCK:
        bound = any(
            isinstance(s, Bound) and (s.func, s.var, s.extent) == (stage.name, "t", tiling.threads) for s in steps
        )
        around = nests.around(place)[0]
        if names != ["t"] or not bound or around[0].loops[around[1]].kind is not Kind.BLOCKS:
            why = f"its {tiling.threads} threads exchange values: all of them, once for each block"
            refuse(place.number, place.step, why, "compute it in a block, Bound and GpuThreads its t")
        return
    wanted = LINE if tiling.interleaved else THREAD
    if place.var != wanted or names:
        why = "threads that exchange values do so once, side by side"
        refuse(place.number, place.step, why, f"compute it inside the loop {wanted} of an output")
    if stage.role is Role.SCAN:
        _check_held(nests, steps, stage)


def _check_round(nests: Nests, steps: list[Step], stage: Stage, place: Place) -> None:
    """In each round of a scan of columns all threads of a block exchange once, and carry on from the round before."""
    around = nests.around(place)[0]
    loops = around[0].loops[around[1] :]
    if place.var != "o" or loops[0].kind is not Kind.SERIAL or [loop.kind for loop in loops[1:3]] != [Kind.THREADS] * 2:
        why = "threads exchange values in every round, and carry what comes next to the one after it"
        refuse(place.number, place.step, why, "compute it inside the serial loop o of an output")
    _check_held(nests, steps, stage)


def _check_held(nests: Nests, steps: list[Step], stage: Stage) -> None:
    """A thread has all of a scan in its registers."""
    bounded = {step.var for step in steps if isinstance(step, Bound) and step.func == stage.name}
    for nest in nests.of_func(stage.name):
        # What is selected away would not be computed, and other threads wait for it.
        if any(
            (loop.axes & {"u", "j", "distance"} or loop.name.endswith("_e") or loop.reduces)
            and not (loop.kind is Kind.UNROLLED and (loop.reduces or loop.name in bounded))
            for loop in nest.loops
        ):
            refuse_func(stage.name, "a thread has all of it in registers", "Bound and Unroll each of its loops")


def _check_group(nest: Nest, tiling: Tiling) -> None:
    """The threads that exchange values are those of the algorithm: so many, and next to one another."""
    name, threads = nest.stage.name, _of_kind(nest, Kind.THREADS)
    if tiling.interleaved:
        _check_interleaved(nest, threads, tiling)
        return
    expected = [("t", tiling.threads)] + ([("w", tiling.warps)] if tiling.warps > 1 else [])
    found = [(loop.name, loop.extent) for loop in threads]
    several = tiling.warps == 1 and tiling.threads <= WARP and tiling.kind is TilingKind.REGISTERS
    beside = threads[len(expected) :]
    if found[: len(expected)] != expected or len(beside) > (2 if several else 0):
        wanted = " x ".join(f"{name} ({extent})" for name, extent in expected)
        refuse_func(name, f"its threads exchange values as {wanted}, not {found}", "GpuThreads these, in this order")
    # Those of a second loop beside the group are in other warps.
    if several and tiling.threads * math.prod(loop.extent for loop in beside[:1]) % WARP:
        refuse_func(name, "a warp of which only some threads run would wait for the others", "use whole warps")
    lines = WARP // tiling.threads if several else 1
    for axis in set().union(*(loop.axes for loop in beside[:1])):
        if any(loop.axis == axis and loop.fixed and loop.extent % lines for loop in nest.stage.loops):
            refuse_func(name, f"the last warp has less than {lines} lines", "pad the axis, or give a line more threads")


def _check_interleaved(nest: Nest, threads: list[NestLoop], tiling: Tiling) -> None:
    """Neighbouring threads have neighbouring lines, all of a block, and as many threads as the algorithm adds up."""
    name, wanted = nest.stage.name, [(LINE, tiling.side), (THREAD, tiling.threads)]
    if [(loop.name, loop.extent) for loop in threads] != wanted or threads[0].axes != {tiling.adjacent}:
        cure = f"give {tiling.side} lines of {tiling.threads} threads to GpuThreads, lines first"
        refuse_func(name, "its threads are not those that exchange values", cure)
    if tiling.side * tiling.threads % WARP:
        refuse_func(name, "a warp of which only some threads run would wait for the others", "use whole warps")
    along = next(loop for loop in nest.stage.loops if loop.axis == tiling.adjacent)
    if not along.fixed or along.extent % tiling.side:
        refuse_func(name, f"the last block has less than {tiling.side} lines", "pad the axis")


def _check_columns(nests: Nests, steps: list[Step], tiling: Tiling) -> None:
    """The threads of a block are those of its columns, and partial results of them lie in shared memory, for as many
    columns and threads as the algorithm adds up: all of them read all."""
    wanted = [tiling.side, tiling.threads]
    bounds = {(s.func, s.var): s.extent for s in steps if isinstance(s, Bound | BoundExtent)}
    stored = {s.func for s in steps if isinstance(s, StoreIn)}
    cure = f"give {tiling.side} columns of {tiling.threads} threads to GpuThreads, columns first"
    for stage in nests.outputs:
        threads = _of_kind(nests.nests[stage.name, None], Kind.THREADS)
        if [loop.extent for loop in threads] != wanted or threads[1].name != "t":
            refuse_func(stage.name, "its threads are not those that have partial results", cure)
        for other in nests.stages.values():
            if other.role is Role.GROUP_REDUCTION:
                own = _of_kind(nests.nests[other.name, None], Kind.THREADS)
                extents = [bounds.get((other.name, loop.name)) for loop in own]
                same = [loop.axes for loop in own] == [loop.axes for loop in threads]
                if extents != wanted or not same or other.name not in stored:
                    refuse_func(other.name, "its threads are not those of the output, or not in shared memory", cure)
