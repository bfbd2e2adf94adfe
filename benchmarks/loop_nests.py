"""What rules for CPUs do to loops: the loops in which most of a kernel's work is done, without a rule and with it.

    python benchmarks/loop_nests.py [NAME ...]

The target is AVX-512, whatever this machine has. docs/design/schedules.md shows what it prints.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

import halide_backend
from halide_backend.build.artifacts import worker_pool
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of

TARGET = "avx512"

#: Name -> function, shapes of its operands, and the settings of knobs that leave the rule out.
RULES: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]], dict[str, Any]]] = {
    "transposes": (lambda x: (x.t() + 1).contiguous(), [(320, 640)], {"transposes.side": 4}),
    "short rows": (lambda x: torch.log_softmax(x, -1), [(4096, 10)], {"vectors.across_rows": False}),
    "one result a row": (lambda x: torch.exp(x.sum(-1)), [(3030, 33)], {"rows.across": False}),
    "sums of columns": (lambda x: x.sum(0), [(300, 1024)], {"column_reductions.registers": 1}),
    "tuples": (lambda x: (x.amin(0), x.amax(0)), [(4096, 256)], {"reductions.tuples": False}),
    "a few columns": (lambda x: x.sum(0), [(5000, 13)], {"narrow_columns.rows": 1}),
    "channels of a group": (lambda x: x.sum((1, 3)), [(4, 400, 8, 4)], {"grouped_columns.together": False}),
    "rows of two elements": (lambda x: x.repeat_interleave(2, 1), [(512, 512)], {"column_blocks.interleaved": False}),
    "interpolated rows": (lambda x: interpolate(x, scale_factor=2.0, mode="bilinear"), [(1, 2, 32, 64)],
                          {"functions.stores": False}),
}  # fmt: skip


def nests(function: Callable[..., Any], shapes: Iterable[tuple[int, ...]], without: dict[str, Any]) -> tuple[str, str]:
    """The loop nests of the last kernel of a function, without a rule and with it, one thread each."""
    operands: list[Tensor] = [torch.zeros(shape) for shape in shapes]
    compile_for("halide_backend", function, options={"halide_backend.target": TARGET})(*operands)
    program = halide_backend.records()[-1].program
    assert program is not None
    device = device_of(Target.named(TARGET))
    before, after = (
        worker_pool().loop_nest(plan_kernel(program, device, knobs={"parallel.threads": False, **knobs}).text, "kernel")
        for knobs in (without, {})
    )
    return before, after


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


def main(names: Sequence[str]) -> None:
    """Print all, or those that are named."""
    for name in names or RULES:
        function, shapes, without = RULES[name]
        before, after = nests(function, shapes, without)
        for title, nest in ((f"# {name}: {without}", before), ("# with the rule", after)):
            print(title, *where_the_work_is(nest), sep="\n")
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
