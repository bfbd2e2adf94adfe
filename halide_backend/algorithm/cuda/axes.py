"""The Vars of a tiled program: which loops a Func has, and where a thread's share of a row lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halide_backend.algorithm.loop_program import LoopProgram
from halide_backend.algorithm.placement import OutputLayout
from halide_backend.schedule.stage import Loop
from halide_backend.schedule.tiling import Team, Tiling

#: The Var of a thread's number in its team or, if warps of a team have stretches of the row, in its warp; of that warp;
#: of one of its steps, of a word of memory, and the loop of a kernel whose outputs have none.
THREAD, WARP_NUMBER, STEP, WORD, SINGLE = "t", "w", "u", "k", "z"

#: The number of a thread's chunk in a row that its team holds, and the same within the row.
CHUNK, INSIDE = "c", "ci"


class TiledAxes:
    """The axes of `program` as `tiling` cuts them; every extent is known."""

    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self.tiling = tiling
        self.extents = {axis.name: axis.hint for axis in program.axes}

    def definitions(self) -> list[str]:
        """Statements that define a Python variable for every axis: a Var, or an expression over several."""
        tiling = self.tiling
        lines = [var(THREAD)] if tiling.team in (Team.REGISTERS, Team.BLOCK) else []
        places: dict[str, str] = {}
        if tiling.team is Team.REGISTERS:
            lines += [var(STEP), *(var(loop.name) for loop in self._warps())]
            step = f"({WARP_NUMBER}*{tiling.steps} + {STEP})" if tiling.warps > 1 else STEP
            lines.append(f"{CHUNK} = {step}*{tiling.threads} + {THREAD}")
            places = digits(CHUNK, self._coordinates())
            if tiling.ragged:
                # Beyond the row's end the last chunk is read again; nothing of it is used.
                lines.append(f"{INSIDE} = hl.min({CHUNK}, {tiling.chunks - 1})")
                places = digits(INSIDE, self._coordinates())
        for name in inner_first(self.extents)[::-1]:
            number = f"{name}_c" if name in tiling.cuts else name
            if self.exceeds(name):
                # Beyond the end the last one is taken again; nothing of it is used.
                lines += [var(f"{name}_p"), f"{number} = hl.min({name}_p, {self.chunks(name) - 1})"]
            else:
                lines.append(f"{number} = {places[number]}" if number in places else var(number))
            if name in tiling.cuts:
                lines += [var(f"{name}_e"), f"{name} = {name}_c*{tiling.cuts[name]} + {name}_e"]
        return lines

    def _coordinates(self) -> list[tuple[str, int]]:
        """The (name, extent) pairs of a chunk's place in the row, outermost first."""
        return [
            (f"{name}_c", self.chunks(name)) if name == self.tiling.chunk else (name, self.extents[name])
            for name in self.tiling.inner
        ]

    def chunks(self, name: str) -> int:
        """Steps along the axis `name`: chunks if it is cut into such, of which the last may be short."""
        return -(-self.extents[name] // self.tiling.cuts.get(name, 1))

    def exceeds(self, name: str) -> bool:
        """Whether whole squares go beyond the end of the axis `name`."""
        return self._steps(name) > self.chunks(name)

    def _steps(self, name: str) -> int:
        """Steps along the axis `name` with those beyond its end, up to which a square goes."""
        tiling = self.tiling
        if tiling.team is not Team.TILE or name not in tiling.inner:
            return self.chunks(name)
        square = tiling.side if name == tiling.inner[1] else tiling.lines
        return -(-self.chunks(name) // square) * square

    def loops(self, axes: Iterable[str], *, without: str = "", team: bool = False) -> list[Loop]:
        """The Vars of a Func over program axes, innermost first, but not that of the elements of axis `without`.

        With `team` the value also depends on which thread of a team that holds its row looks at it.
        """
        tiling = self.tiling
        names = inner_first(axes)
        cut = [name for name in names if name in tiling.cuts and name != without]
        found = [Loop(f"{name}_e", tiling.cuts[name], name) for name in cut]
        held = tiling.inner if tiling.team is Team.REGISTERS else ()
        if not set(names).isdisjoint(held):
            found += [self.thread, Loop(STEP, tiling.steps, STEP), *self._warps()]
        elif team and held:
            found.append(self.thread)
        found += [Loop(self._number(name), self._steps(name), name) for name in names if name not in held]
        return found

    def _number(self, name: str) -> str:
        """The Var that counts the steps along the axis `name`."""
        if self.exceeds(name):
            return f"{name}_p"
        return f"{name}_c" if name in self.tiling.cuts else name

    @property
    def thread(self) -> Loop:
        """The loop over the threads of a team."""
        return Loop(THREAD, self.tiling.threads, THREAD)

    def _warps(self) -> list[Loop]:
        """The loop over the warps of a team, if each has a stretch of the row."""
        return [Loop(WARP_NUMBER, self.tiling.warps, WARP_NUMBER)] if self.tiling.warps > 1 else []

    def share(self, step: str, element: str) -> tuple[list[str], dict[str, str]]:
        """Where element `element` of the chunk lies that thread `t` of a team has in its step `step`.

        Returns statements and, for every Var of the row, its text. Beyond the row's end the last chunk is taken, and
        `<step>_c` tells.
        """
        tiling = self.tiling
        number = f"{step.partition('[')[0]}_c"
        lines = [f"{number} = {step}*{tiling.threads} + {THREAD}"]
        if tiling.team is Team.REGISTERS:
            return lines if tiling.ragged else [], {f"{tiling.chunk}_e": element, STEP: step}
        inside = number
        if tiling.ragged:
            inside = f"{number}i"
            lines.append(f"{inside} = hl.min({number}, {tiling.chunks - 1})")
        return lines, {f"{tiling.chunk}_e": element, **digits(inside, self._coordinates())}

    def output(self, layout: OutputLayout, *, without: str) -> tuple[list[Loop], list[tuple[int, int]]]:
        """The Vars of an output and, one for each, its (extent, stride) in elements; `without` as of `loops`."""
        tiling = self.tiling
        found: list[Loop] = []
        dims: list[tuple[int, int]] = []
        held = tiling.inner if tiling.team is Team.REGISTERS else ()
        for name, (_, stride) in zip(layout.variables, layout.dims):
            assert isinstance(stride, int)
            if name in held and name != tiling.chunk:
                continue  # The row is one line of memory (see tiling.py).
            for loop in self.loops([name], without=without):
                found.append(loop)
                dims.append((loop.extent, stride * self._elements_of(loop)))
        if tiling.team in (Team.REGISTERS, Team.BLOCK) and not set(tiling.inner) & set(layout.variables):
            # All threads of the team write the one value.
            found.insert(0, self.thread)
            dims.insert(0, (tiling.threads, 0))
        if not any(loop.axis in tiling.row for loop in found):
            found.append(Loop(SINGLE, 1, SINGLE))
            dims.append((1, 1))
        return found, dims

    def _elements_of(self, loop: Loop) -> int:
        """Elements between two points of a loop along a cut axis."""
        if loop.axis in self.tiling.cuts and loop.name == self._number(loop.axis):
            return self.tiling.cuts[loop.axis]
        tiling = self.tiling
        chunks = {THREAD: 1, STEP: tiling.threads, WARP_NUMBER: tiling.threads * tiling.steps}
        return tiling.elements * chunks[loop.name] if loop.name in chunks else 1


def var(name: str) -> str:
    """The statement that defines a Var."""
    return f'{name} = hl.Var("{name}")'


def inner_first(axes: Iterable[str]) -> list[str]:
    """Axis names, innermost first: they are numbered from the outermost on."""
    return sorted(set(axes), key=lambda name: int(name[1:]), reverse=True)


def digits(number: str, coordinates: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Texts of the coordinates behind a flat number; `coordinates` are (name, extent) pairs, outermost first."""
    places: dict[str, str] = {}
    divisor = 1
    for name, extent in reversed(coordinates):
        quotient = number if divisor == 1 else f"({number} // {divisor})"
        places[name] = quotient if name == coordinates[0][0] else f"{quotient} % {extent}"
        divisor *= extent
    return places
