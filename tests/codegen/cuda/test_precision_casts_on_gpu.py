"""Kernels for a GPU round 16-bit floats at each operation where Inductor asks for it, as the CPU's and eager do."""

from __future__ import annotations

import pytest
import torch
from kernel_values import check_values
from torch import Tensor
from torch._inductor import config as inductor_config


def quantised(x: Tensor) -> Tensor:
    blocks = x.view(x.shape[0], -1, 32)
    return (blocks / (blocks.abs().amax(-1, keepdim=True) / 120)).round().to(torch.int8)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_codes_are_those_of_eager(dtype: torch.dtype, dynamic: bool, needs_intrinsics: None) -> None:
    x = torch.randn(33, 96, generator=torch.Generator().manual_seed(0)).to(dtype)
    with inductor_config.patch(emulate_precision_casts=True):
        check_values(quantised, x, dynamic=dynamic)
