"""Lines whose index has quotients and remainders, as parts of a reduction have, are read in vectors."""

from __future__ import annotations

import re

import pytest
import torch
from kernel_values import check_values
from torch import Tensor


def sums_of_parts(x: Tensor) -> Tensor:
    """(n, c, k) -> (c, 3): each part is a third of a channel's n*k elements, and begins within a row of k."""
    n, channels, width = x.shape
    return x.transpose(0, 1).reshape(channels, 3, n * width // 3).float().sum(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_parts_that_end_between_vectors(dtype: torch.dtype, needs_intrinsics: None) -> None:
    x = (torch.arange(9 * 4 * 160).reshape(9, 4, 160) % 50).to(dtype)
    (kernel,) = check_values(sums_of_parts, x)
    loads = re.findall(r"ld\.global\S*", kernel.code)
    assert loads and all(re.search(r"v2\.b64|v4\.b32", load) for load in loads)


def test_parts_that_end_within_vectors(needs_intrinsics: None) -> None:
    x = (torch.arange(9 * 4 * 132).reshape(9, 4, 132) % 50).to(torch.bfloat16)
    (kernel,) = check_values(sums_of_parts, x)
    assert not re.findall(r"ld\.global\S*v[24]", kernel.code)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [4, 5])
def test_lines_of_several_rows_are_read_in_registers(dtype: torch.dtype, rows: int, needs_intrinsics: None) -> None:
    """All that a row had was loaded into local memory for each vector of it."""

    def variation(x: Tensor) -> Tensor:
        return (x[:, 1:, :9600] - x[:, :-1, :9600]).abs().float().sum((1, 2))

    x = (torch.arange(2 * rows * 9608).reshape(2, rows, 9608) * 7 % 50).to(dtype)
    (kernel,) = check_values(variation, x)
    assert "TilingKind.BLOCK" in kernel.text and ".local" not in kernel.code
    assert re.search(r"ld\.global\S*v[24]", kernel.code)
