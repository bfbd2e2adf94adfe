"""A reduction along memory: many accumulators side by side, then their sum in a tree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Parallel,
    Reorder,
    ReorderStorage,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
)

VECTORS = Knob("vector_reduction.accumulators", (1, 2, 4, 8), "vectors of accumulators side by side")
UNROLL = Knob("vector_reduction.unroll", (False, True), "add up a short row without a loop")
CHUNK = Knob("vector_reduction.partial", (4_096, 16_384, 65_536), "elements of one partial result, which threads share")

#: Operators that round: what they add up is cut into pieces.
ROUNDS = frozenset({"sum", "prod"})

#: Terms of one accumulator in a partial result, as many as in a chunk of 64 accumulators.
TERMS = 256

#: Terms that an accumulator takes before a second one takes its sum (pairwise summation in blocks: Higham, Accuracy and
#: Stability of Numerical Algorithms, 4.2). A sum of n equal terms errs by up to n/12 units in the last place; eager's
#: stays below 3.
RUNNING_TERMS = 32

#: Steps of a loop from which a vector, if only a part of a register, takes them at once.
_SHORTEST = 4

#: Part of a row of computed length that accumulators may be masked for: its last step runs all of them, each behind a
#: guard.
_MASKED = 8

#: Vectors of several rows, each of a few, that are added up without loops.
_FEW = 16

#: Rows whose last lanes are added up together, in a vector of results: with as many lanes left of each they are one
#: register, or half of one.
_TOGETHER = 4

#: Bytes of a row along memory up to which they are. Each load instruction is one for as many rows, and steps over them:
#: of longer rows it has too few steps in a page for a processor to fetch ahead.
_TOGETHER_BYTES = 256

#: Lanes that are added up one after another: the last step of a tree.
_LEAST = 4

#: Operators for which Halide has a horizontal vector instruction; the floating-point ones would run in strict order.
#: Not where the lanes may be more than the steps of a loop: with a guard it is a loop over the lanes.
_HORIZONTAL = frozenset({"min", "max"})


def reduce_in_lanes(
    stage: Stage,
    *,
    along: str,
    lanes: int,
    short: bool,
    at: tuple[str, str] | None,
    row: str,
    several: bool,
    parallel: bool,
    choices: Choices,
    bounded: Callable[[Stage, Iterable[str]], list[Step]],
    together: bool = True,
) -> list[Step]:
    """Steps that compute reduction `stage` in vectors of `lanes` along axis `along`, without a loop if it is `short`.

    `at` is the (consumer, variable) inside which it is computed, None for before everything else; `row` is the loop of
    the reduction inside which each row is reduced by itself, if there are several of them there, whose last lanes are
    added up `together` where rows lie close; `several` says that
    there is more than one result of it there; `parallel` shares the partial results of a long reduction among threads.
    `bounded` gives the steps for its Funcs where they are computed for a known number of rows (`Nest.bounded`).
    """
    found = _Lanes(stage, along, lanes, short, at, row, together, parallel, choices)
    return [*found.steps, *(found.storage if several else []), *bounded(stage, found.funcs)]


def lies_close(loop: Loop, bits: int) -> bool:
    """Whether rows of elements of `bits` along `loop` are short enough for some to be added up together."""
    return loop.fixed and loop.extent * bits <= 8 * _TOGETHER_BYTES


def is_horizontal(operators: Sequence[str], loop: Loop) -> bool:
    """Whether one instruction makes a value of all lanes along `loop`."""
    return loop.fixed and len(operators) == 1 and operators[0] in _HORIZONTAL


class _Lanes:
    def __init__(
        self,
        stage: Stage,
        along: str,
        lanes: int,
        short: bool,
        at: tuple[str, str] | None,
        row: str,
        together: bool,
        parallel: bool,
        choices: Choices,
    ) -> None:
        self.steps: list[Step] = []
        self.at = at
        self.short = short
        self.lanes = lanes
        self._choices, self._name, self._row, self._close = choices, stage.name, row, together
        self.operators, self._bits = stage.operators, stage.bits
        self._dimensions = {stage.name: tuple(loop.name for loop in stage.loops)}
        self._place(stage.name)
        if row:
            self.at = (stage.name, row)
        loop = next(loop for loop in stage.updates if loop.axis == along)
        if loop.extent < _SHORTEST:
            # A short loop has no room for accumulators, and one accumulator alone rounds as often as there are terms.
            loop = max(stage.updates, key=lambda other: other.extent)
        others = [other for other in stage.updates if other is not loop]
        if self.operators == ("xor_sum",):
            return
        func, loop, others = self._chunks(stage.name, loop, others, parallel)
        self._accumulate(func, loop, others)

    @property
    def funcs(self) -> list[str]:
        """The Funcs that make up the reduction."""
        return list(self._dimensions)

    @property
    def storage(self) -> list[Step]:
        """Steps that put the lanes of a vector side by side; Halide stores a dimension that RFactor adds outermost."""
        return [
            ReorderStorage(func, (lane, *(other for other in dimensions if other != lane)))
            for func, dimensions in self._dimensions.items()
            for lane in [next((name for name in dimensions if name.startswith("lane")), "")]
            if lane and len(dimensions) > 1
        ]

    def _factor(self, func: str, rvar: str, var: str, intermediate: str) -> Step:
        """The step that makes `intermediate` of `func`, with a result for each step of `rvar`."""
        self._dimensions[intermediate] = (*self._dimensions[func], var)
        return RFactor(func, rvar, var, intermediate)

    def _place(self, func: str) -> None:
        self.steps.append(ComputeAt(func, *self.at) if self.at else ComputeRoot(func))

    def _chunks(self, func: str, loop: Loop, others: list[Loop], parallel: bool) -> tuple[str, Loop, list[Loop]]:
        """Split a long reduction into partial results; returns the rest, a reduction inside one of them."""
        partial = f"{func}_chunks"
        terms = -(-loop.extent // self._width(loop)) * math.prod(other.extent for other in others[:-1])
        chunk = self._choices.number(CHUNK, 16_384, "64 KiB of float32 fit into the L2 cache of a core", at=self._name)
        if loop.extent >= 2 * chunk:
            chunks, loop = self._split(func, loop, _even(loop, chunk, self._width(loop)))
        elif others and terms * others[-1].extent >= 2 * TERMS and others[-1].extent > 1:
            chunks, rows = self._split(func, others[-1], max(1, TERMS // terms))
            others = [*others[:-1], rows]
        else:
            return func, loop, others
        self.steps.append(self._factor(func, chunks.name, "chunk", partial))
        if chunks.extent >= self.lanes:
            # The parts are themselves many: they are added up in lanes as well.
            self._accumulate(func, chunks, [])
        else:
            self._cascade(func, 1, [chunks])
        self._place(partial)
        if parallel:
            self.steps += [Parallel(partial, "chunk", update=0)]
        self.at = (partial, "chunk")
        return partial, loop, others

    def _split(self, func: str, loop: Loop, size: int) -> tuple[Loop, Loop]:
        """The loop over pieces of `size` iterations of `loop`, and the loop inside a piece."""
        outer = Loop(f"{loop.name}_c", -(-loop.extent // size), loop.axis, loop.fixed)
        inner = Loop(f"{loop.name}_i", size, loop.axis, loop.fixed)
        self.steps.append(Split(func, loop.name, outer.name, inner.name, size, update=0))
        return outer, inner

    def _width(self, loop: Loop) -> int:
        """Accumulators side by side along `loop`."""
        if loop.extent < _SHORTEST:
            return 1
        if loop.extent < self.lanes:
            return 1 << (loop.extent.bit_length() - 1)
        most, why = 4, "hides the latency of an addition: 4 cycles, 1 or 2 issued in each"
        if not loop.fixed and -loop.extent % (most * self.lanes) > loop.extent // _MASKED:
            most, why = 1, "more would be masked in a good part of the last step"
        vectors = self._choices.number(VECTORS, most, why, at=self._name)
        return self.lanes * vectors if loop.extent >= self.lanes * vectors * 2 else self.lanes

    def _accumulate(self, func: str, loop: Loop, others: list[Loop]) -> None:
        """Vectors of accumulators run along `loop`, and are combined."""
        width = self._width(loop)
        if width == 1:
            self._cascade(func, width, [loop, *others])
            return
        outer, inner = f"{loop.name}_o", f"{loop.name}_l"
        lanes = f"{func}_lanes"
        self.steps += [
            Split(func, loop.name, outer, inner, width, update=0),
            self._factor(func, inner, "lane", lanes),
        ]
        horizontal = is_horizontal(self.operators, loop)
        grouped = self._close and bool(self._row) and width > _LEAST and lies_close(loop, self._bits) and not horizontal
        if not grouped:
            self._place(lanes)
        steps = Loop(outer, -(-loop.extent // width), loop.axis, loop.fixed)
        self._cascade(lanes, width, [steps, *others])
        serial = [each for each in (steps, *others) if each.extent > 1]
        count = math.prod(each.extent for each in serial)
        few = count <= _FEW or not others
        if serial and (few if self.short else grouped and count * width <= _FEW * self.lanes):
            why = "a short row stays in registers" if not others else "a loop over a few vectors costs as much as these"
            if self._choices.flag(UNROLL, True, why, at=self._name):
                self.steps += [Unroll(lanes, each.name, update=0) for each in serial]
        if horizontal:
            self.steps += [Atomic(func), Vectorize(func, inner, update=0)]
        else:
            self._combine(func, inner, width, grouped)

    def _cascade(self, func: str, width: int, serial: list[Loop]) -> None:
        """`width` accumulators run along the loops `serial`, innermost first; long ones get further accumulators, which
        take what those add up. A loop of computed length is cut as a long one, which it may be in another call."""
        terms = math.prod(loop.extent for loop in serial)
        longest = max(serial, key=lambda loop: loop.extent)
        long = terms >= 2 * RUNNING_TERMS or not longest.fixed
        if long and not ROUNDS.isdisjoint(self.operators):
            pieces, piece = self._split(func, longest, max(1, RUNNING_TERMS * longest.extent // terms))
            # However long the loop is, a piece of it has so many steps.
            piece = replace(piece, fixed=True)
            parts = f"{func}_parts"
            self.steps += [
                self._factor(func, pieces.name, f"part{parts.count('_parts')}", parts),
                ComputeAt(parts, func, pieces.name),
            ]
            self._cascade(parts, width, [piece if loop is longest else loop for loop in serial])
            serial = [pieces]
        if width > 1:
            self._vectors(func, "lane", width, tuple(loop.name for loop in serial))

    def _vectors(self, func: str, var: str, width: int, serial: tuple[str, ...]) -> None:
        """Both definitions of `func` in vectors along `var`, the update's loops `serial` around them."""
        several = width > self.lanes
        for update in (None, 0):
            if several:
                self.steps += [
                    Split(func, var, f"{var}_o", f"{var}_v", self.lanes, update),
                    Vectorize(func, f"{var}_v", update),
                    Unroll(func, f"{var}_o", update),
                ]
                inner: tuple[str, ...] = (f"{var}_v", f"{var}_o")
            else:
                self.steps.append(Vectorize(func, var, update))
                inner = (var,)
            if update is not None:
                self.steps.append(Reorder(func, (*inner, *serial), update=0))

    def _combine(self, func: str, rvar: str, width: int, grouped: bool) -> None:
        """The accumulators of `width` lanes become one value, in steps of a tree; if they are `grouped`, the last
        step is one for several rows."""
        number, parts = 0, [f"{func}_lanes"]
        while width > _LEAST:
            narrow = self.lanes if width > self.lanes else width // _LEAST
            number += 1
            outer, inner, lane = f"{rvar}{number}o", f"{rvar}{number}", f"lane{number}"
            part = f"{func}_tree{number}"
            self.steps += [
                Split(func, rvar, outer, inner, narrow, update=0),
                self._factor(func, inner, lane, part),
            ]
            parts.append(part)
            if grouped:
                self.steps.append(Reorder(part, (lane, self._row)))
            else:
                self._place(part)
            self.steps += [
                Vectorize(part, lane),
                Vectorize(part, lane, update=0),
                Reorder(part, (lane, outer, *([self._row] if grouped else [])), update=0),
                Unroll(part, outer, update=0),
            ]
            rvar, width = inner, narrow
        self.steps.append(Unroll(func, rvar, update=0))
        if grouped:
            self._together(func, rvar, parts)

    def _together(self, func: str, rvar: str, parts: list[str]) -> None:
        """The few lanes along `rvar` that are left of each row are added up for some rows at a time, as a vector of
        results: one by one, they take as many instructions as all steps of the tree. `parts` are the Funcs of these."""
        *before, last = parts
        outer, inner, single = (f"{self._row}_{part}" for part in ("o", "v", "u"))
        for update, width in ((None, self.lanes), (0, _TOGETHER)):
            self.steps += [
                Split(func, self._row, outer, inner, width, update),
                Vectorize(func, inner, update),
                Split(last, self._row, outer, single, _TOGETHER, update),
                Unroll(last, single, update),
            ]
        self.steps += [Reorder(func, (inner, rvar, outer), update=0), ComputeAt(last, func, outer)]
        self.steps += [ComputeAt(part, last, single) for part in before]


def _even(loop: Loop, size: int, unit: int) -> int:
    """The size of the pieces, at most `size`, that a loop is cut into. Of a computed length they are multiples of
    `unit`, the last one about as long as the others: a piece runs all of its steps, those behind the end masked."""
    if loop.fixed:
        return size
    pieces = -(-loop.extent // size)
    return min(size, -(-loop.extent // (pieces * unit)) * unit)
