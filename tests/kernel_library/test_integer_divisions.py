"""Integers are divided in vectors, by floating-point numbers: every quotient and remainder is that of Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from kernel import Builder, name_of

DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "remainder": lambda a, b: a % b,
}
DTYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Dividends that are multiples of the divisors, one less and one more, as far as the type holds; and its ends."""
    limits = torch.iinfo(dtype)
    generator = np.random.default_rng(3)
    bits = limits.bits - 8 if limits.bits == 64 else limits.bits  # numpy's own arithmetic has 64
    size = (2.0 ** generator.uniform(0, bits - 1, 4000)).astype(np.int64)
    b = np.where(generator.random(4000) < 0.5, -size if limits.min < 0 else size, size)
    a = (2.0 ** generator.uniform(0, bits, 4000)).astype(np.int64) // size * b + generator.integers(-1, 2, 4000)
    ends = np.array([limits.min, limits.max, limits.min + 1, limits.max - 1, 0, 1], dtype=np.int64)
    pairs = np.array([(x, y) for x in ends for y in (*ends, 2, 3, -1 % (limits.max + 1)) if y], dtype=np.int64)
    a, b = np.concatenate([a, pairs[:, 0]]), np.concatenate([b, pairs[:, 1]])
    fits = (limits.min <= a) & (a <= limits.max) & (limits.min <= b) & (b <= limits.max) & (b != 0)
    overflows = (a == limits.min) & (b == -1) & (limits.min < 0)
    a, b = (torch.from_numpy(each[fits & ~overflows]).to(dtype) for each in (a, b))
    return a, b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", DIVISIONS)
def test_of_two_tensors(operation: str, dtype: torch.dtype) -> None:
    a, b = operands(dtype)
    builder = Builder((a.numel(),))
    builder.store(builder.value(operation, dtype, [builder.load(dtype), builder.load(dtype)]), dtype)
    assert f"ops.{operation}(t0, t1, in_vectors=True)" in builder.text()
    (found,) = builder.run(a, b)
    wanted = torch.tensor(list(map(DIVISIONS[operation], a.tolist(), b.tolist())), dtype=dtype)
    wrong = (found != wanted).nonzero().flatten()[:5]
    assert not len(wrong), [(a[k].item(), b[k].item(), found[k].item(), wanted[k].item()) for k in wrong]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32], ids=name_of)
def test_by_a_number(dtype: torch.dtype) -> None:
    """A compiler makes a product of it."""
    a, _ = operands(dtype)
    builder = Builder((a.numel(),))
    builder.store(builder.value("floordiv", dtype, [builder.load(dtype), builder.constant(7, dtype)]), dtype)
    assert "in_vectors" not in builder.text()
    (found,) = builder.run(a)
    assert torch.equal(found, a.div(7, rounding_mode="floor"))


def test_by_a_size() -> None:
    """It is the same for all elements, and no number."""
    compiled = torch.compile(lambda x, y: x // y.shape[0], dynamic=True, fullgraph=True)
    x = torch.arange(-5000, 5000, dtype=torch.int32)
    for size in (7, 48, 1000):
        assert torch.equal(compiled(x, torch.empty(size, 2)), x.div(size, rounding_mode="floor"))
