"""Several data types in one kernel, and conversions between them."""

from __future__ import annotations

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Maker, Operands, matrices

_FLOAT32 = ("float32",)


def _wide_and(dtype: torch.dtype) -> Maker:
    return lambda make: (*make.matrices(1), *make.of(dtype).matrices(1))


def _pixels(make: Operands) -> tuple[Tensor, ...]:
    batch = max(1, make.elements // (3 * 64 * 64))
    return (torch.randint(0, 256, (batch, 63, 61, 3), device=make.device, dtype=torch.uint8),)


def _normalised(x: Tensor) -> Tensor:
    mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)
    deviation = torch.tensor([0.229, 0.224, 0.225], device=x.device)
    return ((x.float() / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()


def _updated(w: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    w = w - 0.1 * g.float()
    return w, w.bfloat16()


KERNELS = (
    Kernel("to_bfloat16", lambda x: x.bfloat16(), matrices(1), _FLOAT32),
    Kernel("from_bfloat16", lambda x: x.float(), matrices(1), ("bfloat16",)),
    Kernel("to_float16", lambda x: x.half(), matrices(1), ("float32", "bfloat16")),
    Kernel("add_bfloat16", lambda x, y: x + y * 2, _wide_and(torch.bfloat16), _FLOAT32),
    Kernel("add_float16", lambda x, y: x + y * 2, _wide_and(torch.float16), _FLOAT32),
    Kernel("scaled_int8", lambda x, y: x * y.float(), _wide_and(torch.int8), _FLOAT32),
    Kernel("gated_bool", lambda x, m: x * m, _wide_and(torch.bool), _FLOAT32),
    Kernel("int64_to_float", lambda x: x.float() * 0.5, matrices(1), ("int64",)),
    Kernel("int64_hash", lambda x: (x * 2654435761 + 97) & 1023, matrices(1), ("int64",)),
    Kernel("float64_exp", lambda x: torch.exp(x) * 2, matrices(1), ("float64",)),
    Kernel("pixels_normalised", _normalised, _pixels, _FLOAT32),
    Kernel("master_weights", _updated, _wide_and(torch.bfloat16), _FLOAT32),
)
