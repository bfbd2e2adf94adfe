"""Normalisation layers, forward and backward, channels first and last."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Maker, Operands, images, in_rows_of, matrices, with_columns, with_like


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, w.shape, w, b)


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _plain_layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _residual_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total, F.layer_norm(total, w.shape, w, b)


def _batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def _batch_norm_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(_batch_norm(x, w, b))


def _batch_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(_batch_norm(x, w, b))


def _inference(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, deviation.abs() + 0.5, w, b))


def _group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, 8, w, b)


def _channels_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Over the channels of an image, as ConvNeXt's."""
    return F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, b).permute(0, 3, 1, 2)


def _residual(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(2), make(make.columns), make(make.columns))


def _both(name: str, function: Callable[..., Tensor], vectors: int, *, backward: bool) -> tuple[Kernel, ...]:
    """A kernel of images with channels first and last, and its backward ones."""
    kernels = []
    for suffix, last in (("", False), ("_last", True)):
        operands: Maker = images(vectors, channels_last=last)
        kernels.append(Kernel(f"{name}{suffix}", function, operands))
        if backward:
            made = with_like(operands, function)
            kernels.append(Kernel(f"{name}_backward{suffix}", derivative(function), made))
    return tuple(kernels)


KERNELS = (
    Kernel("layer_norm", _layer_norm, with_columns(2), ("float32", "bfloat16", "float16")),
    *(Kernel(f"layer_norm_{width}", _layer_norm, with_columns(2, width)) for width in (37, 100, 768)),
    Kernel("layer_norm_backward", derivative(_plain_layer_norm), matrices(2)),
    Kernel("layer_norm_weights_backward", derivative(_layer_norm), with_like(with_columns(2), _layer_norm)),
    Kernel("layer_norm_backward_100", derivative(_plain_layer_norm), in_rows_of(100, 2)),
    Kernel("residual_norm", _residual_norm, _residual),
    Kernel("rms_norm", _rms_norm, with_columns(1)),
    Kernel("rms_norm_64", _rms_norm, with_columns(1, 64)),
    Kernel("rms_norm_backward", derivative(lambda x: _rms_norm(x, torch.ones_like(x[0]))), matrices(2)),
    *_both("batch_norm", _batch_norm, 2, backward=True),
    *_both("batch_norm_relu", _batch_norm_relu, 2, backward=False),
    *_both("batch_norm_silu", _batch_norm_silu, 2, backward=True),
    *_both("batch_norm_inference", _inference, 4, backward=False),
    *(
        Kernel(f"batch_norm_{kind}_512_last", function, images(vectors, channels_last=True, channels=512))
        for kind, function, vectors in (("relu", _batch_norm_relu, 2), ("inference", _inference, 4))
    ),
    *_both("group_norm", _group_norm, 2, backward=True),
    *_both("channels_norm", _channels_norm, 2, backward=False),
    *_both("instance_norm", F.instance_norm, 0, backward=False),
    Kernel("l2_normalise", lambda x: F.normalize(x, dim=-1), matrices(1)),
)
