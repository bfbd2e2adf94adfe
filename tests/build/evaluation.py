"""Compiled code called as the launcher calls it, but slowly and with numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target

Floats = npt.NDArray[np.float32]


class _Dimension(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class _Buffer(ctypes.Structure):
    """halide_buffer_t of HalideRuntime.h."""

    _fields_ = [
        ("device", ctypes.c_uint64),
        ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_Dimension)),
        ("padding", ctypes.c_void_p),
    ]


def call(address: int, *arrays: Floats) -> None:
    """Call machine code with one-dimensional float32 arrays."""
    keep = []
    for array in arrays:
        dimension = (_Dimension * 1)(_Dimension(0, array.size, 1, 0))
        keep.append(_Buffer(0, None, array.ctypes.data, 0, 2, 32, 1, 1, dimension, None))
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(keep))(address)
    assert function(*(ctypes.addressof(buffer) for buffer in keep)) == 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
def _serial_loop(context: int, task: int, start: int, size: int, closure: int) -> int:
    body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(task)
    return max((body(context, at, closure) for at in range(start, start + size)), default=0)


#: All of the runtime that the objects of these tests call.
RUNTIME = {
    "halide_do_par_for": ctypes.cast(_serial_loop, ctypes.c_void_p).value or 0,
}


def evaluate(text: str, *inputs: Floats, target: Target | None = None, size: int = 16) -> Floats:
    """Compile a text in this process and return its output of `size` elements."""
    kernel = compile_kernel(text, target or Target.host(), "evaluated")
    loaded = load_object(kernel.object, "evaluated", RUNTIME)
    output = np.full(size, -1, np.float32)
    call(loaded.address, *inputs, output)
    return output
