"""What functions of one argument are, by torch's in float64, and names of theirs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BESSEL_FUNCTIONS = [torch.special.i0, torch.special.i0e, torch.special.i1, torch.special.i1e]
SPECIAL_FUNCTIONS = [torch.digamma, torch.erfc, torch.special.erfcx, torch.erfinv, torch.lgamma, *BESSEL_FUNCTIONS]


def name(function: Callable[[Tensor], Tensor]) -> str:
    """What the operation is called."""
    return function.__name__.removeprefix("special_")


def truth(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of `x` in float64; where torch has NaN for i0 and i1, of infinities, and no sign for i1 of -0.0, what
    is right, as the CPU's functions have it."""
    wide = x.double()
    y = function(wide)
    if function in (torch.special.i0, torch.special.i1):
        y = torch.where(wide.isinf(), torch.inf, y)
    return torch.copysign(y, wide) if function in (torch.special.i1, torch.special.i1e) else y
