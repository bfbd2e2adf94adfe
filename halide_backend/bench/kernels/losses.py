"""Losses, forward and backward."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Operands, in_rows_of, labelled, matrices


def _ten_classes(make: Operands) -> tuple[Tensor, ...]:
    (scores,) = in_rows_of(10)(make)
    return (scores, make.indices(scores.shape[0], 10))


def _cross_entropy_backward(x: Tensor, y: Tensor) -> Tensor:
    gradient: Tensor = torch.func.grad(lambda scores: F.cross_entropy(scores.float(), y))(x)
    return gradient


def _divergence(x: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(torch.log_softmax(x, -1), torch.log_softmax(y, -1), reduction="batchmean", log_target=True)


def _contrastive(x: Tensor, y: Tensor) -> Tensor:
    return -F.logsigmoid((F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)).mean()


KERNELS = (
    Kernel("cross_entropy", lambda x, y: F.cross_entropy(x, y), labelled),
    Kernel("cross_entropy_10", lambda x, y: F.cross_entropy(x, y), _ten_classes),
    Kernel("smoothed_cross_entropy", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), labelled),
    Kernel("cross_entropy_backward", _cross_entropy_backward, labelled),
    Kernel("nll_rows", lambda x, y: F.nll_loss(torch.log_softmax(x, -1), y, reduction="none"), labelled),
    Kernel("mean_square", lambda x, y: F.mse_loss(x, y), matrices(2)),
    Kernel("mean_square_backward", derivative(lambda x, y: F.mse_loss(x, y, reduction="none")), matrices(3)),
    Kernel("huber", lambda x, y: F.huber_loss(x, y), matrices(2)),
    Kernel("binary_cross_entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)), matrices(2)),
    Kernel("kl_divergence", _divergence, matrices(2)),
    Kernel("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), matrices(2)),
    Kernel("contrastive", _contrastive, matrices(2)),
)
