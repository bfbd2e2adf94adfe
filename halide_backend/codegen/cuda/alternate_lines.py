"""Lines that neighbouring threads swap before they store them, so that these are adjacent in memory."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.cuda.axes import TiledAxes
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.schedule.stage import Loop, Role


def write_alternate_lines(
    builder: KernelBuilder[TiledAxes], name: str, packed: str, loops: Sequence[Loop], body: str, value: str
) -> str:
    """Write Func `packed` over `loops`, the words `body` of two lines of each thread along the axis `name`, which call
    Func `value`; returns the text of what a thread stores.

    A thread has lines 2c and 2c + 1, and a store that leaves out every second one writes half of each sector of memory.
    So of threads c and c + 1, c even, the first one gets lines 2c and 2c + 2, the other one the two in between.
    """
    thread, line = f"{name}_c", f"{name}_e"
    names = [loop.name for loop in loops]
    own, other = f"{packed}_own", f"{packed}_other"
    mine = builder.func(own, Role.PACKED, loops, body, calls=[value])
    first, second = (call_text(own, [str(k) if each == line else each for each in names]) for k in range(2))
    given = f"memory.of_neighbour(hl.select({thread} % 2 == 0, hl.Expr({second}), hl.Expr({first})))"
    got = builder.func(other, Role.PACKED, [loop for loop in loops if loop.name != line], given, calls=[own])
    builder.func(
        packed, Role.PACKED, loops, f"memory.whichever({thread} % 2 == {line}, {mine}, {got})", calls=[own, other]
    )
    return f"hl.Expr({call_text(packed, [f'{name}_q*2 + {name}_p' if each == thread else each for each in names])})"
