"""Lines of which two tensors have a part each: all threads of a warp come to what they exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, y: (torch.cat((x * 2, y), -1) + 1).sum(-1),
    "softmax": lambda x, y: torch.softmax(torch.cat((x * 0.5, y), -1), -1),
    "place of the largest": lambda x, y: torch.cat((x * 2, y), -1).argmax(-1),
}


@pytest.mark.parametrize("lengths", [(64, 64), (33, 95), (512, 512), (1000, 37)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lines_of_two_tensors(name: str, lengths: tuple[int, int], needs_intrinsics: None) -> None:
    """Threads of the first part had code of their own, with the shuffle in it."""
    generator = torch.Generator().manual_seed(sum(lengths))
    x, y = (torch.randint(-4, 5, (3, 24, n), generator=generator).float() for n in lengths)
    function = FUNCTIONS[name]
    wanted = function(x, y)
    # As Inductor lowers a concatenation of pointwise values on a GPU, where a pointwise value is made of it.
    with inductor_config.patch(force_pointwise_cat=True):
        (program,) = programs_of(function, (x, y))
    found = torch.full_like(wanted, -99)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(x, y, found)
    torch.testing.assert_close(found, wanted)
