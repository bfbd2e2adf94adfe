"""The example of docs/reference/records.md: two kernels, and what their records say."""

from __future__ import annotations

import torch
from torch import Tensor

import halide_backend


def function(x: Tensor) -> tuple[Tensor, Tensor]:
    """What is compiled."""
    scaled = torch.softmax(x, -1)
    return scaled, (scaled + 1).sum()


def show() -> None:
    """Compile it, and print."""
    torch.compile(function, backend="halide_backend", dynamic=False)(torch.rand(300, 40))
    for record in halide_backend.records():
        print(f"{record.name}, pipeline {record.position}, run by {record.backend}")
        for line in record.source_lines:
            print(f"  computes  {line.text}")
        for neighbour in record.not_fused[:1]:
            print(f"  not fused: {neighbour.reason}")
    total = halide_backend.records()[1]
    for choice in total.plan.choices if total.plan else ():
        print(f"{choice.key} = {choice.setting}: {choice.why}")
    print(total.loop_nest())
