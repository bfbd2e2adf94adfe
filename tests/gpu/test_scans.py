"""Scans on a GPU against eager: every operator, dtype and dimension, odd lengths, specials, neighbours, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import halide_backend

pytestmark = pytest.mark.gpu
Native = Callable[[], int]
INF, NAN = float("inf"), float("nan")
LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 1000, 2001, 4096, 5000, 20000)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)


def run(function: Callable[..., Any], *arguments: Tensor) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)(*arguments)


def small(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers whose sums are exact."""
    numbers = torch.randint(-2, 3, shape, device="cuda")
    return numbers.abs().to(dtype) if dtype is torch.uint8 else numbers.to(dtype)


@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_rows(native: Native, dtype: torch.dtype, columns: int) -> None:
    # Of fewer rows that are longer than 8192 Inductor makes split scans.
    x = small(300, columns, dtype=dtype)
    found = run(lambda x: x.cumsum(-1), x)
    wanted = x.double().cumsum(-1).to(found.dtype) if dtype.is_floating_point else x.cumsum(-1)
    assert found.dtype == x.cumsum(-1).dtype
    assert torch.equal(found, wanted)
    # Rows of more words than a block holds are Triton's.
    if columns < 20000 or dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert native() == 1


@pytest.mark.parametrize("rows", [1, 3, 4, 6, 8, 37])
@pytest.mark.parametrize("columns", [8, 16, 20, 64, 130, 1000, 3000])
def test_any_number_of_rows(native: Native, rows: int, columns: int) -> None:
    x = small(rows, columns)
    assert torch.equal(run(lambda x: x.cumsum(-1), x), x.cumsum(-1))
    assert native() == 1


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("shape", [(33, 40, 65), (128, 7, 36), (5, 1000, 4)], ids=str)
def test_any_dimension(shape: tuple[int, ...], dimension: int) -> None:
    x = small(*shape)
    assert torch.equal(run(lambda x: x.cumsum(dimension), x), x.cumsum(dimension))


@pytest.mark.parametrize("shape", [(8192, 2048), (4099, 2001)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_shapes_of_the_benchmark(native: Native, shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = small(*shape, dtype=dtype)
    assert torch.equal(run(lambda x: x.cumsum(-1), x), x.double().cumsum(-1).to(dtype))
    assert native() == 1


def test_integers_wrap(native: Native) -> None:
    x = torch.full((20, 600), 2**30, dtype=torch.int32, device="cuda")
    assert torch.equal(run(lambda x: x.cumsum(-1, dtype=torch.int32), x), x.cumsum(-1, dtype=torch.int32))
    y = torch.full((20, 300), 3, dtype=torch.int64, device="cuda")
    assert torch.equal(run(lambda x: x.cumprod(-1), y), y.cumprod(-1))
    assert native() == 2


@pytest.mark.parametrize("columns", LENGTHS[:-1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_products(native: Native, dtype: torch.dtype, columns: int) -> None:
    x = (1 + torch.randn(70, columns, device="cuda") / 1000).to(dtype)
    found, wanted = run(lambda x: x.cumprod(-1), x), x.double().cumprod(-1).to(dtype)
    torch.testing.assert_close(found, wanted, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=0)
    assert native() == 1


def special(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Rows with NaN, infinities of either sign, equal numbers and zeros of either sign."""
    x = torch.randn(rows, columns, device="cuda").to(dtype)
    if dtype.is_floating_point and columns > 2:
        x[0, columns // 2] = NAN
        x[1, 1], x[1, 2] = INF, -INF
        x[2], x[3, 1:3] = -INF, INF
        x[5, 0], x[5, 1] = 0.0, -0.0
        x[6, 2], x[6, -1] = NAN, NAN
        x[8, 0] = NAN
    x[4, ::3], x[7, ::2] = x[4].nan_to_num().max(), x[7].nan_to_num().min()
    return x


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("columns", LENGTHS[:-1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32], ids=str)
def test_extrema_and_where_they_are(native: Native, name: str, dtype: torch.dtype, columns: int) -> None:
    x = special(70, columns, dtype)
    found, indices = run(lambda x: getattr(x, name)(-1), x)
    wanted, places = getattr(x, name)(-1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices, places)
    assert native() >= 1


def test_extrema_of_rows_of_any_length_are_one_kernel() -> None:
    """Values and places are two nodes, which this backend leaves to Triton's: each had a kernel that computed both."""
    x = special(70, 1000, torch.float32)
    torch._dynamo.reset()
    halide_backend.reset_stats()
    found, indices = torch.compile(lambda x: x.cummax(-1), dynamic=True)(x)
    wanted, places = x.cummax(-1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices, places)
    assert halide_backend.stats()["delegation_reasons"] == {"scan-of-dynamic-length": 1}


@pytest.mark.parametrize("columns", LENGTHS[:-1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_logarithms_of_sums_of_exponentials(native: Native, dtype: torch.dtype, columns: int) -> None:
    x = special(70, columns, dtype)
    tolerance = {torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    found = run(lambda x: x.logcumsumexp(-1), x)
    # Eager rounds every partial sum to bfloat16.
    wanted = x.double().logcumsumexp(-1).to(dtype)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert native() == 1


@pytest.mark.parametrize("columns", [33, 1000, 2001, 2048])
def test_sums_of_infinities_and_nan(native: Native, columns: int) -> None:
    x = special(70, columns, torch.float32)
    torch.testing.assert_close(run(lambda x: x.cumsum(-1), x), x.cumsum(-1), rtol=1e-4, atol=1e-3, equal_nan=True)
    assert native() == 1


@pytest.mark.parametrize("columns", [33, 128, 1000, 2001, 2048, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_operations_before_and_after(native: Native, dtype: torch.dtype, columns: int) -> None:
    x, y = small(300, columns, dtype=dtype), small(300, columns, dtype=dtype)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.relu(x).float().cumsum(-1)
        return total * x + y, (y.float() * 2).cumsum(-1) - total

    for found, wanted in zip(run(function, x, y), function(x, y), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 1


@pytest.mark.parametrize("columns", [40, 1000, 2001])
def test_what_selects_a_scan_away_does_not_change_it(native: Native, columns: int) -> None:
    x = small(70, columns)
    for chosen in (lambda n: n < 3, lambda n: n > 5, lambda n: n % 2 == 0, lambda n: n % 64 > 31):

        def function(x: Tensor, chosen: Any = chosen) -> Tensor:
            return torch.where(chosen(torch.arange(x.shape[-1], device="cuda")), x.cumsum(-1), 77.0)

        assert torch.equal(run(function, x), function(x))
    assert native() >= 4


# That of cumprod is a graph of as many steps as there are columns, for AOTAutograd cannot ask whether any is zero.
GRADIENTS = [("cumprod", 33), *((name, n) for name in ("cumsum", "logcumsumexp") for n in (33, 1000, 2001, 4096))]


@pytest.mark.parametrize("name, columns", GRADIENTS)
def test_gradients(name: str, columns: int) -> None:
    x = (1 + torch.randn(70, columns, device="cuda") / 100).requires_grad_()
    weight = torch.randn(70, columns, device="cuda")
    (wanted,) = torch.autograd.grad((getattr(x.double(), name)(-1) * weight).sum(), x)
    torch._dynamo.reset()
    (found,) = torch.autograd.grad((torch.compile(lambda x: getattr(x, name)(-1), dynamic=False)(x) * weight).sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-2)


def test_in_place_and_out_of_slices() -> None:
    x = small(70, 1000)
    wanted = x.cumsum(-1)

    def added(x: Tensor) -> Tensor:
        return x.copy_(x.cumsum(-1))

    assert torch.equal(run(added, x.clone()), wanted)
    y = small(71, 1003)
    assert torch.equal(run(lambda y: y[1:, 2:].cumsum(-1), y), y[1:, 2:].cumsum(-1))
    assert torch.equal(run(lambda y: y.flip(-1).cumsum(-1).flip(-1), y), y.flip(-1).cumsum(-1).flip(-1))
    assert torch.equal(run(lambda y: y.t().contiguous().cumsum(-1), y), y.t().cumsum(-1))


def test_few_long_rows_and_empty_ones() -> None:
    x = small(2, 100_000)
    assert torch.equal(run(lambda x: x.cumsum(-1), x), x.cumsum(-1))
    assert run(lambda x: x.cumsum(-1), small(3, 0)).shape == (3, 0)
    assert run(lambda x: x.cumsum(-1), small(0, 3)).shape == (0, 3)
    assert run(lambda x: x.cumsum(0), small(1)[0]).shape == ()


def test_a_scan_beside_a_reduction() -> None:
    x = small(300, 1000)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.cumsum(-1) / (1 + x.abs().sum(-1, keepdim=True)), x.sum(-1)

    for found, wanted in zip(run(function, x), function(x), strict=True):
        torch.testing.assert_close(found, wanted)
    assert int(str(halide_backend.stats()["native_kernels"])) >= 1
