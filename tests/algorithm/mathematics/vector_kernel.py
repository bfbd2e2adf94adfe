"""One function of `mathematics` compiled as the backend compiles it: StrictFloat, IR, `contract`, llvmlite, ORC."""

from __future__ import annotations

import ctypes
import itertools
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import halide as hl
import llvmlite.binding as llvm
import numpy as np

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
_OPTIONS = "-no_asserts-no_bounds_query-no_runtime-strict_float"
_COUNTER = itertools.count()


@dataclass(frozen=True)
class Machine:
    """Halide target without the options above, LLVM cpu and feature string."""

    halide: str
    cpu: str
    features: str


HOST = Machine(
    re.sub("-no_.*", "", str(hl.get_host_target())),
    llvm.get_host_cpu_name(),
    llvm.get_host_cpu_features().flatten(),
)
WITHOUT_FMA = Machine("x86-64-linux-sse41", "x86-64", "+sse4.1")


class _Dimension(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int32) for n in ("min", "extent", "stride", "flags")]


class _Buffer(ctypes.Structure):
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


@dataclass
class VectorKernel:
    """Called with arrays of a length divisible by 16 it returns the function's values; milliseconds: Halide + LLVM."""

    object: bytes
    milliseconds: float
    bits: int
    _address: int
    _keep: object

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        out = np.empty_like(inputs[0])
        arrays = [np.ascontiguousarray(a) for a in (*inputs, out)]
        dims = [_Dimension(0, a.size, 1, 0) for a in arrays]
        buffers = [
            _Buffer(0, None, a.ctypes.data, 0, 2, self.bits, 1, 1, ctypes.pointer(d), None)
            for a, d in zip(arrays, dims, strict=True)
        ]
        run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(arrays))(self._address)
        assert run(*[ctypes.addressof(b) for b in buffers]) == 0
        return arrays[-1]


def assembly(
    function: Callable[..., hl.Expr], arity: int, bits: int, machine: Machine, entry: str
) -> str:
    x = hl.Var("x")
    inputs = [hl.ImageParam(hl.Float(bits), 1, f"in{i}") for i in range(arity)]
    leaves = []
    for i, p in enumerate(inputs):
        p.dim(0).set_min(0)
        leaf = hl.Func(f"leaf{i}")
        leaf[x] = p[x]
        leaves.append(leaf[x])
    out = hl.Func("out")
    out[x] = function(*leaves)
    out.vectorize(x, 512 // bits)
    out.output_buffer().dim(0).set_bounds(0, inputs[0].dim(0).extent() // 16 * 16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ll"
        out.compile_to_llvm_assembly(
            str(path), inputs, entry, hl.Target(machine.halide + _OPTIONS)
        )
        return path.read_text()


def compile_function(
    function: Callable[..., hl.Expr], arity: int, bits: int, machine: Machine = HOST
) -> VectorKernel:
    entry = f"kernel{next(_COUNTER)}"
    start = time.perf_counter()
    text = assembly(function, arity, bits, machine, entry)
    text = re.sub(r"= (fadd|fmul|fsub|fneg) ", r"= \1 contract ", text)
    module = llvm.parse_assembly(text)
    target = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="pic", codemodel="default"
    )
    code = target.emit_object(module)
    elapsed = (time.perf_counter() - start) * 1e3
    linker = llvm.create_lljit_compiler(target)
    library = (
        llvm.JITLibraryBuilder()
        .add_object_img(code)
        .add_current_process()
        .export_symbol(entry)
        .link(linker, entry)
    )
    return VectorKernel(code, elapsed, bits, library[entry], (linker, library))
