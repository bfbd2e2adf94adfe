"""Where the memory of a program is adjacent, and how many elements of it one instruction moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import sympy

from halide_backend.program.access import WORD, in_chunks, is_contiguous, runs_along
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.extents import is_multiple
from halide_backend.program.index import FloorDiv
from halide_backend.program.loop_program import Extent, Load, LoopProgram
from halide_backend.program.store_layout import OutputLayout
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.tiling import Tiling

#: Bytes of one memory instruction.
_VECTOR = 16


def chunk_elements(program: LoopProgram, along: str, extent: Extent, *, pairs: bool = False) -> int:
    """Elements of a chunk: one vector of the narrowest numbers that run along the axis, two words if `pairs` are
    wanted, or one."""
    widths = adjacent_bytes(program, along)
    # Bytes are mostly masks beside wider data: they set the size only if there is nothing else.
    narrowest = min([width for width in widths if width > 1] or widths)
    for size in (_VECTOR, WORD // 4, WORD // 8) if pairs else (_VECTOR, WORD // 8):
        elements = max(1, size // max(narrowest, 2))
        if is_multiple(extent, elements):
            return elements
    return 1


def adjacent_bytes(program: LoopProgram, along: str) -> list[int]:
    """Bytes of the numbers that are adjacent along the axis, of a vector if there are none."""
    sizes = ((ELEMENT[dtype][1] // 8, index) for dtype, index in accesses(program))
    adjacent = (size for size, index in sizes if is_contiguous(in_chunks(index, along, _VECTOR // max(size, 2)), along))
    return [*adjacent] or [_VECTOR]


def typical_extents(program: LoopProgram) -> dict[str, int]:
    """They decide what is fast, never what is right."""
    return {axis.name: axis.hint for axis in program.axes}


def contiguous_axis(program: LoopProgram, over: Sequence[str] = ()) -> str:
    """The axis along which most bytes are adjacent, of the accesses that run over one of the axes `over`, if any."""
    found = contiguous_bytes(program, over)
    return max(found, key=lambda name: found[name]) if found else ""


def contiguous_bytes(program: LoopProgram, over: Sequence[str] = ()) -> dict[str, int]:
    """How many bytes are adjacent along each axis, of the accesses that run over one of the axes `over`, if any."""
    hints = typical_extents(program)
    votes: dict[str, int] = {}
    for dtype, index in accesses(program):
        if over and not {symbol.name for symbol in index.free_symbols}.intersection(over):
            continue
        for name in hints:
            if runs_along(index, name) if over else is_contiguous(index, name):
                size = math.prod(hints[s.name] for s in _varying(index) if s.name in hints)
                votes[name] = votes.get(name, 0) + size * ELEMENT[dtype][1] // 8
    return votes


def _varying(index: sympy.Expr) -> set[sympy.Basic]:
    """The symbols along which neighbours read other elements: not those of which `index` has quotients alone."""
    varying: sympy.Expr = index.xreplace(dict.fromkeys(index.atoms(FloorDiv), sympy.S.Zero))
    return set(varying.free_symbols)


def accesses(program: LoopProgram) -> Iterator[tuple[str, sympy.Expr]]:
    """Element type and index of every load and store."""
    dtypes = {buffer.name: buffer.dtype for buffer in (*program.inputs, *program.outputs)}
    for value in program.values:
        if isinstance(value.attribute, Load):
            yield dtypes[value.attribute.buffer], value.attribute.index
    for store in program.stores:
        yield dtypes[store.buffer], store.index


def line_loads(
    program: LoopProgram, tiling: Tiling, uses: int, together: Sequence[Sequence[int]] = ()
) -> Iterator[Load]:
    """Loads that run along the line and flow into `uses` or more reductions and stores; reductions that are computed
    `together` are one."""
    sinks = sinks_of(program)
    first = {f"reduction {position}": f"reduction {group[0]}" for group in together for position in group}
    for position, value in enumerate(program.values):
        used = len({first.get(sink, sink) for sink in sinks[position]})
        if isinstance(value.attribute, Load) and value.axes.intersection(tiling.inner) and used >= uses:
            yield value.attribute


def element_bytes(program: LoopProgram, load: Load) -> int:
    return next(ELEMENT[buffer.dtype][1] // 8 for buffer in program.inputs if buffer.name == load.buffer)


def is_contiguous_over(layout: OutputLayout, inner: tuple[str, ...], extents: dict[str, Extent]) -> bool:
    """Whether an output has one value for a line, or is contiguous over the `inner` axes in their order."""
    strides = {name: stride for name, (_, stride) in zip(layout.variables, layout.dims)}
    if not set(inner) & set(strides):
        return True
    if not set(inner) <= set(strides):
        return False
    fixed = all(isinstance(strides[name], int) for name in inner)
    return fixed and all(strides[a] == strides[b] * extents[b] for a, b in itertools.pairwise(inner))
