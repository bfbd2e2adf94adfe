"""The kernels that benchmarks/gpu.py checks and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Make = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A function and what makes its arguments; with `gradients` it is differentiated, and not timed."""

    name: str
    function: Callable[..., Any]
    arguments: Make
    gradients: bool = False
    timed: bool = True


def normal(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu((x + y) * y)


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def residual_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    total = x + y
    return total, F.layer_norm(total, (total.shape[-1],), w, b)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), scale


def cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, y)


def per_dtype(dtype: torch.dtype, tag: str) -> Iterator[Case]:
    def make(*shapes: tuple[int, ...]) -> Make:
        return lambda: tuple(normal(*shape, dtype=dtype) for shape in shapes)

    for n in (1 << 20, 1 << 24, (1 << 24) - 37):
        yield Case(f"add_relu_{n}_{tag}", add_relu, make((n,), (n,)))
    yield Case(f"gelu_tanh_16M_{tag}", gelu_tanh, make((1 << 24,)))
    yield Case(f"gelu_erf_16M_{tag}", F.gelu, make((1 << 24,)))
    yield Case(f"swiglu_16M_{tag}", swiglu, make((4096, 4096), (4096, 4096)))
    yield Case(f"bias_relu_{tag}", lambda x, b: torch.relu(x + b), make((8192, 4096), (4096,)))
    for rows, columns in ((4096, 1024), (8192, 4096), (4096, 1000), (2048, 8192), (1000, 50257)):
        yield Case(f"softmax_{rows}x{columns}_{tag}", lambda x: torch.softmax(x, -1), make((rows, columns)))
    yield Case(f"log_softmax_8192x4096_{tag}", lambda x: torch.log_softmax(x, -1), make((8192, 4096)))
    for rows, columns in ((4096, 1024), (8192, 4096), (8192, 768)):
        shape = (columns,)
        yield Case(
            f"layer_norm_{rows}x{columns}_{tag}",
            lambda x, w, b: F.layer_norm(x, w.shape, w, b),
            make((rows, columns), shape, shape),
        )
        yield Case(f"rms_norm_{rows}x{columns}_{tag}", rms_norm, make((rows, columns), shape))
    yield Case(f"residual_norm_{tag}", residual_norm, make((8192, 1024), (8192, 1024), (1024,), (1024,)))
    yield Case(f"row_sum_{tag}", lambda x: x.sum(-1), make((8192, 4096)))
    yield Case(f"row_max_{tag}", lambda x: x.amax(-1), make((8192, 4096)))
    yield Case(f"column_sum_{tag}", lambda x: x.sum(0), make((8192, 4096)))
    yield Case(f"full_sum_{tag}", lambda x: x.sum(), make((1 << 24,)))
    yield Case(f"variance_{tag}", lambda x: x.var(-1), make((8192, 4096)))
    yield Case(f"argmax_{tag}", lambda x: x.argmax(-1), make((4096, 4096)))
    yield Case(f"transpose_add_{tag}", lambda x, y: x.t() + y, make((4096, 4096), (4096, 4096)))
    yield Case(f"permute_{tag}", lambda x: x.permute(0, 2, 1, 3).contiguous(), make((16, 512, 16, 64)))
    yield Case(f"concat_{tag}", lambda x, y: torch.cat((x, y + 1), -1), make((4096, 1024), (4096, 2048)))
    yield Case(f"pad_{tag}", lambda x: F.pad(x, (1, 3, 2, 2)) * 2, make((64, 256, 256)))
    yield Case(f"slice_{tag}", lambda x: x[:, 1:-1] * 2, make((4096, 4098)))
    yield Case(f"rope_{tag}", rope, make((16, 2048, 128), (2048, 128), (2048, 128)))
    yield Case(
        f"adam_{tag}",
        adam,
        lambda: (*make((1 << 22,), (1 << 22,), (1 << 22,))(), torch.rand(1 << 22, device="cuda").to(dtype)),
    )
    yield Case(f"quantise_{tag}", quantise, make((4096, 4096)))
    yield Case(f"cumsum_{tag}", lambda x: x.cumsum(-1), make((4096, 1024)))
    yield Case(f"group_norm_{tag}", lambda x, w, b: F.group_norm(x, 8, w, b), make((32, 64, 56, 56), (64,), (64,)))
    yield Case(
        f"batch_norm_{tag}",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        make((32, 64, 56, 56), (64,), (64,)),
    )
    yield Case(f"max_pool_{tag}", lambda x: F.max_pool2d(x, 2), make((32, 64, 64, 64)))
    yield Case(f"upsample_{tag}", lambda x: F.interpolate(x, scale_factor=2), make((32, 64, 32, 32)))
    yield Case(
        f"cross_entropy_{tag}",
        cross_entropy,
        lambda: (normal(4096, 8192, dtype=dtype), torch.randint(0, 8192, (4096,), device="cuda")),
    )
    yield Case(
        f"embedding_{tag}",
        lambda w, i: F.embedding(i, w) * 2,
        lambda: (normal(50000, 1024, dtype=dtype), torch.randint(0, 50000, (16384,), device="cuda")),
    )
    yield Case(
        f"masked_softmax_{tag}",
        lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1),
        lambda: (normal(8, 16, 512, 512, dtype=dtype), torch.rand(8, 1, 1, 512, device="cuda") > 0.7),
    )

    def leaves(*shapes: tuple[int, ...]) -> Make:
        return lambda: tuple(normal(*shape, dtype=dtype, grad=True) for shape in shapes)

    for name, function, shapes in (
        ("softmax", lambda x: torch.softmax(x, -1), ((512, 1024),)),
        ("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), ((512, 768), (768,), (768,))),
        ("gelu", F.gelu, ((512, 1000),)),
        ("swiglu", swiglu, ((512, 1024), (512, 1024))),
        ("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((2, 4, 128, 64),) * 3),
        ("mean_squares", lambda x, y: F.mse_loss(x, y), ((300, 100), (300, 100))),
    ):
        yield Case(f"{name}_backward_{tag}", function, leaves(*shapes), gradients=True, timed=False)


def special() -> Iterator[Case]:
    def odd() -> tuple[torch.Tensor]:
        special = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 3e38, -1.5]
        return (torch.tensor(special * 1024, device="cuda").reshape(-1, 64),)

    for name, function in (
        ("relu", torch.relu),
        ("maximum", lambda x: torch.maximum(x, x.flip(-1))),
        ("minimum", lambda x: torch.minimum(x, x.flip(-1))),
        ("exp", torch.exp),
        ("log", torch.log),
        ("erf", torch.erf),
        ("tanh", torch.tanh),
        ("row_max", lambda x: x.amax(-1)),
        ("argmax", lambda x: x.argmax(-1)),
        ("softmax", lambda x: torch.softmax(x, -1)),
        ("to_bfloat16", lambda x: (x * 1.0).bfloat16()),
        ("to_float16", lambda x: (x * 1.0).half()),
        ("difference", lambda x: x - x),
        ("isnan", torch.isnan),
    ):
        yield Case(f"special_{name}", function, odd, timed=False)
    yield Case("int64_add", lambda x: x * 3 + 1, lambda: (torch.arange(1 << 20, device="cuda"),))
    yield Case("bool_not", lambda x: ~x, lambda: (torch.rand(1 << 20, device="cuda") > 0.5,))
    yield Case("uint8_add", lambda x: x + 200, lambda: (torch.arange(1 << 20, device="cuda").to(torch.uint8),))
    yield Case("float64", lambda x: torch.exp(x) * 2, lambda: (torch.randn(4096, 64, device="cuda").double(),))
    yield Case("in_place", lambda x: x.add_(1).mul_(2), lambda: (normal(1000, 64),), timed=False)
    yield Case("scalar", lambda x: x * 2 + 1, lambda: (torch.ones((), device="cuda"),), timed=False)
    yield Case("tiny", lambda x: x.sum(-1), lambda: (normal(3, 5),), timed=False)
    yield Case("offset", lambda x: x[1:] * 2, lambda: (normal(1001)[1:],), timed=False)
    yield Case("strided", lambda x: x * 2, lambda: (normal(64, 100)[:, ::2],), timed=False)
    yield Case(
        "scatter_add",
        lambda x, i, s: x.index_add(0, i, s),
        lambda: (normal(1000, 64), torch.randint(0, 1000, (5000,), device="cuda"), normal(5000, 64)),
    )
    yield Case(
        "index_put",
        lambda x, i: x.index_fill(0, i, 3.0),
        lambda: (normal(1000, 64), torch.randperm(1000, device="cuda")[:100]),
    )
    yield Case("randn_like", lambda x: torch.randn_like(x).mean() * 0 + x, lambda: (normal(1000),), timed=False)


def cases() -> Iterator[Case]:
    """All of them, cheap ones first."""
    yield from special()
    yield from per_dtype(torch.float32, "f32")
    yield from per_dtype(torch.bfloat16, "bf16")
