"""Gradients of depthwise filters: which are loops of this backend, and that they are those of float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halide_backend
from halide_backend.inspection.compiled import Compiled, compile_for

_BACKWARD = torch.ops.aten.convolution_backward.default


def backward_step(
    channels: int = 64,
    kernel: tuple[int, int] = (7, 7),
    *,
    multiplier: int = 1,
    groups: int = 0,
    mask: tuple[bool, bool, bool] = (True, True, True),
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    backend: str = "halide_backend",
    **steps: Any,
) -> tuple[Compiled, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The compiled step, its operands (gradient, input, weight), and the exact gradients that `mask` asks for."""
    torch.manual_seed(0)
    groups = groups or channels
    x = torch.randn(2, channels, 11, 13, dtype=dtype)
    weight = torch.randn(channels * multiplier, channels // groups, *kernel, dtype=dtype)
    bias = torch.zeros(channels * multiplier)
    operands = [each.double().requires_grad_() for each in (x, weight, bias)]
    result = F.conv2d(*operands, groups=groups, **steps)
    gradient = torch.randn(result.shape).to(dtype)
    exact = torch.autograd.grad(result, operands, gradient.double())
    stride, padding, dilation = ([*_pair(steps.get(n, d))] for n, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    if channels_last:
        x, gradient = (each.contiguous(memory_format=torch.channels_last) for each in (x, gradient))

    def step(gradient: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
        sizes = [weight.shape[0]]
        found = _BACKWARD(gradient, x, weight, sizes, stride, padding, dilation, False, [0, 0], groups, list(mask))
        return [each for each, wanted in zip(found, mask, strict=True) if wanted]

    wanted = tuple(each for each, want in zip(exact, mask, strict=True) if want)
    # Elsewhere bfloat16 may be computed in float32.
    options = {"halide_backend.bfloat16_products": "bfloat16"}
    return compile_for(backend, step, options=options), (gradient, x, weight), wanted


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"padding": 3},
        {"padding": 3, "channels_last": False},
        {"padding": (3, 1), "stride": (1, 2), "channels": 80},
        {"padding": (0, 6), "dilation": (1, 2)},
        {"padding": 2, "kernel": (5, 5), "stride": 2},
        {"padding": (1, 4), "kernel": (3, 9)},
        {"padding": 2, "kernel": (5, 5), "stride": 2, "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_gradients_are_those_of_float64(arguments: dict[str, Any]) -> None:
    halide_backend.reset_stats()
    compiled, operands, exact = backward_step(**arguments)
    found = compiled(*operands)
    error = 2**-8 if arguments.get("dtype") == torch.bfloat16 else 2e-6
    most = [error * float(truth.abs().max()) for truth in exact]
    # Without AVX-512 the library rounds more than once what it adds up for the input.
    library, *_ = backward_step(**arguments, backend="eager")[0](*operands)
    most[0] = max(most[0], float((library.double() - exact[0]).abs().max()))
    for value, truth, bound in zip(found, exact, most, strict=True):
        assert value.shape == truth.shape
        torch.testing.assert_close(value.double(), truth, rtol=0, atol=bound)
    (code,) = compiled.codes
    assert "[True, False, False]" in code
    assert not halide_backend.stats()["delegated_kernels"]


def test_nothing_is_left_of_a_step_without_a_gradient_of_the_input() -> None:
    compiled, operands, exact = backward_step(padding=3, mask=(False, True, False))
    (found,) = compiled(*operands)
    torch.testing.assert_close(found.double(), exact[0], rtol=0, atol=2e-6 * float(exact[0].abs().max()))
    (code,) = compiled.codes
    assert "convolution_backward" not in code


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel": (3, 3), "padding": 1},
        {"padding": 3, "multiplier": 2},
        {"padding": 3, "groups": 32},
        {"padding": 3, "channels": 37},
        {"padding": 3, "channels": 32},
        {"padding": 3, "dtype": torch.float64},
        {"padding": 3, "mask": (True, False, True)},
    ],
    ids=str,
)
def test_others_are_the_librarys(arguments: dict[str, Any]) -> None:
    compiled, operands, exact = backward_step(**arguments)
    found = compiled(*operands)
    for value, truth in zip(found, exact, strict=True):
        torch.testing.assert_close(value.double(), truth, rtol=0, atol=1e-5 * float(truth.abs().max()))
    (code,) = compiled.codes
    assert "convolution_backward" in code
    assert "[True, False, False]" not in code


def test_training_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.GELU())
    x = torch.randn(2, 3, 32, 32)
    exact = torch.autograd.grad((model.double()(x.double()) ** 2).mean(), list(model.parameters()))
    model.float()

    def step(x: Tensor) -> Tensor:
        return (model(x) ** 2).mean()

    compiled = compile_for("halide_backend", step)
    found = torch.autograd.grad(compiled(x), list(model.parameters()))
    for value, truth in zip(found, exact, strict=True):
        torch.testing.assert_close(value.double(), truth, rtol=0, atol=5e-6 * float(truth.abs().max()))
    assert any("[True, False, False]" in code for code in compiled.codes)
