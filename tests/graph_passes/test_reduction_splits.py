"""Splits of long reductions on CUDA divide them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.virtualized import V

from halide_backend.graph_passes.reduction_splits import EvenSplits, choose_even_splits, near_divisor, parts


@pytest.mark.parametrize(
    ("number", "wanted", "got"),
    [
        (100_352, 13, 16),  # a batch of 32 images of 56 x 56: 14 divides too, in the middle of an image
        (1 << 24, 512, 512),
        (8192, 48, 64),
        (97, 13, 13),  # prime
        (1_047_424, 19, 16),  # 334 images of 56 x 56: 32 parts would end within vectors
        (100, 1, 1),
        (100, -1, -1),
    ],
)
def test_a_divisor_near_what_was_wanted(number: int, wanted: int, got: int) -> None:
    assert near_divisor(number, wanted) == got


def test_short_columns_are_one_part() -> None:
    """A second kernel would start after the first one is over."""
    assert parts(784, 32, 7, along_memory=False) == 1
    assert parts(784, 32, 7, along_memory=True) == 7
    assert parts(784, 32, 1, along_memory=False) == 1
    assert parts(512, 512, 4, along_memory=False) == 1  # 512 tokens, whose sums took 2.9 us in two kernels, 2.1 in one
    assert parts(256, 2048, 2, along_memory=False) == 1
    assert parts(512, 1536, 4, along_memory=False) > 1  # 9.1 us in one, 7.1 in two


def test_columns_are_one_part_where_their_blocks_are_enough() -> None:
    """Of a layer norm across memory (whisper, 512 and 384 channels first): its sums were added up by a kernel each."""
    assert parts(512, 6000, 4, along_memory=False) == parts(384, 1500, 24, along_memory=False) == 1
    assert parts(512, 512, 32, along_memory=False) == parts(2048, 1024, 8, along_memory=False) == 1
    assert parts(1000, 6144, 8, along_memory=False) > 1  # 6 million elements
    assert parts(2048, 1500, 8, along_memory=False) > 1  # 3 million, which 188 blocks of 8 columns read
    assert parts(4096, 512, 8, along_memory=False) > 1


@pytest.mark.parametrize(
    ("length", "results", "wanted", "got"),
    [
        (6144, 768, 48, 192),  # gradients of a layer norm in BERT
        (6304, 768, 50, 197),  # of a vision transformer's, 32 x 197 tokens
        (12_544, 240, 98, 392),  # of a batch norm: 784 parts would need a third kernel, 448 have 28 rows
        (50_176, 64, 392, 896),  # 1024 have 49 rows, which are no vectors where they lie along memory
        (6144, 6144, 8, 24),
        (1 << 20, 1, 4096, 4096),  # no fewer than Inductor's own
        (4099, 2000, 4, 4),  # a prime number of rows
    ],
)
def test_parts_of_columns_are_short(length: int, results: int, wanted: int, got: int) -> None:
    """Threads with a word of a row each had long ones to walk, or shared columns by single elements."""
    assert parts(length, results, wanted, along_memory=False) == got


class _Thirteen:
    """Choices of somebody else."""

    answer = 42

    def reduction_split_factor(self, *rest: Any, **named: Any) -> int:
        return 13


def test_only_graphs_of_this_backend_are_split_so() -> None:
    chosen = EvenSplits(_Thirteen()).reduction_split_factor
    device = torch.device("cuda", 0)
    with inductor_config.patch(cuda_backend="triton"):
        assert chosen(device, 100_352, 64, inner_reduction=True) == 13
    with inductor_config.patch(cuda_backend="halide_backend"):
        assert chosen(device, 100_352, 64, inner_reduction=True) == 16
        assert chosen(device, 1000, 64, inner_reduction=False) == 1
        assert chosen(torch.device("cpu"), 100_352, 64, inner_reduction=True) == 13


def test_other_choices_stay() -> None:
    assert EvenSplits(_Thirteen()).answer == 42
    assert EvenSplits(V.choices).should_use_persistent_reduction == V.choices.should_use_persistent_reduction


def test_the_choices_are_installed_once() -> None:
    before = V.choices
    with V.set_choices_handler(before):
        choose_even_splits()
        once = V.choices
        choose_even_splits()
        assert isinstance(once, EvenSplits) and V.choices is once
    assert V.choices is before
