"""Splits of long reductions on CUDA divide them."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.choices import InductorChoices

from halide_backend.capture import reduction_splits
from halide_backend.capture.reduction_splits import near_divisor


@pytest.mark.parametrize(
    ("number", "wanted", "got"),
    [
        (100_352, 13, 16),  # a batch of 32 images of 56 x 56: 14 divides too, in the middle of an image
        (1 << 24, 512, 512),
        (8192, 48, 64),
        (97, 13, 13),  # prime
        (100, 1, 1),
        (100, -1, -1),
    ],
)
def test_a_divisor_near_what_was_wanted(number: int, wanted: int, got: int) -> None:
    assert near_divisor(number, wanted) == got


def test_only_graphs_of_this_backend_are_split_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InductorChoices, "reduction_split_factor", staticmethod(lambda *rest, **named: 13))
    reduction_splits.install()
    chosen = InductorChoices.reduction_split_factor
    device = torch.device("cuda", 0)
    with inductor_config.patch(cuda_backend="triton"):
        assert chosen(device, 100_352, 64, inner_reduction=True) == 13
    with inductor_config.patch(cuda_backend="halide_backend"):
        assert chosen(device, 100_352, 64, inner_reduction=True) == 16
        assert chosen(torch.device("cpu"), 100_352, 64, inner_reduction=True) == 13
    once = InductorChoices.__dict__["reduction_split_factor"]
    reduction_splits.install()
    assert InductorChoices.__dict__["reduction_split_factor"] is once
