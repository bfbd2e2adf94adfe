"""The server of the compile workers: halide and LLVM are loaded, and one kernel has been compiled.

A new worker for every kernel costs ~1 ms and buys two things beside safety: Halide's process-wide name counters start
from the same state for every kernel, so equal texts give equal bytes; and kernels compile in parallel from a single
start.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from halide_backend.build.compiler import assembly, autoschedule, compile_kernel, loop_nest
from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.ptx.ptxas import assemble
from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError
from halide_backend.workers.serving import serve

#: What kernel texts import, besides halide.
VOCABULARY = (
    "halide_backend.kernel_library.arguments",
    "halide_backend.kernel_library.memory",
    "halide_backend.kernel_library.operations",
    "halide_backend.kernel_library.cuda.memory",
    "halide_backend.kernel_library.cuda.reductions",
    "halide_backend.kernel_library.reductions",
    "halide_backend.schedule.apply",
)


def main() -> None:
    """Import everything, then serve."""
    for module in VOCABULARY:
        # What fails here fails again in the kernel's text, where it is reported.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    with contextlib.suppress(ImportError):
        importlib.import_module("halide_backend.build.llvm.libdevice").leave_out_libdevice()
    serve(_work, _warm_up)


def _work(task: tuple[str, tuple[Any, ...]], report: Callable[[Any], None]) -> CompiledKernel | bytes | str:
    function, arguments = task
    return _FUNCTIONS[function](*arguments)


#: What `pool.WorkerPool` asks for, by the names of its methods.
_FUNCTIONS: dict[str, Callable[..., CompiledKernel | bytes | str]] = {
    "compile": compile_kernel,
    "assemble": assemble,
    "loop_nest": loop_nest,
    "assembly": assembly,
    "autoschedule": autoschedule,
}


def _warm_up() -> None:
    """Compile a kernel, always the same: Halide and LLVM make their tables on first use."""
    with contextlib.suppress(HalideBackendError):
        compile_kernel(_FIRST, Target.host(), "first")


_FIRST = """
import halide as hl
from halide_backend.kernel_library import memory, operations as ops
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (
    Input(name="a", dtype="float32", extent=4096),
    Output(name="b", dtype="float32", dims=((64, 1),), offset=0, extent=0),
)

def pipeline():
    i, j, r = hl.Var("i"), hl.Var("j"), hl.RDom([(0, 64)], "r")
    a = memory.source(ARGUMENTS[0])
    row = hl.Func("row")
    row[j, i] = ops.exp(a[64 * i + j])
    total = hl.Func("total")
    total[i] = hl.f32(0)
    total[i] += row[r, i]
    b = hl.Func("b")
    b[i] = ops.stored("float32", total[i])
    memory.target(b, [i], [(64, 1)])
    b.vectorize(i, 16)
    return [a], [b]
"""
