"""The loads and stores of a program that move a thread's chunk in whole words."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from halide_backend.algorithm.arguments import ELEMENT
from halide_backend.algorithm.cuda.access import VECTOR, WORD, first_word, plain, words_of
from halide_backend.algorithm.loop_program import Axis, Buffer, Load, LoopProgram, Value
from halide_backend.algorithm.placement import OutputLayout
from halide_backend.schedule.tiling import Tiling

#: Elements from one that a chunk needs to the next, forwards: beyond, too few of what the vectors hold are used.
_WIDEST_STEP = 4


@dataclass(frozen=True)
class WordLoad:
    """A load of `buffer`, one chunk at a time.

    `first` is the word at which a chunk begins, over the chunk's number, `words` how many are read. A masked load may
    run out of the buffer: `last` is then the last word at which a chunk can begin, to which `first` has to be clamped.
    Element number `e` of the chunk is element `e*step + skip` of the words.
    """

    buffer: str
    first: sympy.Expr
    words: int
    last: int | None = None
    step: int = 1
    skip: int = 0


class WordAccess:
    """Which accesses of `program` under `tiling` move words: `loads` by the position of their value."""

    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self._program = program
        self._tiling = tiling
        found: dict[int, WordLoad] = {}
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

    def _load(self, value: Value, load: Load, buffer: Buffer) -> WordLoad | None:
        tiling = self._tiling
        if not tiling.chunk or not buffer.aligned:
            return None
        words = words_of(buffer.dtype, tiling.elements)
        first = first_word(load.index, tiling.chunk, buffer.dtype, tiling.elements)
        unmasked = all(self._program.values[operand].operation == "indirect" for operand in value.operands)
        if first is None:
            return self._window(load, buffer) if unmasked else None
        if unmasked:
            return WordLoad(buffer.name, first, words)
        assert isinstance(buffer.extent, int)
        if buffer.extent % tiling.elements:
            return None
        # In a buffer of whole chunks a chunk with any element inside lies inside as a whole: clamping changes no other.
        return WordLoad(buffer.name, first, words, words_of(buffer.dtype, buffer.extent) - words)

    def _window(self, load: Load, buffer: Buffer) -> WordLoad | None:
        """The vectors that a chunk lies in whose elements are a few apart, begin within a vector, or run backwards."""
        tiling = self._tiling
        symbol = Axis(tiling.chunk, 1, 1).symbol
        index = sympy.expand(plain(load.index))
        step, constant = index.coeff(symbol), index.as_coeff_Add()[0]
        in_vector = VECTOR // ELEMENT[buffer.dtype][1]
        assert isinstance(buffer.extent, int)
        if (
            tiling.elements == 1
            or not (step.is_Integer and step != 0 and -1 <= step <= _WIDEST_STEP and constant.is_Integer)
            or buffer.extent % in_vector
        ):
            return None
        # From the element with the lowest address to the chunk's first one.
        back = -min(int(step), 0) * (tiling.elements - 1)
        skip = int(constant - back) % in_vector
        chunks = step * (symbol - tiling.elements * Axis(f"{tiling.chunk}_c", 1, 1).symbol)
        first = sympy.expand(index - chunks - back - skip)
        factors = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(first)]
        if symbol in first.free_symbols or not all(f.is_Integer and f % in_vector == 0 for f in factors):
            return None
        vectors = (skip + abs(int(step)) * (tiling.elements - 1)) // in_vector + 1
        words_of_vector = VECTOR // WORD
        first = sympy.expand(first * words_of_vector / in_vector)
        return WordLoad(buffer.name, first, vectors * words_of_vector, None, int(step), skip + back)

    def of_output(self, layout: OutputLayout, buffer: Buffer) -> int:
        """Words of one chunk of an output, 0 if it is not stored in words."""
        tiling = self._tiling
        if not buffer.aligned or tiling.chunk not in layout.variables:
            return 0
        words = words_of(buffer.dtype, tiling.elements)
        step = min(words * WORD, VECTOR)
        bits = ELEMENT[buffer.dtype][1]
        for name, (_, stride) in zip(layout.variables, layout.dims):
            assert isinstance(stride, int)
            if not words or (stride != 1 if name == tiling.chunk else stride * bits % step):
                return 0
        return words if layout.offset * bits % step == 0 else 0
