"""Loads under a mask of an outer loop, which read lines that are not clamped, and fusion that would cut lines."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for


def code_of(function: object, *arguments: Tensor) -> str:
    """The code of `function`, all of whose kernels are ours, and whose results are those of eager in float64."""
    found = compile_for("halide_backend", function)
    torch.testing.assert_close(found(*arguments), function(*(x.double() for x in arguments)).float())
    (code,) = found.codes
    assert "cpp_fused" not in code
    return code


@pytest.mark.parametrize("states", [16, 5])
def test_steps_of_a_scan(states: int) -> None:
    """One level of a scan by halves: each second step takes up the one before, but the last has none after it."""

    def step(x: Tensor, gates: Tensor) -> Tensor:
        odd, after = x[1::2] * gates[1::2], F.pad(x[2::2] * gates[2::2], (0, 0, 0, 0, 0, 1))
        return odd + after

    shape = (32, 20, states)
    code = code_of(step, torch.randn(shape), torch.randn(shape).sigmoid())
    assert f"hl.clamp(hl.likely(({40 * states}*x0 + {40 * states}))" in code


def windows_of_norms(x: Tensor, weight: Tensor) -> Tensor:
    """Windows of 7 x 7 pixels of a norm over channels."""
    n, c, h, w = x.shape
    rows = F.layer_norm(x.flatten(2).transpose(1, 2), (c,), weight) + 1
    return rows.view(n, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)


def test_a_norm_is_not_computed_in_windows() -> None:
    code = code_of(windows_of_norms, torch.randn(2, 48, 28, 28), torch.randn(48))
    assert code.count("\ndef algorithm") == 2  # Its pixels lie in lines of 784, and in windows in lines of 7.


def test_a_norm_that_lies_in_rows_is() -> None:
    x = torch.randn(2, 28, 28, 48).permute(0, 3, 1, 2)
    assert code_of(windows_of_norms, x, torch.randn(48)).count("\ndef algorithm") == 1


def test_slices_that_are_overwritten_are_read_by_rows_and_columns() -> None:
    """Parts of rows near the end, of images and channels that are one loop: what is read under two masks at once."""

    def overwritten(x: Tensor, ends: Tensor, rows: Tensor) -> Tensor:
        x = x.clone()
        x[:, :, -16:-8, :16] = ends[..., :16]
        x[:, :, -16:-8, -24:] = ends[..., 16:40]
        x[:, :, -8:] = rows
        return x

    code = code_of(overwritten, torch.randn(2, 3, 40, 64), torch.randn(2, 3, 8, 48), torch.randn(2, 3, 8, 64))
    assert "hl.clamp(hl.likely((x1 - 24)), 0, 7)*48 + hl.clamp(hl.likely((x2 - 24)), 0, 47)*1" in code


def test_sums_of_groups_do_not_cut_the_lines_of_channels() -> None:
    """A gradient of a group norm in channels-last form: 8 channels of each pixel are 32 bytes of a line."""

    def sums(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        both, alone = (x * y).sum((2, 3)), x.sum((2, 3))
        groups = ((both * weight).view(-1, 16, 8).sum(2), (alone * weight).view(-1, 16, 8).sum(2))
        return both, alone, *groups

    x, y = (torch.randn(2, 128, 12, 12).to(memory_format=torch.channels_last) for _ in range(2))
    found = compile_for("halide_backend", sums)
    wanted = sums(x.double(), y.double(), (weight := torch.randn(128)).double())
    for mine, eager in zip(found(x, y, weight), wanted):
        torch.testing.assert_close(mine.double(), eager, rtol=1e-5, atol=1e-4)
    (code,) = found.codes
    assert code.count("\ndef algorithm") == 2 and "cpp_fused" not in code
