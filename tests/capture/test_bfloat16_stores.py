"""bfloat16 numbers are stored as they are, all others rounded: every bit pattern there is, NaNs and denormals too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.inspection.compiled import compile_for

PATTERNS = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)

KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "pad": lambda x: torch.nn.functional.pad(x, (3, 5), value=0.5),
    "where": lambda x: torch.where(torch.isnan(x), x, 1.5),
    "absolute": lambda x: x.abs(),
    "transpose": lambda x: x.view(256, 256).t().contiguous(),
}
NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "limits": lambda x: x.clamp(-2, 3.5),
    "relu": lambda x: x.relu(),
    "larger": lambda x: torch.maximum(x, x.flip(0)),
    "negative": lambda x: -x,
}
ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "clamped between": lambda x: x.float().clamp(0.1, 3.3).bfloat16(),
    "chosen": lambda x: torch.where(torch.isnan(x), 0.1, x.float()).bfloat16(),
    "sum": lambda x: x + 0.75,
    "from float16": lambda x: x.view(torch.float16).bfloat16(),
    "bits as integers": lambda x: x.view(torch.int16).bfloat16(),
}


def run(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, str]:
    result = compile_for("halide_backend", function)(PATTERNS)
    return result, halide_backend.records()[-1].text


@pytest.mark.parametrize("name", KEPT)
def test_what_is_bfloat16_already_is_stored_as_it_is(name: str) -> None:
    result, text = run(KEPT[name])
    assert "ops.upper_half(" in text and "ops.stored(" not in text
    assert torch.equal(result.view(torch.int16), KEPT[name](PATTERNS).view(torch.int16))


@pytest.mark.parametrize("name", [*NUMBERS, *ROUNDED])
def test_numbers_are_those_of_eager(name: str) -> None:
    """Which NaN is a result is left open."""
    function = {**NUMBERS, **ROUNDED}[name]
    result, text = run(function)
    assert (name in ROUNDED) == ("ops.stored(" in text or "'bfloat16', t" in text)
    wanted = function(PATTERNS)
    nan = torch.isnan(wanted)
    assert torch.equal(torch.isnan(result), nan)
    assert torch.equal(result[~nan].view(torch.int16), wanted[~nan].view(torch.int16))
