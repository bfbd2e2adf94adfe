"""Places of the largest and smallest numbers of columns, which threads read once."""

from __future__ import annotations

import pytest
import torch
from kernel_values import check_values
from torch import Tensor

NAN = float("nan")


def places(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.argmax(-2), x.argmin(-2)


def several(dtype: torch.dtype, points: int) -> Tensor:
    """Columns with equal numbers, some with zeros of both signs, a NaN or the least number there is."""
    x = torch.randint(0 if dtype in (torch.bool, torch.uint8) else -3, 2, (points, 40)).to(dtype)
    if dtype.is_floating_point:
        x[:, 1], x[:, 2] = 0.0, x[:, 2].abs()
        x[points // 2, 1], x[points // 3 :: 2, 3], x[:, 4], x[:, 5] = -0.0, NAN, -torch.inf, torch.inf
    elif dtype != torch.bool:
        x[:, 1], x[:, 2] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return x


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("points", [9, 150])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_key_and_its_place_are_one_number(
    dtype: torch.dtype, points: int, dynamic: bool, needs_intrinsics: None
) -> None:
    if dtype == torch.bool:
        kernels = check_values(lambda x: x.int().argmax(0), several(dtype, points), dynamic=dynamic)
    else:
        kernels = check_values(places, several(dtype, points), dynamic=dynamic)
    texts = [kernel.text for kernel in kernels if "arg" in kernel.text]
    assert texts and all("_numbered" in text and "_first" not in text for text in texts)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_longer_keys_are_read_again(dtype: torch.dtype, needs_intrinsics: None) -> None:
    kernels = check_values(places, several(dtype, 150))
    assert all("_numbered" not in kernel.text for kernel in kernels)


def test_numbers_that_threads_hold_are_compared_twice(needs_intrinsics: None) -> None:
    """Keys of 32 bits take fewer instructions."""
    (kernel,) = check_values(lambda x: x.argmax(-1), several(torch.float32, 90).t().contiguous())
    assert "_numbered" not in kernel.text
