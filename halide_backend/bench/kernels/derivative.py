"""Backward kernels: the gradients of a function as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def derivative(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """The gradients of `function` in all its arguments, for a gradient of its result that comes last."""

    def backward(*arguments: Tensor) -> Any:
        *inputs, gradient = arguments
        return torch.func.vjp(function, *inputs)[1](gradient)

    return backward
