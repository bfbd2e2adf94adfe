"""One small kernel through all of `build` and `launch`, and a count of what was started for it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from halide_backend.errors import HalideBackendError
from halide_backend.inspection.process_audit import StartedProcesses

#: Elements of each tensor: several parallel chunks of vectors, and a tail of both.
EXTENT = 100_003

#: out = x * 2 + y in vectors, over chunks that run in parallel; every step is exact in float32.
TEXT = f"""\
import halide as hl
from halide_backend.kernel_library.arguments import Input, Output

EXTENT = {EXTENT}
ARGUMENTS = (
    Input("x", "float32", EXTENT),
    Input("y", "float32", EXTENT),
    Output("out", "float32", ((EXTENT, 1),)),
)


def pipeline():
    i, chunk, inner = hl.Var("i"), hl.Var("chunk"), hl.Var("inner")
    x, y = hl.ImageParam(hl.Float(32), 1, "x"), hl.ImageParam(hl.Float(32), 1, "y")
    out = hl.Func("out")
    out[i] = x[i] * 2.0 + y[i]
    out.bound(i, 0, EXTENT).output_buffer().dim(0).set_bounds(0, EXTENT).set_stride(1)
    out.split(i, chunk, inner, 8192, hl.TailStrategy.GuardWithIf).parallel(chunk)
    out.vectorize(inner, 8, hl.TailStrategy.GuardWithIf)
    return [x, y], [out]
"""
NAME = "doctor_multiply_add"


@dataclass(frozen=True)
class Proof:
    """What the small kernel took, all in seconds, and what was started for it."""

    first_answer: float
    """From asking for a worker to the object: includes the start of the worker process."""
    compile: float
    load: float
    started: StartedProcesses


def prove(started: StartedProcesses) -> Proof:
    """Compile the kernel in a worker (never from the cache), load it, run it, check every element.

    `started` is a running count of this process's programs (`process_audit.watch`).

    Raises:
        HalideBackendError: any stage failed; or the kernel computed something else.
    """
    from halide_backend.build.artifacts import worker_pool
    from halide_backend.build.loader import load_object
    from halide_backend.build.target import Target
    from halide_backend.launch import launcher

    begin = time.perf_counter()
    kernel = worker_pool().compile(TEXT, Target.host(), NAME, NAME)
    first_answer = time.perf_counter() - begin

    symbols = launcher.native().symbols()
    begin = time.perf_counter()
    code = load_object(kernel.object, f"{NAME}_argv", symbols)
    load = time.perf_counter() - begin

    manifest = kernel.manifest
    pipeline = launcher.Pipeline(
        code.address,
        manifest["arguments"],
        (0, 1, 2),
        manifest["checks"],
        manifest["release_gil"],
        code,
    )
    _run(launcher.make_launcher(NAME, [pipeline], 3))
    return Proof(first_answer, kernel.seconds, load, started)


def _run(kernel: object) -> None:
    import torch

    if not callable(kernel):
        raise TypeError(f"{NAME} is not callable")
    x = torch.arange(EXTENT, dtype=torch.float32)
    y = torch.full((EXTENT,), 0.5)
    out = torch.full((EXTENT,), torch.nan)
    kernel(x, y, out)
    # Integers below 2^24 and one half: exact in float32 whatever the order and contraction.
    wrong = int((out != x * 2 + y).sum())
    if wrong:
        raise HalideBackendError(
            f"{wrong} of {EXTENT} elements are wrong",
            where=f"kernel {NAME}",
            cure="Please report this with the output of `halide-backend doctor --json`.",
        )
