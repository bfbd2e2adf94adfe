"""Two words are moved as one number of 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from kernel_values import check_values
from torch import Tensor

BFLOAT16, FLOAT32, INT8 = torch.bfloat16, torch.float32, torch.int8


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 7 % 50).to(dtype)


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "loads", "stores"),
    [
        # A vector of the wider type is stored by adjacent threads.
        (lambda x: x.float(), (16, 96), BFLOAT16, r"b64", r"v2\.b64|v4\.b32"),
        (lambda x: x.double(), (16, 96), FLOAT32, r"b64", r"v2\.b64|v4\.b32"),
        (lambda x: x.to(torch.bfloat16), (16, 96), FLOAT32, r"v2\.b64|v4\.b32", r"b64"),
        (lambda x: (x * 2).to(torch.int8), (16, 96), BFLOAT16, r"v2\.b64|v4\.b32", r"b64"),
        # Rows that whole vectors do not divide.
        (lambda x: x[:, :100] * 2, (40, 104), BFLOAT16, r"b64", r"b64"),
        # Lines of a thread group stay in words: with pairs and half as many threads 55.6 us, 39.2 us (centred_100).
        (lambda x: x - x.sum(-1, keepdim=True), (40, 100), BFLOAT16, r"b32", r"b32"),
        (lambda x: x.amax(0) * 2, (40, 12), BFLOAT16, r"b\d+", r"b\d+"),
        # Every other element: the vectors that hold them are adjacent.
        (lambda x: x[:, ::2] * 2, (16, 96), BFLOAT16, r"v2\.b64|v4\.b32", r"b64"),
    ],
)
def test_values_and_instructions(
    function: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    loads: str,
    stores: str,
    needs_intrinsics: None,
) -> None:
    (kernel,) = check_values(function, numbers(shape, dtype))
    for name, wanted in (("ld", loads), ("st", stores)):
        found = re.findall(rf"\b{name}\.global[\w.:]*?\.((?:v\d\.)?[bsuf]\d+)", kernel.code)
        assert found and all(re.fullmatch(wanted, each) for each in found), (name, found)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, torch.int64], ids=str)
def test_rows_of_six_in_dynamic_dimensions(dtype: torch.dtype, needs_intrinsics: None) -> None:
    check_values(lambda x: x.transpose(0, 1).contiguous() * 2, numbers((5, 7, 6), dtype), dynamic=True)
    check_values(lambda x: x[:, : x.shape[1] // 2 * 2] + 1, numbers((5, 14), dtype), dynamic=True)


def test_bytes_are_taken_from_words(needs_intrinsics: None) -> None:
    """LLVM made 209 instructions of this for 16 bytes: it took each byte from all 64 bits."""
    (kernel,) = check_values(lambda x: x.clamp(-3, 5), numbers((16, 96), INT8))
    # One shift for the upper word of what is loaded, at most one for that of what is stored.
    assert len(re.findall(r"\b(?:sh[lr]|bfe|bfi|and|or|cvt)\.\w*64", kernel.code)) <= 8, kernel.code
