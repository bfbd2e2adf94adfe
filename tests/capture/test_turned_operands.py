"""Operands of reductions that lie across the others: turned in registers, for some rows or columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.schedule.mapping.transposition import Transposition

Check = Callable[..., dict[str, Any]]

#: Whole tiles, tails along either axis, and rows that are shorter than four vectors of accumulators.
SHAPES = ((32, 48), (33, 48), (48, 33), (45, 100), (100, 129), (97, 17), (16, 300))

REDUCTIONS: dict[str, Callable[[Tensor, int], Any]] = {
    "sum": lambda x, dim: x.sum(dim),
    "amax": lambda x, dim: x.amax(dim),
    "argmin": lambda x, dim: x.argmin(dim),
    "softmax": lambda x, dim: x.softmax(dim),
    "var": lambda x, dim: torch.var_mean(x, dim),
    "any": lambda x, dim: (x > 1.9).any(dim),
    "sums": lambda x, dim: (x.sum(dim), (x * x).sum(dim)),
}


def reduced(transpositions: list[Transposition]) -> list[str]:
    """What kernels turn operands for."""
    return [found.reduced for found in transpositions]


def spread(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """No two neighbours are equal, in whatever direction; all lie within 2."""
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return (((count * 37 + count // 13) % 241) / 64 - 1.875).to(dtype)


def check_reduction(check: Check, shape: tuple[int, int], name: str, dim: int, dynamic: bool) -> None:
    """Two operands lie as the result of their reduction along `dim` does, the third across them."""
    rows, columns = shape
    operands = spread(columns, rows), spread(rows, columns), spread(rows, columns) + 1
    check(lambda x, y, z: REDUCTIONS[name](x.t() + y * z, dim), *operands, dynamic=dynamic, tolerance=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows(
    check: Check, transpositions: list[Transposition], shape: tuple[int, int], name: str, dynamic: bool
) -> None:
    check_reduction(check, shape, name, 1, dynamic)
    assert "rows" in reduced(transpositions)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["sum", "amax", "any", "sums"])
@pytest.mark.parametrize("shape", (*SHAPES, (1500, 40), (700, 130)), ids=str)
def test_columns(
    check: Check, transpositions: list[Transposition], shape: tuple[int, int], name: str, dynamic: bool
) -> None:
    check_reduction(check, shape, name, 0, dynamic)
    assert "columns" in reduced(transpositions)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int8], ids=str)
def test_data_types(check: Check, transpositions: list[Transposition], dtype: torch.dtype) -> None:
    x, y, z = spread(70, 90, dtype=dtype), spread(90, 70, dtype=dtype), spread(90, 70, dtype=dtype)
    check(lambda x, y, z: (x.t().float() + y + z).sum(1), x, y, z, tolerance=1e-5)
    check(lambda x, y, z: (x.t().float() + y + z).sum(0), x, y, z, tolerance=1e-5)
    assert reduced(transpositions) == ["rows", "columns"]


@pytest.mark.parametrize("shape", [(2, 40, 100), (3, 64, 33), (1, 384, 150)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_norm_behind_a_convolution(
    check: Check, transpositions: list[Transposition], shape: tuple[int, int, int], dynamic: bool
) -> None:
    """As Whisper's encoder has it: channels first from a convolution, channels last from the residual."""
    batch, channels, length = shape
    x, y, w = spread(batch, channels, length), spread(batch, length, channels), spread(channels)

    def norm(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.native_layer_norm(x.transpose(1, 2) + y, [channels], w, w + 1, 1e-5)

    check(norm, x, y, w, dynamic=dynamic, tolerance=1e-5)
    assert "rows" in reduced(transpositions)


def test_statistics_are_stored_beside_results_that_are_turned(
    check: Check, transpositions: list[Transposition]
) -> None:
    """Outputs with an element for each row, of a kernel whose tiles are those of another output."""
    x, w = spread(2, 40, 9, 11), spread(40)

    def norm(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.native_layer_norm(x.permute(0, 2, 3, 1), [40], w, w + 1, 1e-5)

    check(norm, x, w, tolerance=1e-5)
    check(norm, x, w, tolerance=1e-5, dynamic=True)
    assert reduced(transpositions) == ["", ""]


def test_memory_that_is_overwritten_is_read_first(check: Check) -> None:
    def in_place(x: Tensor, y: Tensor) -> Tensor:
        y.add_(x.t())
        x.mul_(2)
        return F.layer_norm(y, y.shape[1:])

    check(in_place, spread(40, 70), spread(70, 40), tolerance=1e-5)


def test_an_operand_that_two_sums_read_by_themselves_is_turned_for_a_block_of_columns(
    check: Check, transpositions: list[Transposition]
) -> None:
    """There is no loop of a reduction around both in which a tile could lie."""
    x, y, z = spread(70, 90), spread(90, 70), spread(90, 70)

    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        first = (x.t() + y + z).sum(0)
        return first, ((x.t() * y + z) - first).amax(0)

    check(function, x, y, z, tolerance=1e-5)
    check(lambda x, y, z: (x.t() + y * z).argmin(0), x, y, z)
    assert "columns" not in reduced(transpositions) and "blocks" in reduced(transpositions)


def both_ways(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Results that lie as `x` does and as the others do, and sums of the others' columns."""
    value = (x + y.t()).tanh()
    return value, value.t() * z - w, (z * w * value.t()).sum(0), (z + w).amax(0)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", (*SHAPES, (700, 40)), ids=str)
def test_results_that_lie_both_ways_beside_sums_of_columns(
    check: Check, transpositions: list[Transposition], shape: tuple[int, int], dynamic: bool
) -> None:
    rows, columns = shape
    others = (spread(rows, columns) + number for number in range(3))
    check(both_ways, spread(columns, rows), *others, dynamic=dynamic, tolerance=1e-5)
    assert "blocks" in reduced(transpositions)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_results_of_other_types_that_lie_both_ways(
    check: Check, transpositions: list[Transposition], dtype: torch.dtype
) -> None:
    others = (spread(45, 100, dtype=dtype) for _ in range(3))
    tolerance = 2.0**-6 if dtype == torch.bfloat16 else 1e-12
    check(both_ways, spread(100, 45, dtype=dtype), *others, tolerance=tolerance)
    assert "blocks" in reduced(transpositions)


def test_rows_of_a_tile_that_reaches_beyond_the_end_are_computed_from_the_last_one(compiled: Any) -> None:
    """Of 97 rows: otherwise Halide would take the number of rows that are left for unknown, and allocate accumulators
    for each."""
    x, y, w = spread(70, 97), spread(97, 70), spread(70)
    found = compiled(lambda x, y, w: F.layer_norm(x.t() + y, [70], w, w), x, y, w)
    assert "clamped=('x0',)" in found.code and "hl.min(x0, 96)" in found.code
    assert "BoundExtent('sum_0_lanes', 'x0', 1)" in found.code
    truth = F.layer_norm((x.t() + y).double(), [70], w.double(), w.double())
    torch.testing.assert_close(found.results[0].double(), truth, rtol=1e-5, atol=1e-5)
