"""Each setting of the knobs of CUDA rules gives the same result; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import TARGET, cuda_kernel_text, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


def scaled(x: Tensor) -> Tensor:
    return x * 2 + 1


def transposed_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def shifted_difference(x: Tensor) -> Tensor:
    return x[1:] - x[:-1]


@pytest.mark.parametrize("size", [(300,), (1001,), (24, 40)], ids=str)
@pytest.mark.parametrize("function", [scaled, transposed_sum, shifted_difference], ids=lambda f: f.__name__)
def test_every_setting_of_every_knob_is_right(
    function: Callable[..., Any], size: tuple[int, ...], needs_intrinsics: None
) -> None:
    if function is transposed_sum and len(size) == 1:
        size = (16, *size)
    x = torch.randint(-8, 9, size).float()
    (program,) = programs_of(function, (x,))
    choices = plan_kernel(program, device_of(TARGET)).plan.choices
    assert [choice.knob.name for choice in choices] == ["alone.threads"]
    texts = set()
    for choice in choices:
        for setting in choice.knob.values:
            kernel = CudaKernel(cuda_kernel_text(program, {choice.key: setting}))
            found = torch.full_like(function(x), -1000)
            kernel.on_tensors(x, found)
            assert torch.equal(found, function(x)), f"{choice.key} = {setting}"
            texts.add(kernel.text)
    assert len(texts) == len(choice.knob.values)
