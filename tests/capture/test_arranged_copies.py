"""What only arranges elements in lines of a few is a kernel of its own: flat loops keep vectors along their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config

import halide_backend


def windows(x: Tensor, rows: int = 7) -> Tensor:
    """The pixels of a picture, those of each window of 7 x `rows` side by side."""
    batch, channels, height, width = x.shape
    parts = x.view(batch, channels, height // 7, 7, width // rows, rows)
    return parts.permute(0, 1, 2, 4, 3, 5).contiguous().view(batch, -1)


def sums(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """Windows to which two others are added, with the moments of all, as between the layers of a network."""
    w = windows(x)
    return w, w + y, w + y + z, *torch.var_mean(w + y + z, 1)


CASES: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "windows": (sums, 28, True),
    # Lines of 28 are whole vectors.
    "long lines": (lambda x, y, z: (windows(x, 28), windows(x, 28) + y, windows(x, 28) * z), 28, False),
    # It is computed on the way, and stored in no other form.
    "products": (lambda x, y, z: windows(x) * y + z, 28, False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("function", "side", "alone"), CASES.values(), ids=CASES)
def test_kernels(function: Callable[..., Any], side: int, alone: bool, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    halide_backend.reset_stats()
    generator = torch.Generator().manual_seed(0)
    # Their sums are exact in bfloat16, where eager rounds each.
    x = torch.randint(-8, 9, (2, 3, side, side), generator=generator).to(dtype)
    y, z = (torch.randint(-8, 9, (2, 3 * side * side), generator=generator).to(dtype) for _ in range(2))
    with inductor_config.patch(force_disable_caches=True):
        torch.testing.assert_close(torch.compile(function, backend="halide_backend")(x, y, z), function(x, y, z))
    stats = halide_backend.stats()
    assert stats["delegated_kernels"] == 0 and not stats["unfusing_reasons"]
    programs = [record.program for record in halide_backend.records() if record.program is not None]
    assert len(programs) == (2 if alone else 1)
    if alone:
        (flat,) = (program for program in programs if len(program.stores) > 1)
        assert len(flat.axes) <= 2
