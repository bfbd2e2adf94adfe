"""NVIDIA's libdevice, which Halide links into every CUDA kernel, left out.

libdevice is 470 KB of bitcode. LLVM reads it, links it and optimizes 450 functions away for each kernel: three quarters
of what a pointwise kernel takes to compile (benchmarks/libdevice.py). Our mathematics calls none of them; what Halide
itself calls for its expressions is replaced by instructions in `ptx`, and keeps denormals, which libdevice flushes.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import halide
import llvmlite.binding as llvm

#: Variables of Halide's library that hold libdevice for ranges of compute capabilities; their lengths are `_length`.
_BITCODE = tuple(f"halide_internal_initmod_ptx_compute_{capability}_ll" for capability in (20, 30, 35))

_EMPTY = 'target triple = "nvptx-nvidia-cl.1.0"\n'


def leave_out_libdevice() -> bool:
    """Make Halide link an empty module in its place, in this process and those forked from it.

    Only for processes that compile our kernels alone. False, and nothing is changed, where this Halide keeps libdevice
    elsewhere.
    """
    library = ctypes.CDLL(str(Path(halide.__file__).parent / "lib64" / "libHalide.so"))
    empty = llvm.parse_assembly(_EMPTY).as_bitcode()
    try:
        lengths = [ctypes.c_int.in_dll(library, f"{name}_length") for name in _BITCODE]
        places = [ctypes.c_char.in_dll(library, name) for name in _BITCODE]
    except ValueError:
        return False
    for length, place in zip(lengths, places, strict=True):
        if length.value > len(empty):
            ctypes.memmove(ctypes.byref(place), empty, len(empty))
            length.value = len(empty)
    return True
