"""Values that several results of computed length share, or overwrite, are kept for whole vectors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.kernel_records.journal import journal
from halide_backend.schedule.device import device_of


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    return p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


def part_of_rows(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    """Rows that do not adjoin: each ends in a vector of its own."""
    part, old = p[:, 1:], g[:, 1:]
    part.mul_(0.9).add_(old)
    old.mul_(0.5).add_(part)
    return m * v


def swapped(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    old = p.exp()
    p.copy_(g + m)
    g.copy_(old * v)
    m.add_(old)
    return p


FUNCTIONS = {each.__name__: each for each in (adam, part_of_rows, swapped)}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("first", [(300, 131), (2, 4)], ids=["long", "short"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_old_values_of_all_sizes(function: Callable[..., Tensor], first: tuple[int, int], dtype: torch.dtype) -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for rows, columns in (first, (300, 131), (2, 3), (3, 15), (3, 16), (5, 17), (7, 33), (33, 700), (0, 20), (700, 40)):
        operands = [torch.rand(rows, columns, dtype=dtype) for _ in range(4)]
        expected, got = [each.clone() for each in operands], [each.clone() for each in operands]
        results = function(*expected), compiled(*got)
        # In bfloat16 eager rounds after each operation.
        rough = {"rtol": 0.02, "atol": 0.01} if dtype is torch.bfloat16 else {}
        torch.testing.assert_close([*got, results[1]], [*expected, results[0]], **rough)
    stats = halide_backend.stats()
    assert stats["native_kernels"] and not stats["delegation_reasons"]


def test_a_vector_at_a_time() -> None:
    journal.reset()
    torch.compile(adam, dynamic=True)(*(torch.rand(300, 131) for _ in range(4)))
    (text,) = (record.text for record in journal.records())
    kept = [line.split("'")[1] for line in text.splitlines() if "Role.PRESERVED" in line]
    assert len(kept) == 2
    lanes = device_of(Target.host()).vector_bytes // 4
    for name in kept:
        assert f"    BoundExtent({name!r}, 'x0', {lanes}),\n    Vectorize({name!r}, 'x0'),\n" in text
