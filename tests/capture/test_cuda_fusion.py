"""Which nodes are fused for CUDA, asked of nodes on a CPU: a group that is fused has one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.capture import fusion, scheduling
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

Groups = Callable[..., list[int]]


GPU = device_of(Target.cuda(9, 0))


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """groups(function, *arguments): the stores of each kernel, all of which have a form on CUDA."""
    found: list[LoopProgram] = []
    compile_program = scheduling.compile_program

    def recorded(program: LoopProgram, *rest: Any) -> Any:
        found.append(program)
        return compile_program(program, *rest)

    monkeypatch.setattr(fusion, "device_for", lambda node: GPU)
    monkeypatch.setattr(scheduling, "compile_program", recorded)

    def compiled(function: Callable[..., Any], *arguments: Tensor) -> list[int]:
        torch.compile(function, dynamic=False)(*arguments)
        for program in found:
            plan_kernel(program, GPU)
        return [len(program.stores) for program in found]

    return compiled


def test_an_old_value_for_other_outputs_is_loaded_once_by_their_kernel(groups: Groups) -> None:
    def update(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        old = x * 2
        x.add_(1)
        return old, y + old

    assert groups(update, torch.rand(100, 64), torch.rand(100, 64)) == [3]


def test_an_old_value_within_the_kernel_needs_none(groups: Groups) -> None:
    def update(x: Tensor, y: Tensor) -> Tensor:
        old = x * 2 + y
        x.copy_(old.sin())
        return y * 3

    assert groups(update, torch.rand(100, 64), torch.rand(100, 64)) == [2]


def test_a_step_of_an_optimizer_is_one_kernel(groups: Groups) -> None:
    def step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        m.lerp_(g, 0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt() + 1e-8, value=-0.1)
        return p * 1

    assert groups(step, *(torch.rand(1000) for _ in range(4))) == [4]


def test_what_runs_along_memory_is_not_stored_by_threads_that_reduce_across_it(groups: Groups) -> None:
    """Statistics of an image in channels-last order: each thread stored a channel of its own, 10 times slower. A block
    holds several channels of few pixels (`interleaved_lines`)."""

    def norm(x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)).transpose(1, 2).contiguous()

    assert groups(norm, torch.rand(4, 16_001, 16)) == [1, 1]
    assert groups(norm, torch.rand(4, 512, 16))[2:] == [1]
    assert groups(norm, torch.rand(4, 6, 16))[3:] == [1]


@pytest.mark.parametrize(
    ("images", "channels", "dtype", "kernels"),
    [(4, 16, torch.bfloat16, 2), (64, 16, torch.bfloat16, 1), (4, 32, torch.float32, 1), (64, 72, torch.float32, 1)],
    ids=str,
)
def test_results_across_few_channels_are_stored_by_threads_that_reduce_them(
    groups: Groups, images: int, channels: int, dtype: torch.dtype, kernels: int
) -> None:
    """Centred pixels, stored in channels-last: threads have the registers for few channels, if there are enough, and
    together those for 32 and more."""

    def centred(x: Tensor) -> Tensor:
        return (x - x.float().mean(1, keepdim=True)).to(x.dtype).transpose(1, 2).contiguous()

    assert len(groups(centred, torch.rand(images, channels, 2304).to(dtype))) == kernels


def test_few_threads_that_reduce_store_nothing_along_the_way(groups: Groups) -> None:
    """The gradient of an activation and its sums over rows: few threads stored a row of the columns after another, of
    which each waited for its loads (issue 19)."""

    def gradient(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        d = g * x.sigmoid()
        return d, d.sum(1)

    assert groups(gradient, torch.rand(4, 197, 512), torch.rand(4, 197, 512)) == [1, 1]


def test_what_only_the_kernel_reads_is_not_stored(groups: Groups) -> None:
    def means(x: Tensor) -> Tensor:
        y = x * 2
        return (y - y.sum(1, keepdim=True)).sum(1)

    assert groups(means, torch.rand(4, 197, 512)) == [1]
