"""Special functions on a GPU against torch's in float64: every bfloat16, and float32 and float64 of all sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.gpu
Native = Callable[[], int]
Function = Callable[[Tensor], Tensor]

#: Largest errors in ulps, of 1 where the result is less and the argument negative for those with zeros there.
MOST = {
    **dict.fromkeys((torch.digamma, torch.erfc, torch.special.erfcx, torch.lgamma), 0.503),
    **dict.fromkeys((torch.special.i0e, torch.special.i1e), 0.503),
    torch.erfinv: 0.51,
}
SINES = (torch.sin, torch.cos, torch.tan)


def run(function: Function, x: Tensor) -> Tensor:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)(x)


def ulp(size: Tensor) -> Tensor:
    """The unit of the last place of float32."""
    _, exponent = torch.frexp(size)
    return torch.ldexp(torch.ones_like(size), (exponent - 24).clamp(min=-149))


@pytest.mark.parametrize("function", MOST, ids=lambda function: function.__name__)
def test_every_bfloat16(native: Native, function: Function) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32, device="cuda").to(torch.int16).view(torch.bfloat16)
    found, exact = run(function, x), function(x.double()).bfloat16()
    if function is torch.special.i1e:
        # An odd function, which torch's is not at -0.0.
        exact = torch.copysign(exact, x)
    number = ~exact.isnan()
    assert native() == 1
    assert torch.equal(found.isnan(), ~number)
    torch.testing.assert_close(found, exact, rtol=2**-7, atol=2e-38, equal_nan=True)
    assert torch.equal(torch.signbit(found[number]), torch.signbit(exact[number]))
    assert float((found != exact)[number].float().mean()) < 0.01


@pytest.mark.parametrize("function", MOST, ids=lambda function: function.__name__)
def test_float32(native: Native, function: Function) -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (2**22,), device="cuda").int().view(torch.float32)
    usual = torch.empty(2**22, device="cuda").uniform_(-10, 10)
    x = torch.cat((bits, usual, usual / 10))
    found, wanted = run(function, x), function(x.cpu().double()).cuda()
    assert native() == 1
    assert torch.equal(found.isnan(), wanted.isnan())
    number = wanted.float().isfinite()
    assert torch.equal(found.isfinite(), number)
    size = wanted.abs()
    if function in (torch.digamma, torch.lgamma):
        size = torch.where(x < 0, size.clamp(min=1), size)
    errors = (found.double() - wanted).abs() / ulp(size)
    assert float(errors[number].max()) < MOST[function]


@pytest.mark.parametrize("function", SINES, ids=lambda function: function.__name__)
def test_angles_of_float64(native: Native, function: Function) -> None:
    """Within 2 ulp of the C library's."""
    sizes = torch.randint(-(2**63), 2**63 - 1, (2**18,), device="cuda").view(torch.float64)
    x = torch.cat((sizes, torch.empty(2**18, device="cuda", dtype=torch.float64).uniform_(-100, 100)))
    found, wanted = run(function, x), function(x.cpu()).cuda()
    assert native() == 1
    torch.testing.assert_close(found, wanted, rtol=2.0**-51, atol=0, equal_nan=True)
