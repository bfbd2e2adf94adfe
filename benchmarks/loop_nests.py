"""What rules do to loops: the loops in which most of a kernel's work is done, without a rule and with it.

    python benchmarks/loop_nests.py [--device cuda] [--only NAME ...]

The target is AVX-512 or compute capability 9.0, whatever this machine has. docs/design/schedules.md and cuda.md show
what it prints.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import interpolate

import halide_backend
from halide_backend.build.artifacts import worker_pool
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of


@dataclass(frozen=True)
class Example:
    """A function of one float32 tensor, and the settings of knobs that leave the rule out."""

    function: Callable[..., Any]
    shape: tuple[int, ...]
    without: dict[str, Any]


CPU = {
    "transposes": Example(lambda x: (x.t() + 1).contiguous(), (320, 640), {"transposes.side": 4}),
    "short rows": Example(lambda x: torch.log_softmax(x, -1), (4096, 10), {"vectors.across_rows": False}),
    "sums of columns": Example(lambda x: x.sum(0), (300, 1024), {"column_reductions.registers": 1}),
    "tuples": Example(lambda x: (x.amin(0), x.amax(0)), (4096, 256), {"reductions.tuples": False}),
    "a few columns": Example(lambda x: x.sum(0), (5000, 13), {"narrow_columns.rows": 1, "column_reductions.chains": 1}),
    "channels of a group": Example(lambda x: x.sum((1, 3)), (4, 400, 8, 4), {"grouped_columns.together": False}),
    "two elements": Example(lambda x: x.repeat_interleave(2, 1), (512, 512), {"column_blocks.interleaved": False}),
    "interpolated rows": Example(
        lambda x: interpolate(x, scale_factor=2.0, mode="bilinear"), (1, 2, 32, 64), {"functions.stores": False}
    ),
}

CUDA = {
    "pointwise": Example(lambda x: x + 1, (4096, 2048), {"pointwise.elements": 1}),
    "lines": Example(lambda x: torch.softmax(x, -1), (1024, 4096), {"register_lines.applies": False}),
    "columns": Example(lambda x: x.sum(0), (512, 2048), {"column_groups.applies": False}),
    "transposes": Example(lambda x: (x.t() + 1).contiguous(), (4099, 2001), {"shared_transposes.side": 32}),
    "shared indices": Example(
        lambda x: interpolate(x, scale_factor=2.0, mode="bilinear"), (64, 32, 28, 28), {"pointwise.across": 1}
    ),
}


def nests(example: Example, device: str) -> tuple[str, str]:
    """The loop nests of the function's last kernel, without the rule and with it; on a CPU one thread's."""
    compiled = compile_for("halide_backend", example.function, options={"halide_backend.target": "avx512"})
    compiled(torch.zeros(example.shape))
    program = halide_backend.records()[-1].program
    assert program is not None
    target, always = Target.named("avx512"), {"parallel.threads": False}
    if device == "cuda":
        program, target, always = _aligned(program), Target.cuda(9, 0), {}
    plans = [plan_kernel(program, device_of(target), knobs={**always, **more}) for more in (example.without, {})]
    before, after = (worker_pool().loop_nest(plan.text, "kernel").replace("<Default_GPU>", "") for plan in plans)
    return before, after


def _aligned(program: LoopProgram) -> LoopProgram:
    """With tensors as CUDA's allocator makes them."""
    inputs = tuple(replace(buffer, aligned=True) for buffer in program.inputs)
    return replace(program, inputs=inputs, outputs=tuple(replace(buffer, aligned=True) for buffer in program.outputs))


def where_the_work_is(nest: str) -> list[str]:
    """The lines around the assignments that run at least a quarter as often as the one that runs most often."""
    path: list[int] = []
    runs: list[tuple[int, list[int]]] = []
    lines = [line for line in nest.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        depth = (len(line) - len(line.lstrip())) // 2
        path = [*path[:depth], number]
        if line.endswith("= ..."):
            bounds = re.findall(r" in \[(\d+), (\d+)\]", " ".join(lines[each] for each in path))
            runs.append((math.prod(int(last) - int(first) + 1 for first, last in bounds), path))
    most = max(count for count, _ in runs)
    shown = sorted({number for count, around in runs if 4 * count >= most for number in around})
    return [lines[number] for number in shown]


def main() -> None:
    """Print all examples of a device, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    examples = {"cpu": CPU, "cuda": CUDA}[arguments.device]
    for name in arguments.only or examples:
        before, after = nests(examples[name], arguments.device)
        print(f"# {name}: {examples[name].without}", *where_the_work_is(before), sep="\n")
        print("# with the rule", *where_the_work_is(after), "", sep="\n")


if __name__ == "__main__":
    main()
