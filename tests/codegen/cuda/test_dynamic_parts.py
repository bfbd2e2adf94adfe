"""Tensors one after the other along an axis of unknown length, and 64-bit numbers of unknown number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernel_values import check_values
from torch import Tensor
from torch._inductor import config as inductor_config


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randint(-99, 99, shape).to(dtype)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.cat((x, y), -1),
        lambda x, y: torch.cat((x[:, ::2], y[:, 1::2]), -1),
        lambda x, y: torch.cat((x, y + 1), 0),
    ],
    ids=["rows", "strided rows", "columns"],
)
@inductor_config.patch(force_pointwise_cat=True)
def test_each_part_is_found_in_32_bits_and_read_where_it_is(function: object) -> None:
    """`torch.cat((x[:, ::2], y[:, 1::2]), -1)` of 8192 x 4096 floats took an H200 1.06 of Triton's time: places were
    remainders of int64, and either part was read along the whole row."""
    first, *others = ((numbers(rows, c), numbers(rows, c)) for rows, c in [(13, 37), (5, 7), (70, 65), (2, 5)])
    (kernel,) = check_values(function, *first, dynamic=True, others=others)
    assert "rem.s64" not in kernel.code and "div.s64" not in kernel.code
    assert "hl.select(" in kernel.text and "hl.clamp(" not in kernel.text


@inductor_config.patch(force_pointwise_cat=True)
def test_parts_of_different_lengths() -> None:
    """A sum of sizes divides the extent of the axis, so that int32 holds it as it holds the extent."""
    sizes = [(9, 5, 12), (4, 33, 2), (64, 3, 70)]
    first, *others = ((numbers(rows, a), numbers(rows, b)) for rows, a, b in sizes)
    (kernel,) = check_values(lambda x, y: torch.cat((x, y), -1), *first, dynamic=True, others=others)
    assert "rem.s64" not in kernel.code and "rem.u64" not in kernel.code


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
def test_contiguous_64_bit_numbers_are_moved_in_pairs(dtype: torch.dtype) -> None:
    """The last pair may be a single number (`(x * 2654435761 + 97) & 1023` took an H200 1.07 of Triton's time)."""
    first, *others = ((numbers(n, dtype=dtype),) for n in (1_027, 3, 512, 2))
    (kernel,) = check_values(lambda x: x * 3 + 2**40, *first, dynamic=True, others=others)
    assert "short=True" in kernel.text
    assert re.search(r"ld\.global\.nc\.v2\.b64", kernel.code)
    assert re.search(r"@whole st\.global\.v(2\.b64|4\.b32)", kernel.code)


def test_elements_of_a_window_share_their_clamps(kernel: Callable[..., Any]) -> None:
    """Maxima of 3 x 3 took 1.4 of their time with a choice for each element."""
    code = kernel(lambda x: F.max_pool2d(x, 3, 1, 1), numbers(3, 5, 19, 23))
    assert "hl.clamp(" in code.text and "hl.select(" not in code.text
