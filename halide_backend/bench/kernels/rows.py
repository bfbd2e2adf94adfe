"""Rows that are reduced and used again: softmax and its kin, over rows from 8 to 50,000 numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Operands, in_rows_of, matrices


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def _masked(x: Tensor, m: Tensor) -> Tensor:
    return _softmax(x.masked_fill(m > 1, float("-inf")))


def _columns(x: Tensor) -> Tensor:
    return torch.softmax(x, 0)


def _padded(make: Operands) -> tuple[Tensor, ...]:
    scores = make.scores()
    return (scores, torch.rand(scores.shape[0], 1, 1, scores.shape[-1], device=make.device) > 0.7)


KERNELS = (
    Kernel("softmax", _softmax, matrices(1), ("float32", "bfloat16", "float16")),
    *(Kernel(f"softmax_{width}", _softmax, in_rows_of(width)) for width in (8, 37, 64, 100, 50_257)),
    Kernel("softmax_columns", _columns, matrices(1)),
    Kernel("softmax_backward", derivative(_softmax), matrices(2)),
    Kernel("softmax_backward_37", derivative(_softmax), in_rows_of(37, 2)),
    Kernel("log_softmax", _log_softmax, matrices(1)),
    Kernel("log_softmax_10", _log_softmax, in_rows_of(10)),
    Kernel("log_softmax_backward", derivative(_log_softmax), matrices(2)),
    Kernel("logsumexp", lambda x: torch.logsumexp(x, -1), matrices(1)),
    Kernel("logsumexp_50000", lambda x: torch.logsumexp(x, -1), in_rows_of(50_000)),
    Kernel("masked_softmax", _masked, matrices(2)),
    Kernel("padded_softmax", lambda x, m: _softmax(x.masked_fill(m, float("-inf"))), _padded),
    Kernel("temperature_softmax", lambda x: _softmax(x / 0.7), matrices(1)),
    Kernel("sparsemax_gap", lambda x: x - x.amax(-1, keepdim=True), matrices(1)),
    Kernel("centred_100", lambda x: x - x.mean(-1, keepdim=True), in_rows_of(100)),
)
