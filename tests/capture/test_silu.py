"""SiLU beside the sigmoid of the same x shares its exponential; elsewhere it is torch's formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

SPECIAL = [0.0, -0.0, 1e-30, 3.0, -3.0, 17.0, -87.0, -95.0, 88.0, -1e4, 1e4, float("inf"), float("-inf"), float("nan")]


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_swiglu_are_those_of_float64(compiled: Any, dtype: torch.dtype) -> None:
    x = torch.cat((torch.tensor(SPECIAL), torch.randn(1000) * 20)).to(dtype)
    y, gradient = (torch.randn(x.shape, dtype=dtype) for _ in range(2))

    def derivative(x: Tensor, y: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vjp(swiglu, x, y)[1](gradient)

    found = compiled(derivative, x, y, gradient)
    assert found.code.count("ops.sigmoid(") == 1 and "ops.exp(" not in found.code
    wide = (a.double() for a in (x, y, gradient))
    tolerance = 5e-6 if dtype == torch.float32 else 1e-14
    for one, truth in zip(found.results, derivative(*wide)):
        # x (1 - sigmoid(x)) of torch's formula is -inf at -inf, and inf times 0 at inf.
        finite = torch.isfinite(x)
        torch.testing.assert_close(one[finite].double(), truth[finite], rtol=tolerance, atol=tolerance / 10)
        assert torch.equal(one[~finite].isnan(), truth[~finite].isnan())


def test_a_sigmoid_that_comes_after_the_product_is_computed_before_it(compiled: Any) -> None:
    x, y, gradient = (torch.randn(1000) * 20 for _ in range(3))
    x[: len(SPECIAL)] = torch.tensor(SPECIAL)

    def recomputed(x: Tensor, y: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        product = gradient * F.silu(x)
        sigmoid = x.sigmoid()
        return product, gradient * y * sigmoid * (x * (1 - sigmoid) + 1)

    found = compiled(recomputed, x, y, gradient)
    assert found.code.count("ops.sigmoid(") == 1 and "ops.exp(" not in found.code
    finite = torch.isfinite(x)
    for one, truth in zip(found.results, recomputed(x.double(), y.double(), gradient.double())):
        torch.testing.assert_close(one[finite].double(), truth[finite], rtol=5e-6, atol=5e-7)


def test_elements_of_16_bits_share_it_as_well(compiled: Any) -> None:
    x, y, gradient = (torch.randn(1000).bfloat16() for _ in range(3))
    found = compiled(lambda x, y, g: torch.func.vjp(swiglu, x, y)[1](g), x, y, gradient)
    assert found.code.count("ops.sigmoid(") == 1 and "ops.exp(" not in found.code
    truth = torch.func.vjp(swiglu, x.double(), y.double())[1](gradient.double())
    for one, wanted in zip(found.results, truth):
        torch.testing.assert_close(one.double(), wanted, rtol=2.0**-7, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.sigmoid(), y / (1 + (-x).exp())),
        lambda x, y: (x.sigmoid(), y / (1 + (-y).exp())),
        lambda x, y: (x.sigmoid(), x / (2 + (-x).exp())),
        lambda x, y: (x.sigmoid(), x / (1 + x.exp())),
    ],
    ids=["other dividend", "other x", "no one", "no negative"],
)
def test_other_quotients_stay(compiled: Any, function: Any) -> None:
    x, y = torch.randn(500), torch.randn(500)
    found = compiled(function, x, y)
    assert "ops.exp(" in found.code and "ops.truediv(" in found.code
    for one, wanted in zip(found.results, function(x, y)):
        torch.testing.assert_close(one, wanted)
