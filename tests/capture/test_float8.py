"""The 8-bit floats: every byte, every rounding, and what is fused around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend.program.dtypes import FLOAT8

Check = Callable[..., dict[str, Any]]
#: Before 2.13, where e4m3fn does not saturate, it is left to Inductor's own backend.
NATIVE = sorted(FLOAT8 if torch.__version__ >= "2.13" else FLOAT8 - {"float8_e4m3fn"})
DTYPES = [getattr(torch, name) for name in NATIVE]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_byte_is_read_as_eager_reads_it(dtype: torch.dtype) -> None:
    codes = torch.arange(256).to(torch.uint8).view(dtype)
    values = torch.compile(lambda x: x.to(torch.float32))(codes)
    expected = codes.to(torch.float32)
    assert torch.equal(values.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(values.view(torch.int32)[numbers], expected.view(torch.int32)[numbers])


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_rounding_is_eagers(dtype: torch.dtype, source: torch.dtype) -> None:
    """All numbers of the format, the middles between two and their neighbours, and random bits."""
    numbers = torch.arange(256).to(torch.uint8).view(dtype).to(torch.float32)
    numbers = numbers[numbers.isfinite()].sort().values
    middles = (numbers[1:] + numbers[:-1]) / 2
    infinity = float("inf")
    ends = torch.tensor([0.0, -0.0, infinity, -infinity, float("nan"), 3e38, -3e38, 1e-45, 464.0, 480.0, 61440.0])
    exact = torch.cat([numbers, middles, ends])
    beside = [torch.nextafter(exact, torch.full_like(exact, far)) for far in (infinity, -infinity)]
    random = torch.randint(-(2**31), 2**31, (1 << 20,), generator=torch.Generator().manual_seed(8)).to(torch.int32)
    x = torch.cat([exact, *beside, random.view(torch.float32)]).to(source)
    rounded = torch.compile(lambda x: x.to(dtype))(x)
    differ = (rounded.view(torch.uint8) != x.to(dtype).view(torch.uint8)).nonzero().flatten()
    assert len(differ) == 0, [(x[i].item(), rounded[i].view(torch.uint8).item()) for i in differ[:8]]


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    """How a linear layer quantises: by row, to the format's range, and back."""
    scale = x.abs().amax(dim=1, keepdim=True) / 240
    return (x / scale).to(torch.float8_e4m3fnuz).to(torch.float32) * scale + weight.to(torch.float32)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "scaled by row": scaled,
    "transposed": lambda x, w: (w.t().to(torch.float32) + x.t()).to(torch.float8_e5m2).to(torch.float32),
    "concatenated": lambda x, w: torch.cat([w, w], 1).to(torch.float32),
    "indexed": lambda x, w: w[torch.tensor([2, 0, 1])].to(torch.float32).sum(0),
    "viewed as bytes": lambda x, w: w.view(torch.uint8) + 1,
    "viewed from bytes": lambda x, w: (w.view(torch.uint8) ^ 1).view(torch.float8_e5m2).to(torch.float32),
    "through int8": lambda x, w: w.to(torch.int8),
    "from int64": lambda x, w: (x * 9).to(torch.int64).to(torch.float8_e5m2).to(torch.float32),
    "to bool": lambda x, w: w.to(torch.bool),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_around_them(check: Check, name: str) -> None:
    weight = torch.randn(33, 17, generator=torch.Generator().manual_seed(3)).to(torch.float8_e5m2)

    def function(x: Tensor, weight: Tensor) -> Any:
        return FUNCTIONS[name](x, weight.view(torch.float8_e5m2))

    check(function, torch.randn(33, 17), weight.view(torch.uint8))
