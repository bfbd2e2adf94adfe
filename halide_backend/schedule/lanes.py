"""A reduction along memory: many accumulators side by side, then their sum in a tree."""

from __future__ import annotations

from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Parallel,
    Reorder,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
)

#: Vectors of accumulators: enough to hide the latency of an addition (4 cycles, 1-2 issued per cycle).
VECTORS = 4

#: Elements of one partial result. A running sum of more terms loses accuracy; partial sums restore it (pairwise
#: summation, Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
CHUNK = 16_384

#: Operators for which Halide has a horizontal vector instruction; the floating-point ones would run in strict order.
_HORIZONTAL = frozenset({"min", "max"})


def reduce_in_lanes(stage: Stage, *, along: str, lanes: int, at: tuple[str, str] | None, parallel: bool) -> list[Step]:
    """Steps that compute reduction `stage` in vectors of `lanes` along axis `along`.

    `at` is the (consumer, variable) inside which it is computed, None for before everything else; `parallel` shares
    the partial results of a long reduction among threads.
    """
    return _Lanes(stage, along, lanes, at, parallel).steps


class _Lanes:
    def __init__(self, stage: Stage, along: str, lanes: int, at: tuple[str, str] | None, parallel: bool) -> None:
        self.steps: list[Step] = []
        self.at = at
        self.lanes = lanes
        self.operator = stage.operator
        self._place(stage.name)
        loop = next(loop for loop in stage.updates if loop.axis == along)
        if loop.extent < lanes:
            # A short loop has no room for accumulators, and one accumulator alone rounds as often as there are terms.
            loop = max(stage.updates, key=lambda other: other.extent)
        others = [other for other in stage.updates if other is not loop]
        if self.operator == "xor_sum":
            return
        func, loop, others = self._chunks(stage.name, loop, others, parallel)
        self._accumulate(func, loop, others)

    def _place(self, func: str) -> None:
        self.steps.append(ComputeAt(func, *self.at) if self.at else ComputeRoot(func))

    def _chunks(self, func: str, loop: Loop, others: list[Loop], parallel: bool) -> tuple[str, Loop, list[Loop]]:
        """Cut a long reduction into partial results; returns what is left to do inside one of them."""
        partial = f"{func}_chunks"
        total = loop.extent
        for other in others:
            total *= other.extent
        if loop.extent >= 2 * CHUNK:
            chunks = Loop(f"{loop.name}_c", -(-loop.extent // CHUNK), loop.axis)
            inner = Loop(f"{loop.name}_i", CHUNK, loop.axis)
            self.steps.append(Split(func, loop.name, chunks.name, inner.name, CHUNK, update=True))
            loop = inner
        elif total >= 2 * CHUNK and others and others[-1].extent > 1:
            chunks, others = others[-1], others[:-1]
        else:
            return func, loop, others
        self.steps.append(RFactor(func, chunks.name, "chunk", partial))
        # The parts are themselves many: they are added up in lanes as well.
        self._accumulate(func, chunks, [])
        self._place(partial)
        if parallel:
            self.steps += [Parallel(partial, "chunk", update=True)]
        self.at = (partial, "chunk")
        return partial, loop, others

    def _accumulate(self, func: str, loop: Loop, others: list[Loop]) -> None:
        """`VECTORS` vectors of accumulators run along `loop`, and are combined."""
        width = self.lanes * VECTORS if loop.extent >= self.lanes * VECTORS * 2 else self.lanes
        if loop.extent < self.lanes:
            return
        outer, inner = f"{loop.name}_o", f"{loop.name}_l"
        lanes = f"{func}_lanes"
        self.steps += [
            Split(func, loop.name, outer, inner, width, update=True),
            RFactor(func, inner, "lane", lanes),
        ]
        self._place(lanes)
        self._vectors(lanes, "lane", width, (outer, *(other.name for other in others)))
        self._combine(func, inner, width)

    def _vectors(self, func: str, var: str, width: int, serial: tuple[str, ...]) -> None:
        """Both definitions of `func` in vectors along `var`, the update's loops `serial` around them."""
        several = width > self.lanes
        for update in (False, True):
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
            if update:
                self.steps.append(Reorder(func, (*inner, *serial), update=True))

    def _combine(self, func: str, rvar: str, width: int) -> None:
        """The accumulators of `width` lanes become one value, in steps of a tree."""
        if self.operator in _HORIZONTAL:
            self.steps += [Atomic(func), Vectorize(func, rvar, update=True)]
            return
        number = 0
        while width > 4:
            narrow = self.lanes if width > self.lanes else width // 4
            number += 1
            outer, inner = f"{rvar}{number}o", f"{rvar}{number}"
            part = f"{func}_tree{number}"
            self.steps += [
                Split(func, rvar, outer, inner, narrow, update=True),
                RFactor(func, inner, f"lane{number}", part),
            ]
            self._place(part)
            self.steps += [
                Vectorize(part, f"lane{number}"),
                Vectorize(part, f"lane{number}", update=True),
                Reorder(part, (f"lane{number}", outer), update=True),
                Unroll(part, outer, update=True),
            ]
            rvar, width = inner, narrow
        self.steps.append(Unroll(func, rvar, update=True))
