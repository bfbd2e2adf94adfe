"""What surrounds the products of attention: positions, masks, heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Maker, Operands, matrices


def _rope(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    low, high = x[:, :half], x[:, half : 2 * half]
    angle = torch.arange(half, device=x.device, dtype=torch.float32) * 1e-2
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def _interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = cos[:, ::2], sin[:, ::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def _angles(make: Operands) -> tuple[Tensor, ...]:
    x = make.heads()
    return (x, *(make(x.shape[2], x.shape[3]) for _ in range(2)))


def _causal(scores: Tensor) -> Tensor:
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    return torch.softmax((scores * 0.125).masked_fill(tokens[None, :] > tokens[:, None], float("-inf")), -1)


def _alibi(scores: Tensor) -> Tensor:
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    slopes = 2.0 ** -torch.arange(1, scores.shape[1] + 1, device=scores.device)
    biased = scores.float() + slopes[:, None, None] * (tokens[None, :] - tokens[:, None])
    return torch.softmax(biased, -1).to(scores.dtype)


def _scores(count: int = 1) -> Maker:
    return lambda make: tuple(make.scores() for _ in range(count))


def _heads(count: int = 1) -> Maker:
    return lambda make: tuple(make.heads() for _ in range(count))


def _joined(make: Operands) -> tuple[Tensor, ...]:
    """(batch, tokens, 3 x 4 heads of 64)."""
    tokens = min(make.rows, 512)
    return (make(max(1, make.elements // (tokens * 768)), tokens, 768),)


def _split(x: Tensor) -> tuple[Tensor, ...]:
    batch, tokens, _ = x.shape
    return tuple(part.view(batch, tokens, 4, 64).transpose(1, 2).contiguous() for part in x.chunk(3, -1))


def _grouped(x: Tensor) -> Tensor:
    """Keys of 4 heads for 16 heads of queries."""
    batch, heads, tokens, size = x.shape
    return x[:, :, None].expand(batch, heads, 4, tokens, size).reshape(batch, 4 * heads, tokens, size)


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _few_heads(make: Operands) -> tuple[Tensor, ...]:
    return tuple(make(2, 4, 128, 64) for _ in range(4))


KERNELS = (
    Kernel("rope", _rope, matrices(1)),
    Kernel("rope_heads", _rotated, _angles),
    Kernel("rope_heads_backward", derivative(_rotated), lambda make: (*_angles(make), make.heads())),
    Kernel("rope_interleaved", _interleaved, _angles),
    Kernel("causal_softmax", _causal, _scores()),
    Kernel("causal_softmax_backward", derivative(_causal), _scores(2)),
    Kernel("alibi_softmax", _alibi, _scores()),
    Kernel("split_heads", _split, _joined),
    Kernel("merge_heads", lambda x: x.transpose(1, 2).flatten(2), _heads()),
    Kernel("grouped_keys", _grouped, _heads()),
    Kernel("appended_keys", lambda k, new: torch.cat((k, new[:, :, :1]), 2), _heads(2)),
    Kernel("attention_backward", derivative(_attended), _few_heads, fixed=True, timed=False),
)
