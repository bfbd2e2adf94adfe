"""Flex attention is Inductor's own template's on a CPU; what surrounds it is native."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import halide_backend


def plain(q: Tensor) -> Tensor:
    return flex_attention(q, q, q)


def biased(q: Tensor) -> Tensor:
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)


def causal(q: Tensor) -> Tensor:
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, q.shape[2], q.shape[2], device="cpu")
    return flex_attention(q, q, q, block_mask=mask)


@pytest.mark.parametrize("function", [plain, biased, causal])
def test_values_and_neighbours(function: Callable[[Tensor], Tensor]) -> None:
    def block(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(function(torch.tanh(x) * 2) @ w, -1)

    x, w = torch.randn(1, 2, 128, 32), torch.randn(32, 16)
    halide_backend.reset_stats()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(block)(x, w), block(x, w))
    stats = halide_backend.stats()
    assert stats["delegated_templates"] == 1
    assert stats["native_kernels"] >= 2
    assert inductor_config.cpu_backend == "halide_backend"
