"""How many registers a thread of a GPU kernel may have."""

from __future__ import annotations

from halide_backend.schedule.tiling import Tiling

#: Threads of a block of which one more on an SM makes a difference, and the part of its registers with which a kernel
#: still does well (measured on an H200: layer_norm of 8192 x 4096 floats 72.3 us with 40 registers, 70.3 us with 32;
#: softmax of 2048 x 8192 bfloat16 21.8 us and 19.4 us; kernels of smaller blocks are no faster).
_LARGE_BLOCK, _WORTHWHILE = 512, 0.8


def register_limit(tiling: Tiling) -> str | float:
    """`REGISTERS` of a kernel's text: "auto" for as many as the assembler takes; a part f < 1 for at least f of them,
    where that makes room for one more block on an SM."""
    return _WORTHWHILE if tiling.threads * tiling.warps >= _LARGE_BLOCK else "auto"
