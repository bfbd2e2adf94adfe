"""A function of `mathematics` alone in a kernel, compiled as the backend compiles it and called on numpy arrays."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halide_backend.build import elf
from halide_backend.build.c_interface import RUN
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.loader import LoadedKernel, load_object
from halide_backend.build.target import Target
from halide_backend.launch.launcher import native
from halide_backend.program.operation_names import LOOPS

Floats = npt.NDArray[np.floating]
HOST = Target.host()
WITHOUT_FMA = Target.named("sse41")
LANES = 512  # bits
BLOCK = 16  # arrays are a multiple of this long

_TEXT = """
import halide as hl
from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.arguments import Input, Output

NAMES = {names}
ARGUMENTS = tuple(Input(name, "float{bits}", {block}) for name in NAMES) + (
    Output("out", "float{bits}", (({block}, 1),)),
)

def pipeline():
    x = hl.Var("x")
    inputs = [hl.ImageParam(hl.Float({bits}), 1, name) for name in NAMES]
    leaves = [hl.Func("leaf_" + name) for name in NAMES]
    for leaf, parameter in zip(leaves, inputs):
        parameter.dim(0).set_min(0)
        leaf[x] = {leaf}
    out = hl.Func("out")
    out[x] = mathematics.{function}({number}*(leaf[x] for leaf in leaves){axes})
    out.vectorize(x, {lanes})
    out.output_buffer().dim(0).set_bounds(0, inputs[0].dim(0).extent() // {block} * {block})
    return inputs, [out]
"""


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


@dataclass(frozen=True)
class VectorKernel:
    """seconds: processor time of Halide and LLVM. size: bytes of the object. imports: its undefined symbols."""

    bits: int
    seconds: float
    size: int
    imports: frozenset[str]
    loaded: LoadedKernel

    def __call__(self, *inputs: Floats) -> Floats:
        """The function's values; inputs of equal length, a multiple of BLOCK."""
        arrays = [*(np.ascontiguousarray(a) for a in inputs), np.empty_like(inputs[0])]
        assert arrays[0].size % BLOCK == 0
        assert arrays[0].itemsize * 8 == self.bits
        dimension = ctypes.pointer(_Dimension(0, arrays[0].size, 1, 0))
        buffers = [_Buffer(0, None, a.ctypes.data, 0, 2, self.bits, 1, 1, dimension, None) for a in arrays]
        run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(buffers))
        assert run(self.loaded.address)(*(ctypes.addressof(b) for b in buffers)) == 0
        return arrays[-1]


def vector_kernel(
    function: str,
    arity: int,
    bits: int,
    target: Target = HOST,
    leaf: str = "parameter[x]",
    number: float | None = None,
) -> VectorKernel:
    """Compile the function 512 bits wide; its arguments are `leaf`, an expression of the input and its position x,
    behind a `number`, if any."""
    names = tuple(f"in{i}" for i in range(arity))
    axes = ", axes=[x]" if function in LOOPS else ""
    text = _TEXT.format(
        function=function,
        names=names,
        bits=bits,
        lanes=LANES // bits,
        block=BLOCK,
        leaf=leaf,
        axes=axes,
        number="" if number is None else f"{number!r}, ",
    )
    start = time.process_time()
    compiled = compile_kernel(text, target, f"kernel_{function}")
    seconds = time.process_time() - start
    return VectorKernel(
        bits,
        seconds,
        len(compiled.object),
        frozenset(elf.symbols(compiled.object).undefined - {RUN}),
        load_object(compiled.object, f"kernel_{function}", native().symbols()),
    )
