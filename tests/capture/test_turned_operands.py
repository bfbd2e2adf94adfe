"""Operands of reductions that lie across the others: turned in registers, for some rows or columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend import pipeline
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


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What kernels that are planned from now on turn operands for."""
    found: list[Transposition] = []
    schedule = pipeline.schedule_kernel

    def watched(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        if (turned := scheduled.kernel.plan.mapping.transposition) is not None:
            found.append(turned.reduced)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", watched)
    return found


def spread(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """No two neighbours are equal, in whatever direction; all lie within 2."""
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return (((count * 37 + count // 13) % 241) / 64 - 1.875).to(dtype)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows(check: Check, reduced: list[str], shape: tuple[int, int], name: str, dynamic: bool) -> None:
    rows, columns = shape
    function = REDUCTIONS[name]
    check(
        lambda x, y, z: function(x.t() + y * z, 1),
        spread(columns, rows),
        spread(rows, columns),
        spread(rows, columns) + 1,
        dynamic=dynamic,
        tolerance=1e-5,
    )
    assert "rows" in reduced


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["sum", "amax", "any", "sums"])
@pytest.mark.parametrize("shape", (*SHAPES, (1500, 40), (700, 130)), ids=str)
def test_columns(check: Check, reduced: list[str], shape: tuple[int, int], name: str, dynamic: bool) -> None:
    rows, columns = shape
    function = REDUCTIONS[name]
    check(
        lambda x, y, z: function(x.t() + y * z, 0),
        spread(columns, rows),
        spread(rows, columns),
        spread(rows, columns) + 1,
        dynamic=dynamic,
        tolerance=1e-5,
    )
    assert "columns" in reduced


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int8], ids=str)
def test_data_types(check: Check, reduced: list[str], dtype: torch.dtype) -> None:
    x, y, z = spread(70, 90, dtype=dtype), spread(90, 70, dtype=dtype), spread(90, 70, dtype=dtype)
    check(lambda x, y, z: (x.t().float() + y + z).sum(1), x, y, z, tolerance=1e-5)
    check(lambda x, y, z: (x.t().float() + y + z).sum(0), x, y, z, tolerance=1e-5)
    assert reduced == ["rows", "columns"]


@pytest.mark.parametrize("shape", [(2, 40, 100), (3, 64, 33), (1, 384, 150)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_norm_behind_a_convolution(
    check: Check, reduced: list[str], shape: tuple[int, int, int], dynamic: bool
) -> None:
    """As Whisper's encoder has it: channels first from a convolution, channels last from the residual."""
    batch, channels, length = shape
    x, y, w = spread(batch, channels, length), spread(batch, length, channels), spread(channels)

    def norm(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.native_layer_norm(x.transpose(1, 2) + y, [channels], w, w + 1, 1e-5)

    check(norm, x, y, w, dynamic=dynamic, tolerance=1e-5)
    assert "rows" in reduced


def test_statistics_are_stored_beside_results_that_are_turned(check: Check, reduced: list[str]) -> None:
    """Outputs with an element for each row, of a kernel whose tiles are those of another output."""
    x, w = spread(2, 40, 9, 11), spread(40)

    def norm(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.native_layer_norm(x.permute(0, 2, 3, 1), [40], w, w + 1, 1e-5)

    check(norm, x, w, tolerance=1e-5)
    check(norm, x, w, tolerance=1e-5, dynamic=True)
    assert reduced == ["", ""]


def test_memory_that_is_overwritten_is_read_first(check: Check) -> None:
    def in_place(x: Tensor, y: Tensor) -> Tensor:
        y.add_(x.t())
        x.mul_(2)
        return F.layer_norm(y, y.shape[1:])

    check(in_place, spread(40, 70), spread(70, 40), tolerance=1e-5)


def test_an_operand_that_two_sums_read_by_themselves_is_not_turned(check: Check, reduced: list[str]) -> None:
    """There is no loop around both in which a tile could lie."""
    x, y, z = spread(70, 90), spread(90, 70), spread(90, 70)

    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        first = (x.t() + y + z).sum(0)
        return first, ((x.t() * y + z) - first).amax(0)

    check(function, x, y, z, tolerance=1e-5)
    check(lambda x, y, z: (x.t() + y * z).argmin(0), x, y, z)
    assert "columns" not in reduced
