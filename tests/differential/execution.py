"""Runs a program and collects all that it gives."""

from __future__ import annotations

import torch


def outputs(function, arguments: list[torch.Tensor], gradients: bool) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    """What the function returns, what is in its arguments afterwards, and the gradients of the arguments."""
    if not gradients:
        results = list(function(*arguments))
        return [*results, *arguments]
    leaves = [a.requires_grad_() if a.is_floating_point() else a for a in arguments]
    results = list(function(*leaves))
    loss = sum(
        (result * weights(result)).sum() for result in results if result.is_floating_point() and result.requires_grad
    )
    if isinstance(loss, torch.Tensor):
        loss.backward()
    found = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return [result.detach() for result in results] + found


def weights(result: torch.Tensor) -> torch.Tensor:
    """Fixed numbers near 1, exact in every floating-point type."""
    cycle = torch.arange(result.numel(), dtype=torch.float32) % 5
    return (0.5 + cycle / 4).to(result.dtype).view(result.shape)
