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
