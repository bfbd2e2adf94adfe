"""Kinds of kernels that the suite of `halide-backend bench` has few of, against Inductor's C++ backend.

    python benchmarks/kinds_of_kernels.py [--only NAME ...] [--threads 1] [--out results.json]

Each is compiled by this backend for its sizes and for all sizes, and by C++ for its sizes; results are compared with
eager's. The three take turns, and what is written are medians, in microseconds of whole calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.bench.timing import SAMPLED_S, alternate, calls
from halide_backend.inspection.compiled import compile_for


def patches(x: Tensor) -> tuple[Tensor, ...]:
    """The pixels of each place in patches of 2 x 2, channels innermost, with the moments of their channels."""
    n, c, h, w = x.shape
    pixels = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
    rows = pixels.transpose(1, 3).reshape(n * 4, h * w // 4, c).contiguous()
    return rows, *torch.var_mean(rows, -1)


def patches_of_rows(x: Tensor, rows: Tensor) -> Tensor:
    """A norm of what is added to those patches."""
    n, c, h, w = x.shape
    pixels = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
    return F.layer_norm(pixels.transpose(1, 3).reshape(rows.shape) + rows, rows.shape[-1:])


def gradients_of_norms(one: Tensor, other: Tensor, rows: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    total = torch.where(one <= 0, 0.0, other)
    return total, *(total - (x - m) * s for x, m, s in zip(rows.unbind(), mean.unbind(), scale.unbind()))


def gradients_of_weights(one: Tensor, both: Tensor, other: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    norm = (both - mean) * scale
    return (one * norm).sum(0), (other * norm).sum(0), one.sum(0), other.sum(0)


def windows_of_a_norm(x: Tensor) -> tuple[Tensor, Tensor]:
    n, c, h, w = x.shape
    rows = F.layer_norm(x.flatten(2).transpose(1, 2), (c,))
    again = F.layer_norm(rows, (c,))
    return rows, again.view(n, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)


def norm_of_a_norm(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = F.layer_norm(x.flatten(2).transpose(1, 2), (x.shape[1],))
    return rows, F.layer_norm(rows, (x.shape[1],))


def norm_and_positions(x: Tensor, table: Tensor) -> Tensor:
    enlarged = F.interpolate(table, x.shape[2:], mode="bilinear").flatten(2).transpose(1, 2)
    return F.layer_norm(x.flatten(2).transpose(1, 2), (x.shape[1],)) + enlarged


def overwritten_slices(x: Tensor, ends: Tensor, rows: Tensor) -> Tensor:
    """As blocks of attention are put together."""
    x = x.clone()
    x[:, :, -32:-16, :16] = ends[..., :16]
    x[:, :, -32:-16, -48:] = ends[..., 16:64]
    x[:, :, -16:] = rows
    return x


def sums_of_groups(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Of the gradient of a group norm."""
    both, alone = (x * y).sum((2, 3)), x.sum((2, 3))
    groups = ((total * weight).view(-1, weight.shape[0] // 8, 8).sum(2) for total in (both, alone))
    return both, alone, *groups


def blocks_of_attention(x: Tensor, blocks: Tensor, parts: Tensor) -> Tensor:
    total, zeros = blocks, torch.zeros_like(blocks)
    for number, place in enumerate((0, 1, 2, -1)):
        part = parts[..., 16 * number : 16 * number + 16].transpose(1, 2)
        total = total + torch.select_scatter(zeros, part, 1, place)
    return x + total.reshape(x.shape[0], -1, x.shape[1]).transpose(1, 2)


def step_of_a_scan(x: Tensor, gates: Tensor) -> Tensor:
    """Of a state space model: each second step takes up the one before."""
    return x[1::2] * gates[1::2] + F.pad(x[2::2] * gates[2::2], (0, 0, 0, 0, 0, 1))


def padded_states(states: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    total = states.transpose(1, 2) * weight[:, None] + gates
    return F.pad(total * gates, (0, 3)) * (1 - F.pad(gates, (0, 3)))


def residuals_and_gradient(
    x: Tensor, g: Tensor, h: Tensor, residual: Tensor, table: Tensor, rows: Tensor, weights: Tensor
) -> tuple[Tensor, ...]:
    """The gradient of a norm of pixels' channels, which is added to one of another norm, stored as a picture."""
    inner, outer = ((v - m) * s for v, m, s in ((x.transpose(1, 2), rows[0], rows[1]), (table, rows[2], rows[3])))
    norm = outer + inner * weights[0]
    g = (g + h) * weights[1]
    length = g.shape[-1]
    gradient = g * length - g.sum(-1, keepdim=True) - norm * (g * norm).sum(-1, keepdim=True)
    total = residual + (gradient * (rows[3] / length)).transpose(1, 2)
    last = total * weights[0][:, None]
    return norm.contiguous(), total, last.sum(1), (last * inner.transpose(1, 2)).sum(1)


def numbers(limit: int, *size: int) -> Tensor:
    return torch.randint(0, limit, size)


def bfloat16(*size: int) -> Tensor:
    return torch.randn(size).bfloat16()


def divisors(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return numbers(100, 1000, 999).to(dtype), numbers(90, 1000, 999).add(5).to(dtype)


def pairs(operation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: operation(x[:, None, :], y[None, :, :])


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    return p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


IMAGES = (4, 32, 55, 55)
R = torch.randn

#: Name -> a function, and what makes its arguments.
KINDS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "absolute differences of rows": (pairs(lambda x, y: (x - y).abs().sum(-1)), lambda: (R(200, 24), R(150, 24))),
    "distances of rows": (pairs(lambda x, y: (x - y).square().sum(-1)), lambda: (R(128, 64), R(130, 64))),
    "largest sums of rows": (pairs(lambda x, y: (x + y).amax(-1)), lambda: (R(200, 48), R(150, 48))),
    "short distances of rows": (pairs(lambda x, y: (x - y).square().sum(-1).exp()), lambda: (R(300, 8), R(301, 8))),
    "products of columns": (
        lambda x, y: (x[:, :, None] * y[:, None, :]).sum(0),
        lambda: (R(64, 60), R(64, 70)),
    ),
    "norms of 100 columns": (lambda x: x.norm(p=1, dim=1), lambda: (R(40, 60, 100),)),
    "deviations of 200 columns": (lambda x: x.std(1), lambda: (R(40, 30, 200),)),
    "sums of 13 columns": (lambda x: x.sum(0), lambda: (R(76923, 13),)),
    "sums of 24 columns": (lambda x: x.sum(0), lambda: (R(41666, 24),)),
    "sums of 7 columns of pictures": (lambda x: x.sum(1), lambda: (R(100, 1429, 7),)),
    "sums of products of 5 columns": (lambda x, y: (x * y).sum(0), lambda: (R(100003, 5), R(100003, 5))),
    "weighted sums of 13 columns": (lambda x, w: (x * w).sum(0), lambda: (R(50000, 13), R(50000, 1))),
    "largest of 9 columns": (lambda x: x.amax(0), lambda: (R(99999, 9),)),
    "places in 13 columns": (lambda x: x.argmax(0), lambda: (R(76923, 13),)),
    "variances of 11 columns bfloat16": (lambda x: x.float().var(0), lambda: (bfloat16(70001, 11),)),
    "largest of 90 columns": (lambda x: x.amax(1), lambda: (R(200, 55, 90),)),
    "exponentials of sums of 33": (lambda x: x.sum(-1).exp(), lambda: (R(30303, 33),)),
    "exponentials of sums of 13": (lambda x: x.sum(-1).exp(), lambda: (R(76923, 13),)),
    "exponentials of sums of 50 bfloat16": (
        lambda x: x.float().sum(-1).exp().bfloat16(),
        lambda: (bfloat16(20000, 50),),
    ),
    "quotients int16": (lambda x, y: x // y, lambda: divisors(torch.int16)),
    "quotients int32": (lambda x, y: x // y, lambda: divisors(torch.int32)),
    "quotients int64": (lambda x, y: x // y, lambda: divisors(torch.int64)),
    "remainders int32": (lambda x, y: x % y, lambda: divisors(torch.int32)),
    "remainders": (torch.remainder, lambda: (R(1000, 999), R(1000, 999))),
    "means under a mask": (
        lambda x, mask: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True),
        lambda: (R(32, 128, 256), torch.rand(32, 128)),
    ),
    "variances of rows of 33": (lambda x: x.var(-1), lambda: (R(30000, 33),)),
    "variances of rows of 33, bfloat16": (lambda x: x.var(-1), lambda: (bfloat16(30000, 33),)),
    "sums of rows that lie across": (
        lambda x, y: ((x.t() * y).sum(0), y.sum(0)),
        lambda: (R(384, 1500), R(1500, 384)),
    ),
    "patches and moments of their channels": (patches, lambda: (R(2, 144, 32, 32),)),
    "gradient of a norm's weights, across": (
        lambda g, x, mean, scale: ((g.mT * ((x - mean) * scale)).sum((0, 1)), g.sum((0, 2))),
        lambda: (R(2, 32, 3136), R(2, 3136, 32), R(2, 3136, 1), R(2, 3136, 1)),
    ),
    "gradient of a norm's weights, across, 196": (
        lambda g, x, mean, scale: ((g.mT * ((x - mean) * scale)).sum((0, 1)), g.sum((0, 2))),
        lambda: (R(2, 160, 196), R(2, 196, 160), R(2, 196, 1), R(2, 196, 1)),
    ),
    "ragged transposition": (lambda x: x.permute(2, 3, 0, 1).contiguous(), lambda: (R(18, 35, 37, 43),)),
    "rows of 16 int8 of 33": (lambda x: x[:, :16].clone(), lambda: (numbers(100, 62500, 33).to(torch.int8),)),
    "rows of 8 bfloat16 of 17": (lambda x: x[:, :8].clone(), lambda: (bfloat16(125000, 17),)),
    "rows of 8 bfloat16 side by side": (
        lambda x, y: torch.cat((x, y * 2), 1),
        lambda: (bfloat16(62500, 8), bfloat16(62500, 8)),
    ),
    "angles": (torch.atan2, lambda: (R(1000, 999), R(1000, 999))),
    "arcsines": (torch.asin, lambda: (torch.rand(1000, 999) * 2 - 1,)),
    "gather along rows": (lambda x, i: x.gather(1, i), lambda: (R(500, 300), numbers(300, 500, 300))),
    "gather int64": (lambda x, i: x.gather(1, i), lambda: (numbers(9, 500, 500), numbers(500, 500, 500))),
    "gather bfloat16": (lambda x, i: x.gather(1, i), lambda: (R(800, 1000).bfloat16(), numbers(1000, 800, 1000))),
    "gather columns": (lambda x, i: x[:, i] * 2, lambda: (R(900, 300), numbers(300, 257))),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 3), lambda: (R(2, 36, 37, 23),)),
    "circular padding": (lambda x: F.pad(x, (2, 2, 1, 1), mode="circular"), lambda: (R(IMAGES),)),
    "padding": (lambda x: F.pad(x.relu(), (1, 2, 3, 4), value=-1.0), lambda: (R(IMAGES),)),
    "sums of rows of 7": (lambda x: x.sum(-1), lambda: (R(40_000, 7),)),
    "softmax of 7": (lambda x: x.softmax(-1), lambda: (R(40_000, 7),)),
    "places of the largest of 5": (lambda x: x.argmax(-1), lambda: (R(50_000, 5),)),
    "points of length 1": (lambda x: x / x.norm(dim=-1, keepdim=True), lambda: (R(60_000, 3),)),
    "turned points": (lambda m, x: (m * x[:, None, :]).sum(-1), lambda: (R(30_000, 3, 3), R(30_000, 3))),
    "areas of boxes": (lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]), lambda: (R(100_000, 4),)),
    "pixels of 3 channels": (lambda x: x.permute(0, 2, 3, 1).contiguous(), lambda: (R(4, 3, 111, 113),)),
    "five columns": (lambda x: x.t().contiguous(), lambda: (R(5, 60_001),)),
    "bias of 5": (lambda x, b: (x + b).relu(), lambda: (R(60_000, 5), R(5))),
    "every second pixel": (
        lambda x: torch.cat([x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)], 1),
        lambda: (R(4, 8, 112, 116),),
    ),
    "step of Adam": (adam, lambda: tuple(R(701, 1023).abs() for _ in range(4))),
    "logsumexp of 129": (lambda x: x.logsumexp(-1), lambda: (R(4600, 129),)),
    "softmax of 197": (lambda x: x.softmax(-1), lambda: (R(3000, 197),)),
    "norms of 129": (lambda x: F.rms_norm(x, (x.shape[-1],)), lambda: (R(4600, 129),)),
    "gradients of four norms of a sum": (
        gradients_of_norms,
        lambda: (R(6272, 128), R(6272, 128), R(4, 6272, 128), R(4, 128), R(4, 128)),
    ),
    "gradients of the weights of two norms": (
        gradients_of_weights,
        lambda: (R(1024, 384), R(1024, 384), R(1024, 384), R(1024, 1), R(1024, 1)),
    ),
    "a sum of four, turned": (
        lambda *x: sum(x[1:], x[0]).transpose(1, 2).contiguous(),
        lambda: tuple(R(8, 256, 49) for _ in range(4)),
    ),
    "a sum of three, turned": (
        lambda *x: sum(x[1:], x[0]).transpose(1, 2).contiguous(),
        lambda: tuple(R(2, 196, 320) for _ in range(3)),
    ),
    "windows of a norm": (windows_of_a_norm, lambda: (R(2, 96, 56, 56),)),
    "norm of a norm": (norm_of_a_norm, lambda: (R(2, 64, 1568, 1),)),
    "norm of a norm of 32": (norm_of_a_norm, lambda: (R(2, 32, 56, 56),)),
    "norm and positions": (
        norm_and_positions,
        lambda: (R(2, 64, 56, 56), R(1, 28, 28, 64).permute(0, 3, 1, 2)),
    ),
    "steps of a scan": (step_of_a_scan, lambda: (R(64, 512, 16), R(64, 512, 16))),
    "padded states": (padded_states, lambda: (R(2, 64, 512), R(2, 512, 64), R(512))),
    "patches that are added to rows": (patches_of_rows, lambda: (R(2, 144, 32, 32), R(8, 256, 144))),
    "sums of pixels of 3 channels": (
        lambda x: x.sum((2, 3)),
        lambda: (R(4, 3, 200, 201).to(memory_format=torch.channels_last),),
    ),
    "means of pixels of 13 channels": (
        lambda x: x - x.mean((2, 3), keepdim=True),
        lambda: (R(4, 13, 113, 111).to(memory_format=torch.channels_last),),
    ),
    "channels of crops": (
        lambda x: x[:, :, 1:, 2:].contiguous(memory_format=torch.channels_last),
        lambda: (R(4, 3, 200, 203),),
    ),
    "variances of 90 columns": (lambda x: x.var(0), lambda: (R(7777, 90),)),
    "scores of 100 columns": (lambda x: (x - x.mean(0)) / (x.std(0) + 1), lambda: (bfloat16(7000, 100),)),
    "sums of 77 columns": (lambda x: x.sum(0), lambda: (bfloat16(9000, 77),)),
    "places of the largest of 100": (lambda x: x.argmax(-1), lambda: (R(7000, 100),)),
    "deviations of 100": (lambda x: x.std(-1), lambda: (bfloat16(7000, 100),)),
    "gradient of norms of 77": (
        lambda g, x: (g - g.mean(-1, keepdim=True) - x * (g * x).mean(-1, keepdim=True)) * 0.5,
        lambda: (R(9000, 77), R(9000, 77)),
    ),
    "residuals and a norm's gradient": (
        residuals_and_gradient,
        lambda: (
            R(2, 128, 784),
            R(2, 784, 128),
            R(2, 784, 128),
            R(2, 128, 784),
            R(784, 128),
            R(4, 2, 784, 1),
            R(2, 128),
        ),
    ),
    "folded patches": (lambda x: F.fold(x, (32, 32), 3, padding=1), lambda: (R(4, 288, 1024),)),
    "a grid": (
        lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij"), -1),
        lambda: (R(1000), R(500)),
    ),
    "overwritten slices": (
        overwritten_slices,
        lambda: (R(2, 6, 256, 256), R(2, 6, 16, 96), R(2, 6, 16, 256)),
    ),
    "sums of groups of channels": (
        sums_of_groups,
        lambda: (*(R(2, 256, 40, 40).to(memory_format=torch.channels_last) for _ in range(2)), R(256)),
    ),
    "blocks of attention": (blocks_of_attention, lambda: (R(12, 64, 256), R(12, 16, 16, 64), R(12, 64, 96))),
    "crop and padding": (lambda x: F.pad(x, (-2, 3, -1, 2)) * 2, lambda: (R(IMAGES),)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, dict[str, float]] = {}
    for name in options.only:
        function, made = KINDS[name]
        arguments = made()
        contestants = {
            "halide": compile_for("halide_backend", function),
            "dynamic": compile_for("halide_backend", function, dynamic=True),
            "cpp": compile_for("cpp", function),
        }
        for each in contestants.values():
            mine, eager = ([operand.clone() for operand in arguments] for _ in range(2))  # some are overwritten
            found, wanted = each.call(*mine), function(*eager)
            low = isinstance(wanted, Tensor) and wanted.dtype == torch.bfloat16
            # Of sums of 100,000 terms in float32, which may be near zero.
            torch.testing.assert_close(found, wanted, rtol=1e-2 if low else 1e-4, atol=2e-3)
            each.check_code()
        samples = alternate({key: calls(each.call, arguments) for key, each in contestants.items()}, seconds=SAMPLED_S)
        median = results[name] = {key: round(statistics.median(each), 2) for key, each in samples.items()}
        print(f"{name}: C++ {median['cpp'] / median['halide']:.2f}, dynamic {median['halide'] / median['dynamic']:.2f}")
    if options.out:
        found = {"machine": provenance("cpu"), "threads": options.threads, "results": results}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
