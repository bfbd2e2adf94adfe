"""Scans on a CPU: equal to ATen's, in kernels of their own, along any axis and of any length."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

Check = Callable[..., Any]

AVX2 = Target.named("avx2")

#: Lengths around chunks of 8 elements, up to 4 of which have code of their own, and a longer one.
LENGTHS = (2, 7, 8, 9, 16, 25, 31, 32, 33, 40, 1001)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dimension", [0, 1])
def test_sums_are_those_of_float64(check: Check, length: int, dimension: int) -> None:
    torch.manual_seed(0)
    x = torch.randn((length, 6) if dimension == 0 else (6, length))
    outcome = check(lambda x: x.cumsum(dimension), x)
    assert outcome.kernels == 1
    # ATen accumulates in float64, too: what is rounded once is the number next to the sum.
    assert torch.equal(outcome.results[0], x.double().cumsum(dimension).float())


@pytest.mark.skipif(bool(AVX2.requires() - Target.host().requires()), reason="a processor without AVX2")
@pytest.mark.parametrize("shape", [(64, 16), (64, 1024), (3, 100)], ids=str)
def test_chunks_of_rows_are_scanned_in_vectors(shape: tuple[int, ...]) -> None:
    """Element by element, rows of 1,024 floats took 1.2 times as long."""
    additions = re.findall(r"^\s+(vaddpd|vaddsd)\s", _assembly_of_sums(shape), re.MULTILINE)
    assert "vaddpd" in additions and "vaddsd" not in additions


@pytest.mark.skipif(bool(AVX2.requires() - Target.host().requires()), reason="a processor without AVX2")
@pytest.mark.parametrize("length", [9, 15])
def test_where_a_row_of_few_chunks_ends_is_known(length: int) -> None:
    """There was a branch for each element, and rows of 9 floats took three times as long."""
    assert len(re.findall(r"^\s+j\w+\s", _assembly_of_sums((64, length)), re.MULTILINE)) < length


def test_threads_share_many_short_rows_at_a_time() -> None:
    """Each task is a call, and 4 rows of 9 are 36 additions."""
    halide_backend.reset_stats()
    compile_for("halide_backend", lambda x: x.cumsum(-1))(torch.rand(20_000, 9))
    (record,) = halide_backend.records()
    (last,) = re.findall(r"^\s*parallel \S+ in \[0, (\d+)\]", record.loop_nest(), re.MULTILINE)
    assert int(last) < 500


def _assembly_of_sums(shape: tuple[int, ...]) -> str:
    """Of the sums of rows, with AVX2."""
    halide_backend.reset_stats()
    compile_for("halide_backend", lambda x: x.cumsum(-1), options={"halide_backend.target": "avx2"})(torch.rand(shape))
    (record,) = halide_backend.records()
    return str(record.assembly())


@pytest.mark.parametrize("shape, dimension", [((20_000,), 0), ((3, 20_000), 1), ((20_000, 3), 0)], ids=str)
def test_long_sums_do_not_lose_bits(check: Check, shape: tuple[int, ...], dimension: int) -> None:
    torch.manual_seed(0)
    x = torch.rand(shape) + 1000
    found = check(lambda x: x.cumsum(dimension), x).results[0]
    assert torch.equal(found, x.double().cumsum(dimension).float())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", [(5, 9, 31), (4, 16, 32), (2, 1, 40), (1, 3, 1)], ids=str)
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_every_dimension(check: Check, shape: tuple[int, ...], dimension: int) -> None:
    torch.manual_seed(0)
    x = torch.rand(shape) + 0.5
    check(lambda x: x.cumsum(dimension), x)
    check(lambda x: x.cumprod(dimension), x)
    check(lambda x: x.logcumsumexp(dimension), x * 20 - 10)
    check(lambda x: x.transpose(0, 2).cumsum(dimension), x)
    check(lambda x: x.flip(dimension).cumsum(dimension).flip(dimension), x)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool], ids=str
)
@pytest.mark.parametrize("dimension", [0, 1])
def test_every_type(check: Check, dtype: torch.dtype, dimension: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(33, 70)
    check(lambda x: x.cumsum(dimension), x > 0 if dtype == torch.bool else (x * 4).to(dtype))


def test_types_that_are_asked_for_wrap_around(check: Check) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 200, (9, 70), dtype=torch.uint8)
    for dtype in (torch.uint8, torch.int32, torch.float32):
        check(lambda x, dtype=dtype: x.cumsum(1, dtype=dtype), x)
        check(lambda x, dtype=dtype: x.cumsum(0, dtype=dtype), x)


@pytest.mark.parametrize("dimension", [0, 1])
def test_infinities_and_nans_stay_where_they_begin(check: Check, dimension: int) -> None:
    x = torch.ones(40, 40)
    x[3, 5], x[7, 30], x[20, 20] = float("inf"), float("nan"), -float("inf")
    check(lambda x: x.cumsum(dimension), x)
    check(lambda x: x.cumprod(dimension), x)
    check(lambda x: x.logcumsumexp(dimension), x)


def test_what_is_scanned_is_computed_in_the_kernel(check: Check) -> None:
    torch.manual_seed(0)
    outcome = check(lambda x, y: (torch.sigmoid(x) * y).cumsum(-1), torch.randn(30, 100), torch.randn(30, 100))
    assert outcome.kernels == 1


def test_what_is_made_of_it_has_a_kernel_of_its_own(check: Check) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 100)
    assert check(lambda x: torch.relu(x.cumsum(-1)) * x, x).kernels == 2
    assert check(lambda x: x.cumsum(0) + x.cumsum(1), x).kernels == 3


def test_memory_that_is_scanned_is_overwritten(check: Check) -> None:
    def overwritten(x: Tensor, y: Tensor) -> Tensor:
        x.copy_(x.cumsum(-1))
        y.copy_(y.cumsum(0))
        return x + y

    torch.manual_seed(0)
    check(overwritten, torch.randn(30, 70), torch.randn(30, 70))


def test_positions_of_a_mask(check: Check) -> None:
    """As RoBERTa and OPT count tokens that are not padding."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 3, (4, 197))

    def positions(tokens: Tensor) -> Tensor:
        mask = tokens.ne(1).int()
        return (torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1

    check(positions, tokens)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_one_kernel_for_all_sizes(
    name: str, dimension: int, monkeypatch: pytest.MonkeyPatch, kernel_store: Any
) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(kernel_store))
    compiled = compile_for("halide_backend", lambda x: getattr(x, name)(dimension) * 2, dynamic=True)
    torch.manual_seed(0)
    for shape in ((33, 70), (5, 8), (64, 9), (2, 1000), (1000, 3)):
        x = torch.rand(shape) + 0.5
        torch.testing.assert_close(compiled(x), getattr(x, name)(dimension) * 2)
    # Sizes of 1 are not taken for dynamic ones.
    assert len(compiled.codes) == 1 and not compiled.delegated


def test_gradients(check: Check) -> None:
    torch.manual_seed(0)
    check(lambda x: x.cumsum(-1).tanh(), torch.randn(12, 40, requires_grad=True), gradients=True)
    check(lambda x: x.cumsum(0).tanh(), torch.randn(12, 40, requires_grad=True), gradients=True)


def test_maxima_with_their_places_are_left_to_aten(check: Check) -> None:
    torch.manual_seed(0)
    outcome = check(lambda x: x.cummax(-1), torch.randn(12, 40))
    assert outcome.kernels == 0


def test_rounded_results_are_read_by_a_kernel_of_its_own(check: Check) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 100).bfloat16()
    assert check(lambda x: torch.relu(x.cumsum(-1)) * x, x).kernels == 2


@pytest.mark.parametrize("shape", [(100, 8), (4, 50, 8), (64,), (7, 33), (3, 5000), (1001, 100)], ids=str)
@pytest.mark.parametrize("dimension", [0, -1])
def test_rows_of_one_number(check: Check, shape: tuple[int, ...], dimension: int) -> None:
    """They have no loop over rows that several could share, or would be scanned again for each of many rows, and went
    to C++, which raises NotImplementedError."""
    check(lambda x: (x * 0 + 1).cumprod(dimension), torch.ones(shape))
    check(lambda x: torch.full_like(x, -1).cumprod(dimension) + x, torch.ones(shape, dtype=torch.int32))


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_rows_that_are_all_alike(check: Check, dimension: int) -> None:
    torch.manual_seed(0)
    check(lambda x: x.expand(601, 8, 100).cumsum(dimension), torch.randn(8, 100))
    check(lambda x: x[:, None].expand(8, 501, 100).exp().cumsum(dimension), torch.randn(8, 100))
