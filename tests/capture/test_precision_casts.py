"""Operations on 16-bit floats are computed as float32, and rounded one by one where Inductor asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend.inspection.compiled import compile_for


def quantised(x: Tensor, _: Tensor) -> Tensor:
    """127.5 would be 128, which int8 does not hold: a largest element that eager's quotient rounds up is left out."""
    blocks = x.view(x.shape[0], -1, 32)
    return (blocks / (blocks.abs().amax(-1, keepdim=True) / 120)).round().to(torch.int8)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sums": lambda x, y: (x + y) * y - x,
    "numbers": lambda x, y: (x * 0.1 + 3) / (y.abs() + 1),
    "through float32": lambda x, y: ((x + y).float() * 3).to(x.dtype) + y,
    "rows": lambda x, y: (x * y).amax(-1, keepdim=True) * x,
    "quantised": quantised,
}


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(33, 96, generator=generator).to(dtype) for _ in range(2))
    return x, y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_operation_rounds_as_eager_does(name: str, dtype: torch.dtype, dynamic: bool) -> None:
    arguments, function = operands(dtype), FUNCTIONS[name]
    with inductor_config.patch(emulate_precision_casts=True, force_disable_caches=True):
        torch._dynamo.reset()
        result = compile_for("halide_backend", function, dynamic=dynamic)(*arguments)
    assert halide_backend.records()[-1].text
    assert torch.equal(result, function(*arguments))


@pytest.mark.parametrize("dynamic", [False, True])
def test_otherwise_codes_are_those_of_exact_arithmetic(dynamic: bool) -> None:
    """Eager, which rounds the scale and the quotient to bfloat16, has another code for one element of nine."""
    x, y = operands(torch.bfloat16)
    result = compile_for("halide_backend", quantised, dynamic=dynamic)(x, y)
    exact = quantised(x.double(), y)
    assert (result != exact).float().mean() < 0.002 and (result.int() - exact.int()).abs().max() <= 1
    assert (quantised(x, y) != exact).float().mean() > 0.1


@pytest.mark.skipif(
    not hasattr(inductor_config, "emulate_precision_casts_on_saved_tensors"), reason="torch has no such option"
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_what_is_saved_for_the_gradient_is_what_the_forward_pass_goes_on_with(dtype: torch.dtype) -> None:
    """The difference is saved, which is less than the two products; the sine is that of the stored difference."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        difference = x @ y.t() - y @ x.t()
        return difference.sin() * difference

    x, y = (each.requires_grad_() for each in operands(dtype))
    with inductor_config.patch(force_disable_caches=True):
        result = compile_for("halide_backend", function)(x, y)
    difference = (x @ y.t() - y @ x.t()).detach().float()
    torch.testing.assert_close(result, (difference.sin() * difference).to(dtype), rtol=torch.finfo(dtype).eps, atol=0)
