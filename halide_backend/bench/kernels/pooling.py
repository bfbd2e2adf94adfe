"""Pooling and interpolation of every kind, forward and backward, channels first and last."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Operands, images, with_like


def _interpolation(mode: str, factor: float = 2.0) -> Callable[[Tensor], Tensor]:
    # A float: with dynamic sizes Dynamo makes an integer that a function closes over a size, and `interpolate` refuses
    # that.
    corners = False if mode in ("bilinear", "bicubic") else None
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode, align_corners=corners)


def _signals(make: Operands) -> tuple[Tensor, ...]:
    return (make(4, max(1, make.rows // 4), make.columns),)


_FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "max_pool_3_2": lambda x: F.max_pool2d(x, 3, 2, 1),
    "average_pool": lambda x: F.avg_pool2d(x, 2),
    "average_pool_3_1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "adaptive_pool": lambda x: F.adaptive_avg_pool2d(x, 7),
    "global_pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "upsample": _interpolation("nearest"),
    "bilinear": _interpolation("bilinear"),
    "bilinear_down": _interpolation("bilinear", 0.5),
    "bicubic": _interpolation("bicubic"),
}
_BACKWARD = ("max_pool", "average_pool_3_1", "adaptive_pool", "upsample", "bilinear")
_LAST = ("max_pool_3_2", "average_pool", "global_pool", "upsample", "bilinear")

KERNELS = (
    *(Kernel(name, function, images()) for name, function in _FORWARD.items()),
    *(
        Kernel(f"{name}_backward", derivative(_FORWARD[name]), with_like(images(), _FORWARD[name]))
        for name in _BACKWARD
    ),
    *(Kernel(f"{name}_last", _FORWARD[name], images(channels_last=True)) for name in _LAST),
    Kernel("max_pool_signal", lambda x: F.max_pool1d(x, 3, 2), _signals),
    Kernel("average_pool_signal", lambda x: F.avg_pool1d(x, 5, 1, 2), _signals),
)
