"""The constants of the argument reduction in PTX are those of the CPU's."""

from __future__ import annotations

from halide_backend.build.ptx.range_reduction import SEGMENTS
from halide_backend.kernel_library.mathematics.angle import _segments


def test_the_segments_are_those_of_the_mathematics() -> None:
    for power, *row in SEGMENTS:
        assert tuple(map(float.fromhex, row)) == _segments(power - 25 if power else 0)
