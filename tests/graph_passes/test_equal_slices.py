"""Elements at every n-th place of rows of dynamic length: what takes as many from each place is one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.kernel_records.journal import journal


def turned(x: Tensor, angles: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = angles[:, ::2], angles[:, 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def haar(x: Tensor, y: Tensor) -> Tensor:
    even, odd = (x * y)[..., ::2], (x * y)[..., 1::2]
    return torch.cat((even + odd, even - odd), -1)


def gray(x: Tensor, y: Tensor) -> Tensor:
    z = x + y
    return torch.stack((z[..., ::3] + z[..., 1::3], z[..., 1::3] * z[..., 2::3]), -1)


def rows(x: Tensor, y: Tensor) -> Tensor:
    """Of rows, not of what is in them."""
    return torch.cat((x[:, ::2] * y[1::2], x[:, 1::2] - y[1::2]), -1)


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "turned": (turned, 2),
    "haar": (haar, 2),
    "gray": (gray, 3),
    "rows": (rows, 1),
}


@pytest.mark.parametrize(("function", "step"), CASES.values(), ids=CASES)
def test_one_kernel_with_the_values_of_all_sizes(function: Callable[[Tensor, Tensor], Tensor], step: int) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    journal.reset()
    for batch, tokens, length in ((3, 20, 66), (3, 20, 60), (5, 4, 12), (2, 2, 6), (1, 38, 1200)):
        x, y = torch.randn(batch, tokens, length), torch.randn(tokens, length)
        torch.testing.assert_close(compiled(x, y), function(x, y))
    assert not compiled.delegated
    assert len(journal.records()) == len(compiled.codes)


def test_other_lengths_than_the_guard_allows() -> None:
    """An odd row has a longer first part: torch refuses to stack both, and what needs no such guard is as before."""

    def halves(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, ::2] * 2, x[:, 1::2] + 1

    compiled = compile_for("halide_backend", halves, dynamic=True)
    for length in (66, 67, 9, 12, 3):
        x = torch.randn(20, length)
        torch.testing.assert_close(compiled(x), halves(x))
    both = compile_for("halide_backend", turned, dynamic=True)
    both(torch.randn(3, 20, 66), torch.randn(20, 66))
    with pytest.raises(RuntimeError):
        both(torch.randn(3, 20, 67), torch.randn(20, 67))
    assert not compiled.delegated and not both.delegated
