"""Which tiling a program with scans gets."""

from __future__ import annotations

import math

from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.extents import is_multiple
from halide_backend.program.loop_program import Extent, LoopProgram, Reduction, Scan
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.mapping.chunks import chunk_elements, contiguous_axis, element_bytes, is_a_line, row_loads
from halide_backend.schedule.tiling import WARP, Team, Tiling

#: Words of a row that a thread keeps at most, and those at which a row gets more threads than a warp has.
_MOST_WORDS, _WORDS = 32, 16

#: Warps of a block.
_MOST_WARPS = 32


def scan_tiling(program: LoopProgram, extents: dict[str, Extent], layouts: dict[str, OutputLayout]) -> Tiling:
    """Teams that hold their rows, each of their warps a stretch of it.

    Raises:
        Unsupported: the threads of a block cannot hold a row, its memory is not adjacent, or there are other loops.
    """
    scans = [value for value in program.values if isinstance(value.attribute, Scan)]
    orders = {tuple(axis.name for axis in value.attribute.axes) for value in scans if isinstance(value.attribute, Scan)}
    nests = {frozenset(axis.name for axis in store.nest.axes) for store in program.stores}
    if len(orders) > 1 or nests != {frozenset(extents)}:
        raise Unsupported(
            "scan-mixed-with-loops", f"scans over {sorted(orders)}, stores over {sorted(map(sorted, nests))}"
        )
    if any(isinstance(value.attribute, Reduction) or value.operation in RECURRENCES for value in program.values):
        raise Unsupported("scan-mixed-with-reduction", "a scan beside a reduction, or a loop as long as data say")
    (inner,) = orders
    row = tuple(axis.name for axis in program.stores[0].nest.axes if axis.name not in inner)
    lengths = [length for name in inner if isinstance(length := extents[name], int)]
    if len(lengths) < len(inner):
        raise Unsupported(
            "scan-of-dynamic-length", f"a scan over {', '.join(f'{name} of {extents[name]}' for name in inner)}"
        )
    last, points = inner[-1], math.prod(lengths)
    if any(layout.scattered or not is_a_line(layout, inner, extents) for layout in layouts.values()):
        raise Unsupported("scan-result-not-contiguous", f"results are not contiguous along {', '.join(inner)}")
    if contiguous_axis(program) != last:
        raise Unsupported("scan-across-memory", f"a scan along {last}, and {contiguous_axis(program)} is contiguous")
    elements = chunk_elements(program, last, extents[last])
    chunks = points // elements
    walk = Tiling(Team.BLOCK, row, inner)
    read, kept = ([element_bytes(program, load) for load in row_loads(program, walk, uses)] for uses in (1, 2))
    scanned = sum(ELEMENT[value.dtype][1] // 8 for value in scans)
    words = -(-elements * max([*read, scanned + sum(kept)]) // 4)
    shared = [n for n in (8, 16) if chunks <= n and row and all(is_multiple(extents[name], WARP // n) for name in row)]
    lanes = min([*shared, WARP])
    if -(-chunks // lanes) * words <= _MOST_WORDS:
        return Tiling(Team.REGISTERS, row, inner, last, elements, chunks, lanes)
    warps = min(-(-chunks // (WARP * max(1, _WORDS // words))), _MOST_WARPS)
    tiling = Tiling(Team.REGISTERS, row, inner, last, elements, chunks, WARP, warps)
    if tiling.steps * words > _MOST_WORDS:
        raise Unsupported(
            "scan-too-long",
            f"a scan of {points} elements takes {tiling.steps * words} registers a thread, of {_MOST_WORDS}",
        )
    return tiling
