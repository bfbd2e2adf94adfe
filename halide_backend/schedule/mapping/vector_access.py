"""The loads and stores of a program that move a thread's chunk in whole words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from halide_backend.program.access import VECTOR, WORD, first_word, words_of
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.extents import ceil_div, is_multiple
from halide_backend.program.index import AxisSymbol, expanded
from halide_backend.program.loop_program import Buffer, Extent, Load, LoopProgram, Value
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.tiling import Tiling

#: Words of which memory instructions move two at a time only as one number.
_PAIR = 2

#: Elements from one that a chunk needs to the next, forwards: beyond, too few of what the vectors hold are used.
_WIDEST_STEP = 4


@dataclass(frozen=True)
class VectorLoad:
    """A load of `buffer`, one piece of the cut axis `along` at a time.

    `first` is the word at which a piece begins, a multiple of `unit` over the piece's number, `words` how many are
    read. A masked load may run out of the buffer: `last` is then the last word at which a piece can begin, to which
    `first` has to be clamped, or of a `window` the last word at which a unit can, each of which is clamped. Element
    number `e` of the piece is element `e*step + skip` of the words.
    """

    buffer: str
    along: str
    first: sympy.Expr
    words: int
    unit: int
    last: Extent | None = None
    step: int = 1
    skip: int = 0
    window: bool = False


class VectorAccess:
    """Which accesses of `program` under `tiling` move words: `loads` by the position of their value."""

    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self._program = program
        self._tiling = tiling
        found: dict[int, VectorLoad] = {}
        by_element: set[str] = set()
        for position, value in enumerate(program.values):
            if isinstance(value.attribute, Load):
                buffer = next(b for b in program.inputs if b.name == value.attribute.buffer)
                load = self._load(value, value.attribute, buffer)
                if load is not None:
                    found[position] = load
                elif ELEMENT[buffer.dtype][1] != WORD:
                    by_element.add(buffer.name)
        # Only a buffer of 32-bit elements can be read either way.
        self.loads = {position: load for position, load in found.items() if load.buffer not in by_element}

    @property
    def buffers(self) -> set[str]:
        """The inputs that are read in words."""
        return {load.buffer for load in self.loads.values()}

    @property
    def pairs(self) -> set[str]:
        """Those of them of which nothing is read but pairs of words: numbers of 64 bits."""
        found: dict[str, set[tuple[int, int]]] = {}
        for position, value in enumerate(self._program.values):
            if isinstance(value.attribute, Load):
                load = self.loads.get(position)
                found.setdefault(value.attribute.buffer, set()).add((load.words, load.unit) if load else (0, 0))
        return {buffer for buffer, sizes in found.items() if sizes == {(_PAIR, _PAIR)}}

    def _load(self, value: Value, load: Load, buffer: Buffer) -> VectorLoad | None:
        tiling = self._tiling
        if not buffer.aligned:
            return None
        unmasked = all(self._program.values[operand].operation == "indirect" for operand in value.operands)
        for along, elements in tiling.cuts.items():
            words = words_of(buffer.dtype, elements)
            first = first_word(load.index, along, buffer.dtype, elements)
            if first is None:
                continue
            found = VectorLoad(buffer.name, along, first, words, min(words, VECTOR // WORD))
            if unmasked:
                return found
            # In a buffer of whole pieces one with any element inside lies inside as a whole: clamping changes no other.
            last = words * (ceil_div(buffer.extent, elements) - 1)
            return replace(found, last=last) if is_multiple(buffer.extent, elements) else None
        if not tiling.chunk or tiling.elements == 1:
            return None
        windows = (self._window(load, buffer, unit, masked=not unmasked) for unit in (VECTOR, WORD))
        return next((window for window in windows if window is not None), None)

    def _window(self, load: Load, buffer: Buffer, unit: int, *, masked: bool) -> VectorLoad | None:
        """The aligned units of `unit` bits (vectors or words) that contain a chunk whose elements have a small stride,
        begin within a unit, or run backwards. A unit with any element that no mask leaves out lies in the buffer."""
        tiling = self._tiling
        symbol = AxisSymbol(tiling.chunk)
        index = expanded(load.index)
        step, constant = index.coeff(symbol), index.as_coeff_Add()[0]
        in_unit = unit // ELEMENT[buffer.dtype][1]
        if (
            in_unit < 2
            or not (step.is_Integer and step != 0 and -1 <= step <= _WIDEST_STEP and constant.is_Integer)
            or not is_multiple(buffer.extent, in_unit)
        ):
            return None
        # From the element with the lowest address to the chunk's first one.
        back = -min(int(step), 0) * (tiling.elements - 1)
        skip = int(constant - back) % in_unit
        chunks = step * (symbol - tiling.elements * AxisSymbol(f"{tiling.chunk}_c"))
        first = expanded(index - chunks - back - skip)
        factors = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(first)]
        if symbol in first.free_symbols or not all(f.is_Integer and f % in_unit == 0 for f in factors):
            return None
        units, words = (skip + abs(int(step)) * (tiling.elements - 1)) // in_unit + 1, unit // WORD
        if unit == WORD and units > tiling.elements:
            return None
        first = expanded(first * words / in_unit)
        found = VectorLoad(buffer.name, tiling.chunk, first, units * words, words, None, int(step), skip + back)
        if not masked:
            return found
        last = words * (ceil_div(buffer.extent, in_unit) - 1)
        return replace(found, last=last, window=True)

    def of_output(self, layout: OutputLayout, buffer: Buffer) -> int:
        """Words of one chunk of an output, 0 if it is not stored in words."""
        tiling = self._tiling
        if not buffer.aligned or tiling.chunk not in layout.variables:
            return 0
        words = words_of(buffer.dtype, tiling.elements)
        step = min(words * WORD, VECTOR)
        bits = ELEMENT[buffer.dtype][1]
        for name, (_, stride) in zip(layout.variables, layout.dims):
            if not words or (stride != 1 if name == tiling.chunk else not is_multiple(stride * bits, step)):
                return 0
            if not isinstance(stride, int) and bits != WORD:
                return 0  # Counted in words it would be no argument of the kernel.
        return words if layout.offset * bits % step == 0 else 0
