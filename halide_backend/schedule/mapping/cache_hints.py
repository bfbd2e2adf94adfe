"""Cache hints for a CUDA kernel's loads."""

from __future__ import annotations

import math
from fractions import Fraction

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Load, LoopProgram
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.chunks import element_bytes, line_loads, typical_extents
from halide_backend.schedule.tiling import Tiling, TilingKind

#: Bytes that a kernel has to move, in sizes of the L2, so that nothing of what the kernel before it left there survives
#: (128 MB, found with the 60 MB of an H200).
_OVERFLOWING = Fraction(128, 60)

_NONE, _STREAMED, _REPLACED = "none", "L1::no_allocate", "L2::evict_last"

HINT = Knob("loads.hint", (_NONE, _STREAMED, _REPLACED), "cache hint of loads, as PTX calls it")


def load_cache_hint(program: LoopProgram, tiling: Tiling, device: Gpu, choices: Choices) -> str:
    """PTX's hint, "" for none: "L1::no_allocate" for rows that are read only once, "L2::evict_last" for long
    tensors that are replaced row by row, so that what is stored makes room for what is stored next.

    Raises:
        IllegalPlan: a requested hint is none of the knob's values.
    """
    if _is_streamed(program, tiling):
        hint = choices.choose(HINT, _STREAMED, "lines are read once: sums of float32 rows are 5 to 8 % faster")
    elif _is_replaced(program, tiling, device):
        why = (
            "replaces more than the cache holds: rms_norm of 8192 x 4096 floats 0.995 of Triton's speed, without 0.959"
        )
        hint = choices.choose(HINT, _REPLACED, why)
    else:
        why = "stores as much as it loads: 8192 x 2048 floats + floats 50.1 us, bypassing the L1 53.1 us"
        hint = choices.choose(HINT, _NONE, why)
    return "" if hint == _NONE else str(hint)


def _is_streamed(program: LoopProgram, tiling: Tiling) -> bool:
    """Whether thread groups read each line once, and store only a few values for it."""
    if tiling.kind not in (TilingKind.REGISTERS, TilingKind.BLOCK):
        return False
    inner, sinks = set(tiling.inner), sinks_of(program)
    if any(inner & {axis.name for axis in store.nest.iteration} for store in program.stores):
        return False
    loads = [p for p, value in enumerate(program.values) if isinstance(value.attribute, Load) and value.axes & inner]
    return all(len(sinks[p]) == 1 and program.values[p].axes.issuperset(tiling.outer) for p in loads)


def _is_replaced(program: LoopProgram, tiling: Tiling, device: Gpu) -> bool:
    """Whether thread groups hold lines of one tensor and store as many bytes as they load, more than any cache has."""
    if not tiling.holds_lines:
        return False
    hints = typical_extents(program)
    every = {*tiling.outer, *tiling.inner}
    rows = {load for load in line_loads(program, tiling, uses=1) if _axes(load) >= every}
    if len(rows) != 1:
        return False
    points = math.prod(hints[name] for name in every)
    loaded = points * element_bytes(program, rows.pop())
    sizes = {output.name: ELEMENT[output.dtype][1] // 8 for output in program.outputs}
    stores = [store for store in program.stores if {axis.name for axis in store.nest.iteration} >= every]
    stored = points * sum(sizes[store.buffer] for store in stores)
    return stored >= loaded and stored + loaded >= _OVERFLOWING * device.l2_bytes


def _axes(load: Load) -> set[str]:
    return {symbol.name for symbol in load.index.free_symbols}
