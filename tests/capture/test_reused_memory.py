"""Outputs that take an input's place, also by way of values that only the kernel has."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halide_backend.inspection.compiled import compile_for


class Layers(nn.Module):
    """A convolution, whose result nothing else needs, what follows it, and a convolution of that."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.norm, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Conv2d(32, 4, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.norm(self.first(x))))


def shifted(x: Tensor) -> Tensor:
    """Every element is needed after its own place is written."""
    return F.silu(x) + F.silu(x).roll(1, -1)


CASES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "activation": (F.silu, 0),
    "mean beside it": (lambda x: F.silu(x) * F.silu(x).mean((2, 3), keepdim=True), 1),
    "neighbours": (shifted, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_memory_of_a_result_that_nothing_else_needs(name: str) -> None:
    between, allocated = CASES[name]
    model = Layers(between).eval()
    compiled = compile_for("halide_backend", model)
    x = torch.randn(2, 3, 9, 13)
    with torch.no_grad():
        found = compiled(x)
        exact = model.double()(x.double())
    torch.testing.assert_close(found.double(), exact, rtol=2e-5, atol=2e-5)
    (code,) = compiled.codes
    assert len(re.findall(r"empty_strided_cpu\(\(2, 32, ", code)) == allocated
