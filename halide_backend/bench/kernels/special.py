"""What is checked and not timed: NaN, infinity, denormal numbers, a few elements, strides, operands that change."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Maker, Operands

_NUMBERS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 3e38, -1.5]

_OF_SPECIAL_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "minimum": lambda x: torch.minimum(x, x.flip(-1)),
    "exp": torch.exp,
    "log": torch.log,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "row_max": lambda x: x.amax(-1),
    "argmax": lambda x: x.argmax(-1),
    "softmax": lambda x: torch.softmax(x, -1),
    "to_bfloat16": lambda x: (x * 1.0).bfloat16(),
    "to_float16": lambda x: (x * 1.0).half(),
    "difference": lambda x: x - x,
    "isnan": torch.isnan,
}


def _special(make: Operands) -> tuple[Tensor, ...]:
    return (torch.tensor(_NUMBERS * 1024, device=make.device).reshape(-1, 64),)


def _checked(
    name: str, function: Callable[..., object], operands: Maker, *dtypes: str, compared: bool = True
) -> Kernel:
    return Kernel(name, function, operands, dtypes or ("float32",), fixed=True, compared=compared, timed=False)


def _scattered(make: Operands) -> tuple[Tensor, ...]:
    return (make(1000, 64), make.indices(5000, 1000), make(5000, 64))


KERNELS = (
    *(_checked(f"special_{name}", function, _special) for name, function in _OF_SPECIAL_NUMBERS.items()),
    _checked("in_place", lambda x: x.add_(1).mul_(2), lambda make: (make(1000, 64),)),
    _checked("scalar", lambda x: x * 2 + 1, lambda make: (make(),)),
    _checked("tiny", lambda x: x.sum(-1), lambda make: (make(3, 5),)),
    _checked("offset", lambda x: x[1:] * 2, lambda make: (make(1001)[1:],)),
    _checked("strided", lambda x: x * 2, lambda make: (make(64, 100)[:, ::2],)),
    _checked(
        "uint8_wraps", lambda x: x + 200, lambda make: (torch.arange(1 << 12, device=make.device).to(torch.uint8),)
    ),
    _checked("int64_add", lambda x: x * 3 + 1, lambda make: (torch.arange(1 << 12, device=make.device),), "int64"),
    _checked("scatter_add", lambda x, i, s: x.index_add(0, i, s), _scattered),
    _checked("random", lambda x: torch.where(torch.rand_like(x) < 2, x, -x), lambda make: (make(1000),)),
)
