"""A program in the form that a device's kernels are written from; what it computes stays the same."""

from __future__ import annotations

import math

from halide_backend.program.access import is_contiguous
from halide_backend.program.applications import without_applications
from halide_backend.program.composed import composed
from halide_backend.program.flattening import flattened, with_whole_lines
from halide_backend.program.gathered_rows import with_functions_of_rows
from halide_backend.program.halves import with_joined_halves
from halide_backend.program.loop_program import Load, LoopProgram
from halide_backend.program.main_pieces import with_main_pieces
from halide_backend.program.moments import with_moments
from halide_backend.program.narrow_places import with_narrow_places
from halide_backend.program.rare_masks import with_rare_masks
from halide_backend.program.repeats import with_repeats_apart
from halide_backend.program.silu import with_shared_sigmoids
from halide_backend.program.softmax import with_masked_rows
from halide_backend.program.wrapped import with_wrapped_coordinates
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedule.mapping.chunks import contiguous_axis

#: Points that a thread has in registers beside what it computes of each, and those that a few threads have which store
#: side by side along them.
_FEW, _FEW_TOGETHER = 64, 256

#: Points that the threads of a block have so of several lines (see schedule/cuda/interleaved_lines.py).
_FEW_OF_A_BLOCK = 4096


def prepared(program: LoopProgram, device: Device) -> LoopProgram:
    """`program` as `device` takes it: on a GPU Funcs are over cut axes, so that producers are computed again where they
    are read at other coordinates, and dynamic axes that a grid cannot hold become one; some functions of functions are
    one operation, places that are rounded from coordinates are int32, rows that are masked as a whole are found by
    their maximum, and where threads reduce across memory, the two sums of a variance take one walk. On a CPU axes of
    repeats are apart from what is repeated, gathers along computed rows become functions of a row, places are int32
    where they are known to fit, a SiLU beside a sigmoid shares its exponential, and transposes are stored in whole
    lines of memory.

    Raises:
        Unsupported: it has no such form.
    """
    if isinstance(device, Cpu):
        taken = with_narrow_places(with_whole_lines(with_repeats_apart(program)), saturating=False)
        taken = with_functions_of_rows(with_shared_sigmoids(taken))
        along = contiguous_axis(taken)
        return with_rare_masks(with_main_pieces(with_wrapped_coordinates(taken), along), along)
    taken = composed(with_masked_rows(with_joined_halves(flattened(without_applications(program)))))
    taken = with_narrow_places(taken, saturating=True)
    return with_moments(taken) if _reduces_across_memory(taken) and not _is_short(taken) else taken


def _reduces_across_memory(program: LoopProgram) -> bool:
    """Whether threads reduce along an axis across memory, so that none of them holds what it reads."""
    outer = {axis.name for axis in program.outer}
    inner = [axis.name for axis in program.axes if axis.name not in outer]
    return bool(inner) and contiguous_axis(program, inner) in outer


def _is_short(program: LoopProgram) -> bool:
    """Whether threads can have in registers what is reduced, and need it again for what is stored along it: then a
    variance takes a second walk along registers, not along memory."""
    outer = {axis.name for axis in program.outer}
    inner = [axis for axis in program.axes if axis.name not in outer]
    known = all(isinstance(axis.extent, int) for axis in inner)
    along = [store for store in program.stores if not outer.issuperset(axis.name for axis in store.nest.iteration)]
    together = all(any(is_contiguous(store.index, axis.name) for axis in inner) for store in along)
    pairs = known and inner[-1].hint % 2 == 0 and _lies_along(program, inner[-1].name, outer)
    most = _FEW_OF_A_BLOCK if pairs else _FEW_TOGETHER if together else _FEW
    return known and bool(along) and math.prod(axis.hint for axis in inner) <= most


def _lies_along(program: LoopProgram, inner: str, outer: set[str]) -> bool:
    """Whether the lines along axis `inner`, one for each point of the `outer` axes, lie along memory in some tensor."""
    loads = [value.attribute.index for value in program.values if isinstance(value.attribute, Load)]
    indices = (*loads, *(store.index for store in program.stores))
    return any(is_contiguous(e, inner) and not outer.isdisjoint(s.name for s in e.free_symbols) for e in indices)
