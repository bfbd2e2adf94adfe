"""Lines that a block walks through once, whatever is reduced of them: places beside keys, several results together."""

from __future__ import annotations

import re

import pytest
import torch
from kernel_values import CudaKernel, check_values
from torch import Tensor

NAN = float("nan")

#: Elements of a line that is too long for the registers of a block's threads: whole vectors, and none.
LENGTHS = (16_400, 16_403)

#: The same of what is reduced twice, which more threads hold, of more elements each.
LONGER = (66_000, 66_003)


def lines(dtype: torch.dtype, length: int) -> Tensor:
    """Lines with equal numbers; some with a NaN, zeros of both signs, or nothing above the least number."""
    x = torch.randint(-3, 2, (6, length)).to(dtype)
    if dtype.is_floating_point:
        x[1, length // 2 :: 7], x[2], x[2, length // 3], x[3] = NAN, 0.0, -0.0, -torch.inf
    else:
        x[1], x[2] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return x


def loads(kernel: CudaKernel) -> list[str]:
    """The instructions that load elements of lines."""
    return re.findall(r"ld\.global\S*", kernel.code)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_places(kind: str, dtype: torch.dtype, length: int, needs_intrinsics: None) -> None:
    (kernel,) = check_values(lambda x: getattr(x, kind)(-1), lines(dtype, length))
    assert "TilingKind.BLOCK" in kernel.text and "_numbered" in kernel.text and "_first" not in kernel.text
    assert all(re.search("v2|v4", load) for load in loads(kernel)) is (length % 8 == 0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_least_and_the_largest(dtype: torch.dtype, dynamic: bool, needs_intrinsics: None) -> None:
    (kernel,) = check_values(lambda x: (x.amin(-1), x.amax(-1)), lines(dtype, LONGER[0]), dynamic=dynamic)
    assert "TilingKind.BLOCK" in kernel.text and "hl.Tuple" in kernel.text


@pytest.mark.parametrize("length", LONGER)
def test_the_largest_with_its_place(length: int, needs_intrinsics: None) -> None:
    """One number of 64 bits and one of 32, in one walk."""
    (kernel,) = check_values(lambda x: torch.max(x, -1), lines(torch.float32, length))
    assert "TilingKind.BLOCK" in kernel.text and "hl.Tuple" in kernel.text and "_numbered" in kernel.text


def test_numbers_that_leave_no_room_for_a_place_are_read_twice(needs_intrinsics: None) -> None:
    (kernel,) = check_values(lambda x: x.argmax(-1), lines(torch.float64, LENGTHS[0]))
    assert "TilingKind.BLOCK" in kernel.text and "_first" in kernel.text and "_numbered" not in kernel.text


def test_what_follows_from_a_line_reads_it_again(needs_intrinsics: None) -> None:
    """The two reductions read it once, and what is stored along it reads it once more."""

    def spread(x: Tensor) -> Tensor:
        least, largest = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        return (x - least) / (largest - least)

    (kernel,) = check_values(spread, torch.randn(2, LONGER[0]), tolerance=1e-6)
    assert "TilingKind.BLOCK" in kernel.text and "hl.Tuple" in kernel.text
