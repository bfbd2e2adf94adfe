"""What a CUDA kernel takes to compile with NVIDIA's libdevice, which Halide links into it, and without. Needs no GPU.

    python benchmarks/libdevice.py [ROUNDS]

Milliseconds of processor time, medians and ranges of a pointwise kernel, compiled in a fork each, the two in turns.
"""

from __future__ import annotations

import os
import statistics
import struct
import sys
import time

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.llvm.libdevice import leave_out_libdevice
from halide_backend.build.target import Target
from halide_backend.inspection import machine

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
    b[i] = a[i] * 2 + 1
    memory.target(b, [i], [(4096, 1)])
    b.gpu_tile(i, block, thread, 128)
    return [a], [b]
"""


def milliseconds(left_out: bool) -> float:
    """Of one compilation, in a process that has compiled nothing for a GPU before."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        if left_out:
            assert leave_out_libdevice()
        begin = time.process_time()
        compile_kernel(TEXT, Target.cuda(9, 0), "kernel")
        os.write(writer, struct.pack("d", (time.process_time() - begin) * 1e3))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        (taken,) = struct.unpack("d", pipe.read())
    os.wait()
    return float(taken)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    compile_kernel(TEXT.replace("b.gpu_tile(i, block, thread, 128)", ""), Target.host(), "first")
    samples: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for left_out, found in samples.items():
            found.append(milliseconds(left_out))
    for left_out, found in samples.items():
        name = "without" if left_out else "with"
        print(f"{name:8} {statistics.median(found):6.0f} ms ({min(found):.0f} to {max(found):.0f})")
    print(f"ratio    {statistics.median(samples[False]) / statistics.median(samples[True]):6.2f}")
    print("; ".join(machine.facts().values()))


if __name__ == "__main__":
    main()
