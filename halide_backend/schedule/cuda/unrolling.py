"""Unrolled iterations of a CUDA thread, whose loads are in flight at the same time."""

from __future__ import annotations

from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import Split, Step, Unroll


def divisor(loop: Loop, most: int) -> int:
    """The largest number of steps up to `most` that divides `loop`, if it is no less than half of the largest; else
    that with which a thread waits for loads the fewest times, of a computed number, which may be any, a power of two.

    amax over 24 rows of computed number by 16 at once and 8 one by one takes 66 us, Triton 52 (H100).
    """
    largest = min(loop.extent, most)
    if loop.fixed:
        numbers = [d for d in range(largest, largest // 2, -1) if loop.extent % d == 0][:1] or range(largest, 0, -1)
    else:
        numbers = [1 << bit for bit in reversed(range(largest.bit_length()))]
    return min(numbers, key=lambda number: waits(loop.extent, number))


def waits(steps: int, factor: int) -> int:
    """How often a thread waits for loads in so many steps: once for a whole round of `factor`, in which they are in
    flight together, and for each iteration beyond the last round, which has a branch of its own."""
    return steps // factor + steps % factor


def unroll(steps: list[Step], stage: Stage, loop: Loop, count: int) -> None:
    """Unroll a reduction's loop by `count`."""
    if loop.fixed and loop.extent == count:
        steps.append(Unroll(stage.name, loop.name, update=0))
    elif count > 1:
        inner = f"{loop.name}i"
        steps += [
            Split(stage.name, loop.name, f"{loop.name}o", inner, count, update=0),
            Unroll(stage.name, inner, update=0),
        ]
