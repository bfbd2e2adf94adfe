"""How many registers a thread of a GPU kernel may have."""

from __future__ import annotations

from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.tiling import Tiling, TilingKind

#: Threads of a block of which one more on an SM makes a difference, and the part of its registers with which a kernel
#: still does well (measured on an H200: layer_norm of 8192 x 4096 floats 72.3 us with 40 registers, 70.3 us with 32;
#: softmax of 2048 x 8192 bfloat16 21.8 us and 19.4 us; kernels of smaller blocks are no faster).
_LARGE_BLOCK, _WORTHWHILE = 512, 0.8

#: Registers of threads that share a column, in an unrolled loop: then the loads of a round are in flight together (a
#: mean over 56 x 56 points, as many as data say, of 334 x 32 in channels-last order 51 us on an H100, else 87; two sums
#: over 197 points of 2 x 384 columns, of six operands, 4.1 us on an H200, else 7.4).
_ROOM = 64

#: At least that part of them, if one more block fits on an SM then.
_MORE = "one more block"


LIMIT = Knob(
    "registers.limit", ("auto", _MORE, 32, 64), "registers of a thread: as many as the assembler takes, or fewer"
)


def register_limit(tiling: Tiling, choices: Choices) -> str | float:
    """`REGISTERS` of a kernel's text: "auto" for as many as the assembler takes; a part f < 1 for at least f of them,
    where that makes room for one more block on an SM; a number for no more than so many.

    Raises:
        IllegalPlan: a requested limit is none of the knob's values.
    """
    if tiling.kind is TilingKind.COLUMNS or (tiling.kind is TilingKind.THREAD and tiling.computed):
        limit = choices.choose(LIMIT, _ROOM, "by itself the assembler takes 31, and waits for every load of a column")
    elif tiling.threads * tiling.warps >= _LARGE_BLOCK and not tiling.interleaved:
        limit = choices.choose(
            LIMIT, _MORE, "softmax of 2048 x 8192 bfloat16 takes 19.4 us with one more block, 21.8 us without"
        )
    else:
        limit = choices.choose(LIMIT, "auto", "one more of several small blocks on an SM made nothing faster")
    return _WORTHWHILE if limit == _MORE else limit
