"""Workers compile CUDA kernels without libdevice, which Halide would link into each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from halide_backend.build.pool import WorkerPool
from halide_backend.build.target import Target

#: What Halide's own expressions call, on a GPU.
TEXT = """
import halide as hl
from halide_backend.kernel_library import memory
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (
    Input(name="a", dtype="float32", extent=4096),
    Output(name="b", dtype="float32", dims=((4096, 1),), offset=0, extent=0),
)

def pipeline():
    i, block, thread = hl.Var("i"), hl.Var("block"), hl.Var("thread")
    a = memory.source(ARGUMENTS[0])
    b = hl.Func("b")
    x = a[i]
    b[i] = hl.floor(x) + hl.ceil(x) * hl.trunc(x) + hl.sqrt(hl.abs(x))
    memory.target(b, [i], [(4096, 1)])
    b.gpu_tile(i, block, thread, 128)
    return [a], [b]
"""

INSTRUCTIONS = ("cvt.rmi.f32.f32", "cvt.rpi.f32.f32", "cvt.rzi.f32.f32", "sqrt.rn.f32")


@pytest.mark.parametrize("left_out", [True, False])
def test_instructions_stand_for_what_halide_calls(left_out: bool) -> None:
    """In a process of its own each, because nothing brings libdevice back."""
    program = (
        "import sys; from halide_backend.build import compiler\n"
        "from halide_backend.build.llvm import libdevice\n"
        "from halide_backend.build.ptx import completion\n"
        "from halide_backend.build.target import Target\n"
        f"if {left_out}: assert libdevice.leave_out_libdevice() and libdevice.leave_out_libdevice()\n"
        "kernel = compiler.compile_kernel(sys.argv[1], Target.cuda(9, 0), 'k')\n"
        "print(completion.complete(completion.extract(kernel.object), 'k', 'sm_90'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, TEXT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [instruction in done.stdout for instruction in INSTRUCTIONS]
    assert all(found) if left_out else not all(found)
    assert "__nv_" not in done.stdout
    assert (".ftz" in done.stdout) is not left_out


def test_workers_leave_it_out(pool: WorkerPool) -> None:
    kernel = pool.compile(TEXT, Target.cuda(9, 0), "k", "rounding")
    # With libdevice LLVM has put its instructions in place of the calls.
    assert b"__nv_floorf" in kernel.object
    assert b".ftz" not in kernel.object
