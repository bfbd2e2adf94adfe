"""Whether results are those of eager in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: (relative, absolute) tolerance against eager in float32, the absolute one in units of the mean of what is not zero.
_TOLERANCE = {
    torch.float32: (2e-4, 2e-4),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (4e-3, 4e-3),
    torch.float64: (1e-6, 1e-6),
    torch.int8: (0, 1),
    torch.uint8: (0, 1),
}


def widened(arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Copies of the arguments, narrow floats as float32."""
    narrow = (torch.bfloat16, torch.float16)
    return tuple(a.float() if a.dtype in narrow else a.clone(memory_format=torch.preserve_format) for a in arguments)


def tensors(value: Any) -> list[Tensor]:
    """The tensors in nested tuples and lists."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors(part)]


def disagreement(got: Any, wanted: Any) -> str:
    """What differs, a line for each result; empty if they agree."""
    found, expected = tensors(got), tensors(wanted)
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    lines = (_difference(g, w) for g, w in zip(found, expected, strict=True))
    return "\n".join(f"result {number}: {line}" for number, line in enumerate(lines) if line)


def _difference(got: Tensor, wanted: Tensor) -> str:
    if got.shape != wanted.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
    if got.dtype not in _TOLERANCE:
        return "" if torch.equal(got, wanted.to(got.dtype)) else f"{got.dtype} results differ"
    relative, absolute = _TOLERANCE[got.dtype]
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    scale = 1.0
    if got.is_floating_point() and wanted.numel():
        # Atomic additions to one place come in any order, and a scatter leaves most of its result zero.
        sizes = wanted.to(wide).abs().nan_to_num(0, 0, 0)
        scale = max(1.0, float(sizes.sum() / sizes.count_nonzero().clamp(min=1)))
    try:
        torch.testing.assert_close(got.to(wide), wanted.to(wide), rtol=relative, atol=absolute * scale, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""
