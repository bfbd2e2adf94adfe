"""Rows that are looked up: transposed in tiles, and several together if each is less than a vector."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Unroll

TARGET = Target.named("avx512")


def channels_first(table: Tensor, i: Tensor) -> Tensor:
    return F.embedding(i, table).transpose(1, 2).contiguous()


def channels_first_scaled(table: Tensor, i: Tensor) -> Tensor:
    return (F.embedding(i, table) * 2 + 1).transpose(1, 2).contiguous()


def bias(table: Tensor, i: Tensor) -> Tensor:
    return table[i].permute(2, 0, 1).contiguous()


def masked(table: Tensor, i: Tensor) -> Tensor:
    return (F.embedding(i, table) * (i != 0)[..., None]).transpose(1, 2).contiguous()


def rows(table: Tensor, i: Tensor) -> Tensor:
    return F.embedding(i, table)


def run(function: Callable[..., Tensor], table: Tensor, i: Tensor, *, dynamic: bool = False) -> str:
    """The code of `function`, whose results are eager's, also of an index out of range."""
    found = compile_for("halide_backend", function, dynamic=dynamic)
    before = halide_backend.stats()
    torch.testing.assert_close(found(table, i), function(table, i), rtol=0, atol=0)
    for key in ("delegation_reasons", "unfusing_reasons"):
        assert halide_backend.stats()[key] == before[key]
    for wrong in (table.shape[0], 2**31 - 1 if i.dtype == torch.int32 else 2**40, -table.shape[0] - 1):
        outside = i.clone()
        outside.view(-1)[-1] = wrong
        with pytest.raises(IndexError):
            found(table, outside)
    return "".join(found.codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("size", "width", "shape"), [(300, 64, (4, 64)), (50, 33, (2, 101)), (7, 250, (3, 17))])
@pytest.mark.parametrize("function", [channels_first, channels_first_scaled, bias, masked])
def test_transposed_rows_are_read_in_vectors(
    function: Callable[..., Tensor], size: int, width: int, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    table, i = torch.randn(size, width).to(dtype), torch.randint(0, size, shape)
    assert "memory.transposed(" in run(function, table, i)


def test_transposed_rows_of_computed_number_are_read_in_vectors() -> None:
    table, i = torch.randn(40, 65), torch.randint(0, 40, (3, 75))
    assert "memory.transposed(" in run(channels_first, table, i, dynamic=True)


def test_columns_that_are_looked_up_are_not_turned() -> None:
    def columns(x: Tensor, i: Tensor) -> Tensor:
        return x[:, i].transpose(0, 1).contiguous()

    table, i = torch.randn(90, 70), torch.randint(0, 70, (80,))
    found = compile_for("halide_backend", columns)
    torch.testing.assert_close(found(table, i), columns(table, i), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(("width", "together"), [(7, True), (15, True), (16, False), (33, False)])
def test_rows_of_less_than_a_vector_are_looked_up_together(width: int, together: bool, dtype: torch.dtype) -> None:
    table, i = torch.randn(50, width), torch.randint(0, 50, (4003,), dtype=dtype)
    (kernel,) = captured_kernels(rows, (table, i), TARGET, False)
    steps = plan_kernel(kernel.program, device_of(TARGET)).plan.steps
    assert (Unroll("out_ptr0", "x0_u") in steps) is together
    run(rows, table, i)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_what_lies_outside_is_found_by_one_comparison(dtype: torch.dtype) -> None:
    # torch takes an index of uint8 for a mask, and none of less than 32 bits otherwise.
    index = {torch.uint8: torch.int64, torch.int8: torch.int32, torch.int16: torch.int32}.get(dtype, dtype)

    def looked_up(x: Tensor, i: Tensor) -> Tensor:
        return x[i.to(dtype).to(index)]

    x = torch.randn(100)
    call = compile_for("halide_backend", looked_up).call
    limits = torch.iinfo(dtype)
    for number in (0, 5, 99, -1, -99, -100, 100, -101, 127, limits.max, limits.min):
        if not limits.min <= number <= limits.max:
            continue
        i = torch.full((40,), 3)
        i[37] = number
        if -100 <= number < 100:
            assert torch.equal(call(x, i), looked_up(x, i))
        else:
            with pytest.raises(IndexError):
                call(x, i)
