"""The Vars of a tiled program: which loops a Func has, and where a thread's part of a line lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halide_backend.codegen.axes import Axes, inner_first, outer_first, var
from halide_backend.codegen.index_text import divided_texts, index_text
from halide_backend.errors import Unsupported
from halide_backend.program.extents import ceil_div, is_multiple, product
from halide_backend.program.loop_program import Extent, LoopProgram
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.stage import Loop, LoopKind
from halide_backend.schedule.tiling import ROUND, STEP, THREAD, Tiling, TilingKind

#: The Var of a warp's number if warps of a group have parts of the line, of a word of memory, and the loop of a
#: kernel whose outputs have none.
WARP_NUMBER, WORD, SINGLE = "w", "k", "z"

#: The number of a thread's chunk in a line that its group holds, and the same clamped to the line.
CHUNK, INSIDE = "c", "ci"


class TiledAxes(Axes):
    """The axes of `program` as `tiling` cuts them."""

    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        super().__init__(program)
        self.tiling = tiling
        self._sizes = {size.value: size.name for size in program.sizes}

    def definitions(self) -> list[str]:
        """Statements that define a Python variable for every axis: a Var, or an expression over several."""
        tiling = self.tiling
        lines = [var(THREAD)] if tiling.shares_lines else []
        places: dict[str, str] = {}
        if tiling.kind is TilingKind.REGISTERS:
            lines += [var(STEP), *(var(loop.name) for loop in self._warps())]
        if tiling.row:
            *rows, (number, _) = self._coordinates()
            places = {**unflatten(STEP, rows), number: THREAD}
            if self.in_row:
                places[number] = f"hl.min({THREAD}, {tiling.row - 1})"
        elif tiling.kind is TilingKind.REGISTERS:
            step = f"({WARP_NUMBER}*{tiling.steps} + {STEP})" if tiling.warps > 1 else STEP
            lines.append(f"{CHUNK} = {step}*{tiling.threads} + {THREAD}")
            places = unflatten(CHUNK, self._coordinates())
            if tiling.ragged:
                # Beyond the line's end the last chunk is read again; nothing of it is used.
                lines.append(f"{INSIDE} = hl.min({CHUNK}, {index_text(self.line_chunks - 1)})")
                places = unflatten(INSIDE, self._coordinates())
        for name in outer_first(self.extents):
            if tiling.kind is TilingKind.SCANNED_COLUMNS and name in tiling.inner:
                lines += self._scanned(name)
                continue
            number = f"{name}_c" if name in tiling.cuts else name
            if self.has_tail(name):
                # Beyond the end the last one is taken again; nothing of it is used.
                lines += [var(f"{name}_p"), f"{number} = hl.min({name}_p, {index_text(self.chunks(name) - 1)})"]
            else:
                lines.append(f"{number} = {places[number]}" if number in places else var(number))
            if name in tiling.cuts:
                lines += [var(f"{name}_e"), f"{name} = {name}_c*{tiling.cuts[name]} + {name}_e"]
        return lines

    def _scanned(self, name: str) -> list[str]:
        """Statements that define the scanned axis: rounds of the threads of a column, adjacent points for each."""
        tiling = self.tiling
        lines = [var(loop.name) for loop in self._column()]
        place = f"({ROUND}*{tiling.threads} + {THREAD})*{tiling.lines} + {STEP}"
        if not self.has_tail(name):
            return [*lines, f"{name} = {place}"]
        # Beyond the end the last point is scanned again, which changes nothing before it.
        return [*lines, f"{name}_p = {place}", f"{name} = hl.min({name}_p, {index_text(self.extents[name] - 1)})"]

    def _column(self) -> list[Loop]:
        """The loops along the scanned axis of columns."""
        tiling = self.tiling
        (name,) = tiling.inner
        rounds = self.rounds
        fixed = isinstance(rounds, int)
        typical = rounds if fixed else ceil_div(self.hints[name], tiling.round_points)
        return [
            Loop(STEP, tiling.lines, STEP, kind=LoopKind.STEP),
            self.thread,
            Loop(ROUND, int(typical), ROUND, fixed, LoopKind.ROUND),
        ]

    @property
    def rounds(self) -> Extent:
        """Rounds in which a block scans its columns."""
        (name,) = self.tiling.inner
        return ceil_div(self.extents[name], self.tiling.round_points)

    def _coordinates(self) -> list[tuple[str, Extent]]:
        """The (name, extent) pairs of a chunk's place in the line, outermost first."""
        return [
            (f"{name}_c", self.chunks(name)) if name == self.tiling.chunk else (name, self.extents[name])
            for name in self.tiling.inner
        ]

    @property
    def line_chunks(self) -> Extent:
        """Chunks of a line, which are divided among the threads of its group."""
        return product(extent for _, extent in self._coordinates()) if self.tiling.computed else self.tiling.chunks

    @property
    def in_row(self) -> str:
        """The condition under which a thread has a chunk of a row, "" if all have."""
        tiling = self.tiling
        return f"{THREAD} < {tiling.row}" if 0 < tiling.row < tiling.threads else ""

    @property
    def line_steps(self) -> Extent:
        """Iterations of one thread of a group; a computed number is a multiple of the unroll factor."""
        if not self.tiling.computed:
            return self.tiling.steps
        return ceil_div(self.line_chunks, self.tiling.threads * self.tiling.unroll) * self.tiling.unroll

    def chunks(self, name: str) -> Extent:
        """Steps along the axis `name`: chunks if it is cut into such, of which the last may be short."""
        return ceil_div(self.extents[name], self.tiling.cuts.get(name, 1))

    def has_tail(self, name: str) -> bool:
        """Whether whole tiles, warps of short lines, or blocks of columns, go beyond the end of the axis `name`."""
        return not is_multiple(self.chunks(name), self._tile_side(name))

    def _tile_side(self, name: str) -> int:
        """Steps along the axis `name` that belong to a tile, a warp of lines or a block's columns; 1 if none do."""
        tiling = self.tiling
        if tiling.kind is TilingKind.REGISTERS and (name,) == (
            (tiling.adjacent,) if tiling.adjacent else tiling.outer[-1:]
        ):
            return tiling.side or 1
        if tiling.kind is TilingKind.COLUMNS:
            return tiling.side if name == tiling.across else 1
        if tiling.kind is TilingKind.SCANNED_COLUMNS:
            return tiling.side if name == tiling.chunk else tiling.round_points if name in tiling.inner else 1
        if tiling.kind is not TilingKind.SHARED_TRANSPOSE or name not in tiling.inner:
            return 1
        return tiling.side if name == tiling.inner[1] else tiling.lines

    def _steps(self, name: str, extent: Extent) -> Extent:
        """Steps along the axis `name`, had it `extent`, with those beyond its end up to which the last tile goes."""
        side = self._tile_side(name)
        return ceil_div(ceil_div(extent, self.tiling.cuts.get(name, 1)), side) * side

    def loop(self, name: str, axis: str) -> Loop:
        """The loop Var `name` that counts the steps along `axis`."""
        steps = self._steps(axis, self.extents[axis])
        if isinstance(steps, int):
            return Loop(name, steps, axis)
        typical = self._steps(axis, self.hints[axis])
        assert isinstance(typical, int)
        return Loop(name, typical, axis, fixed=False)

    def loops(self, axes: Iterable[str], *, without: str = "", group: bool = False) -> list[Loop]:
        """The Vars of a Func over program axes, innermost first, but not that of the elements of axis `without`.

        With `group` the value also depends on which thread of the group that holds its line looks at it.
        """
        tiling = self.tiling
        names = inner_first(axes)
        # Words are made of the elements along the first of them.
        cut = sorted((n for n in names if n in tiling.cuts and n != without), key=lambda name: name != tiling.chunk)
        found = [Loop(f"{name}_e", tiling.cuts[name], name, kind=LoopKind.ELEMENT) for name in cut]
        held = tiling.inner if tiling.kind in (TilingKind.REGISTERS, TilingKind.SCANNED_COLUMNS) else ()
        if tiling.kind is TilingKind.SCANNED_COLUMNS and not set(names).isdisjoint(held):
            found += self._column()
        elif not set(names).isdisjoint(held):
            step = Loop(STEP, tiling.steps, STEP, not tiling.computed, LoopKind.STEP)
            found += [self.thread, step, *self._warps()]
        elif group and held:
            found.append(self.thread)
        found += [self.loop(self._number(name), name) for name in names if name not in held]
        return found

    def _number(self, name: str) -> str:
        """The Var that counts the steps along the axis `name`."""
        if self.has_tail(name):
            return f"{name}_p"
        return f"{name}_c" if name in self.tiling.cuts else name

    @property
    def thread(self) -> Loop:
        """The loop over the threads of a group."""
        return Loop(THREAD, self.tiling.threads, THREAD, kind=LoopKind.THREAD)

    def _warps(self) -> list[Loop]:
        """The loop over the warps of a group, if each has a contiguous part of the line."""
        warps = Loop(WARP_NUMBER, self.tiling.warps, WARP_NUMBER, kind=LoopKind.WARP)
        return [warps] if self.tiling.warps > 1 else []

    def thread_coordinates(self, step: str, element: str) -> tuple[list[str], dict[str, str]]:
        """Where element `element` of the chunk lies that thread `t` of a group has in its iteration `step`.

        Returns statements and, for every Var of the line, its text. Beyond the line's end the last chunk is taken, and
        `<step>_c` tells; of a computed number of chunks the steps of RDom `<step>` end there.
        """
        tiling = self.tiling
        region = step.partition("[")[0]
        number = f"{region}_c"
        lines = [f"{number} = {step}*{tiling.threads} + {THREAD}"]
        if tiling.kind is TilingKind.REGISTERS:
            return lines if tiling.ragged else [], {f"{tiling.chunk}_e": element, STEP: step}
        inside = number
        if tiling.computed:
            lines.append(f"{region}.where(hl.likely({number} < {index_text(self.line_chunks)}))")
        elif tiling.ragged:
            inside = f"{number}i"
            lines.append(f"{inside} = hl.min({number}, {tiling.chunks - 1})")
        own = {f"{tiling.chunk}_e": element} if tiling.chunk in tiling.inner else {}
        return lines, {**own, **unflatten(inside, self._coordinates(), read=True)}

    def output(self, layout: OutputLayout, *, without: str) -> tuple[list[Loop], list[tuple[Extent, Extent]]]:
        """The Vars of an output and, one for each, its (extent, stride) in elements; `without` as of `loops`."""
        tiling = self.tiling
        found: list[Loop] = []
        dims: list[tuple[Extent, Extent]] = []
        held = tiling.inner if tiling.kind is TilingKind.REGISTERS else ()
        strides = {name: stride for name, (_, stride) in zip(layout.variables, layout.dims)}
        for name, stride in strides.items():
            if name in held[:-1]:
                continue  # The line is contiguous in memory, or a thread's steps are its rows (see tiling.py).
            if tiling.alternate and name == tiling.inner[0]:
                lines = self.alternate_lines()
                found += lines
                dims += [(loop.extent, stride * step) for loop, step in zip(lines, (1, 2, 4))]
                continue
            for loop in self.loops([name], without=without):
                found.append(loop)
                row = tiling.row and loop.kind is LoopKind.STEP
                between = strides[held[-2]] if row else stride * self._elements_of(loop)
                dims.append((self._extent_of(loop), between))
        if tiling.shares_lines and not set(tiling.inner) & set(layout.variables):
            # All threads of the group write the one value.
            found.insert(0, self.thread)
            dims.insert(0, (tiling.threads, 0))
        if not any(loop.axis in tiling.outer for loop in found):
            found.append(Loop(SINGLE, 1, SINGLE, kind=LoopKind.SINGLE))
            dims.append((1, 1))
        return found, dims

    def alternate_lines(self) -> list[Loop]:
        """The loops over what is stored of lines that alternate: two threads, their two lines, pairs of threads."""
        name = self.tiling.inner[0]
        extent = self.extents[name]
        assert isinstance(extent, int)
        own = Loop(f"{name}_e", 2, name, kind=LoopKind.ELEMENT)
        return [Loop(f"{name}_p", 2, name), own, Loop(f"{name}_q", extent // 4, name)]

    def dims_text(self, dims: Sequence[tuple[Extent, Extent]]) -> str:
        """The (extent, stride) pairs of an output as a Python list.

        Raises:
            Unsupported: a stride for which the kernel has no argument; Halide knows no other that is not a number.
        """
        return f"[{', '.join(f'({index_text(extent)}, {self._stride(stride)})' for extent, stride in dims)}]"

    def _stride(self, stride: Extent) -> str:
        if not isinstance(stride, int) and stride not in self._sizes:
            raise Unsupported(
                "dynamic-output-stride", f"an output of stride {stride}, for which the kernel has no argument"
            )
        return str(stride) if isinstance(stride, int) else self._sizes[stride]

    def _extent_of(self, loop: Loop) -> Extent:
        if loop.kind is LoopKind.ROUND:
            return self.rounds
        if loop.kind is LoopKind.STEP and not loop.fixed:
            return self.line_steps
        return loop.extent if loop.fixed else self._steps(loop.axis, self.extents[loop.axis])

    def _elements_of(self, loop: Loop) -> int:
        """Elements between two points of a loop along a cut axis."""
        if loop.axis in self.tiling.cuts and loop.name == self._number(loop.axis):
            return self.tiling.cuts[loop.axis]
        tiling = self.tiling
        if tiling.kind is TilingKind.SCANNED_COLUMNS:
            return {THREAD: tiling.lines, ROUND: tiling.round_points}.get(loop.name, 1)
        chunks = {THREAD: 1, STEP: tiling.threads, WARP_NUMBER: tiling.threads * tiling.steps}
        return tiling.elements * chunks[loop.name] if loop.name in chunks else 1


def unflatten(number: str, coordinates: Sequence[tuple[str, Extent]], *, read: bool = False) -> dict[str, str]:
    """Texts of the coordinates behind a flat number; `coordinates` are (name, extent) pairs, outermost first.

    Of a Func that is `read` at a remainder Halide computes the whole axis, in local memory; at a difference, one point,
    and by its bounds, of which nothing is left in the kernel, no more than the axis for the threads of a block.
    """
    places: dict[str, str] = {}
    for name, extent in reversed(coordinates):
        quotient, remainder = divided_texts(number, extent)
        if read and isinstance(extent, int):
            remainder = f"hl.clamp({number} - {quotient}*{extent}, 0, {extent - 1})"
        places[name] = number if name == coordinates[0][0] else remainder
        number = quotient
    return places
