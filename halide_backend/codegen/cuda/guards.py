"""Stores that not every thread makes, or not all of: regions are whole boxes, and may go beyond what is there."""

from __future__ import annotations

from halide_backend.codegen.cuda.axes import CHUNK, WORD, TiledAxes
from halide_backend.codegen.index_text import index_text
from halide_backend.program.access import VECTOR
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.tiling import TilingKind


class Guards:
    """Which stores of a program cut into `axes` are partial, and the text of what they store."""

    def __init__(self, axes: TiledAxes) -> None:
        self._axes = axes
        self._tiling = axes.tiling

    def partial(self, layout: OutputLayout) -> bool:
        """Whether some threads store less than others."""
        return bool(self._tiling.short or self._inside(layout))

    @property
    def beyond(self) -> tuple[str, ...]:
        """The axes beyond whose ends some threads are."""
        names = (*self._tiling.outer, *self._tiling.inner)
        return tuple(dict.fromkeys(name for name in names if self._axes.has_tail(name)))

    def _inside(self, layout: OutputLayout) -> str:
        """The condition under which a thread has a part of the line, or of the tile, if some have not."""
        tiling = self._tiling
        found = [f"({name}_p < {index_text(self._axes.chunks(name))})" for name in self.beyond]
        if tiling.kind is TilingKind.REGISTERS and tiling.inner[-1] in layout.variables:
            ragged = f"{CHUNK} < {index_text(self._axes.line_chunks)}" if tiling.ragged else ""
            if inside := ragged or self._axes.in_row:
                found.append(f"({inside})" if found else inside)
        return " & ".join(found)

    def stored(self, text: str, layout: OutputLayout, bits: int) -> str:
        """The text of what is stored, a word or an element of `bits` bits, marked where not every thread stores it."""
        tiling = self._tiling
        if inside := self._inside(layout):
            return f"memory.predicated({text}, {inside})"
        if not tiling.short:
            return text
        number, elements = f"{tiling.chunk}_c", tiling.elements
        last = self._axes.chunks(tiling.chunk) - 1
        rest = self._axes.extents[tiling.chunk] - elements * last
        count = f"hl.select({number} < {index_text(last)}, {elements}, {index_text(rest)})"
        if elements * bits < VECTOR:
            # Each word has a store of its own, and begins after those before it.
            count = f"hl.max({count} - {WORD}*{32 // bits}, 0)"
        return f"memory.partial({text}, {count}, {bits})"
