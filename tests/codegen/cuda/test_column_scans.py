"""Scans over outer dimensions: the kernels' accesses and exchanges, and their values, as a machine of numpy computes
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cuda_programs import TARGET, checked, cuda_kernel_text, ptx_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import ComputeAt
from halide_backend.schedule.tiling import Tiling, TilingKind

GPU = device_of(TARGET)
INF, NAN = float("inf"), float("nan")

#: Knobs with which a column of a hundred points is several rounds of several threads.
ROUNDS = {"threads": 2, "points": 4}


@pytest.fixture
def program_of(scan_programs: Callable[..., list[LoopProgram]]) -> Callable[..., LoopProgram]:
    def captured(function: Callable[..., Any], *arguments: Tensor) -> LoopProgram:
        (program,) = scan_programs(function, *arguments)
        return program

    return captured


@pytest.fixture
def values(program_of: Callable[..., LoopProgram]) -> Callable[..., list[Tensor]]:
    """values(function, *arguments): what the machine computes with the `knobs`."""

    def computed(function: Callable[..., Any], *arguments: Tensor, **knobs: int) -> list[Tensor]:
        program = program_of(function, *arguments)
        text = cuda_kernel_text(program, {f"column_scans.{name}": value for name, value in knobs.items()})
        assert "TilingKind.SCANNED_COLUMNS" in text
        results = function(*arguments)
        results = list(results) if isinstance(results, tuple) else [results]
        found = [torch.full_like(result, 77) for result in results]
        CudaKernel(text).on_tensors(*arguments, *found)
        return found

    return computed


def small(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers whose sums are exact."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(shape[0])).to(dtype)


def special(rows: int, columns: int) -> Tensor:
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    x[rows // 2, 0], x[1, 1], x[2, 1] = NAN, INF, -INF
    x[:, 2], x[1:3, 3] = -INF, INF
    x[::3, 4], x[0, 5], x[1, 5] = x[:, 4].max(), 0.0, -0.0
    x[3, 6], x[-2, 6], x[::2, 7] = NAN, NAN, x[:, 7].min()
    return x


def tiling_of(program: LoopProgram, **knobs: int) -> Tiling:
    found = plan_kernel(program, GPU, {f"column_scans.{name}": value for name, value in knobs.items()}).plan
    assert found.mapping.tiling is not None
    return found.mapping.tiling


# -- accesses and exchanges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_round_loads_once_and_exchanges_once(program_of: Callable[..., LoopProgram], dtype: torch.dtype) -> None:
    program = program_of(lambda x: x.cumsum(0), torch.zeros(8192, 4096, dtype=dtype))
    tiling, code = tiling_of(program), checked(ptx_of(program))
    assert tiling.kind is TilingKind.SCANNED_COLUMNS
    assert tiling.side * tiling.threads == 256
    # A loop over rounds: in each a word for each point, and what each thread of a column has in all.
    assert code.count(r"\bbra\b") == 1
    assert code.loads == code.stores == tiling.lines == 16
    assert code.count(r"bar\.sync") == code.count(r"st\.shared") == tiling.elements
    assert code.count(r"ld\.shared") == tiling.elements * tiling.threads


def test_a_thread_has_a_column_where_there_are_many(program_of: Callable[..., LoopProgram]) -> None:
    program = program_of(lambda x: x.cumsum(1), torch.zeros(512, 100, 1024))
    code = checked(ptx_of(program))
    assert tiling_of(program).threads == 1
    assert code.count(r"shared") == code.count(r"bar\.sync") == 0
    assert code.loads == code.stores == 16


def test_few_points_need_no_loop(program_of: Callable[..., LoopProgram]) -> None:
    code = checked(ptx_of(program_of(lambda x: x.cumsum(1), torch.zeros(4096, 8, 256))))
    assert code.count(r"\bbra\b") == 0
    assert "carried" not in code.code


# -- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(300, 64), (70, 37), (5, 8), (64, 130)], ids=str)
def test_sums_of_columns(values: Callable[..., Any], shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = small(*shape, dtype=dtype)
    (found,) = values(lambda x: x.cumsum(0), x)
    assert torch.equal(found, x.double().cumsum(0).to(dtype))


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("points", [4, 16])
@pytest.mark.parametrize("elements", [1, 4])
def test_every_form_is_right(values: Callable[..., Any], threads: int, points: int, elements: int) -> None:
    x = small(3, 90, 64)
    (found,) = values(lambda x: x.cumsum(1), x, threads=threads, points=points, elements=elements, columns=16)
    assert torch.equal(found, x.cumsum(1))


def test_a_middle_dimension_of_four(values: Callable[..., Any]) -> None:
    x = small(2, 3, 40, 24)
    assert torch.equal(values(lambda x: x.cumsum(2), x)[0], x.cumsum(2))
    assert torch.equal(values(lambda x: x.cumsum(1), x)[0], x.cumsum(1))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("knobs", [{}, ROUNDS], ids=["whole", "rounds"])
def test_extrema_and_where_they_are(values: Callable[..., Any], name: str, knobs: dict[str, int]) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        found, indices = getattr(x, name)(0)
        return found, indices

    x = special(33, 16)
    found, wanted = values(function, x, **knobs), function(x)
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0, equal_nan=True)
    # NaN stays where it came first or last, and of equal numbers the last counts, as in eager.
    assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("knobs", [{}, ROUNDS], ids=["whole", "rounds"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_sums_of_exponentials(
    values: Callable[..., Any], dtype: torch.dtype, knobs: dict[str, int]
) -> None:
    x = special(50, 16).to(dtype)
    (found,) = values(lambda x: x.logcumsumexp(0), x, **knobs)
    torch.testing.assert_close(found, x.logcumsumexp(0), equal_nan=True)


def test_a_product_a_bool_and_integers_that_wrap(values: Callable[..., Any]) -> None:
    x = 1 + special(70, 8).nan_to_num(0, 0, 0) / 50
    torch.testing.assert_close(values(lambda x: x.cumprod(0), x)[0], x.cumprod(0))
    assert torch.equal(values(lambda x: (x > 0.99).cumsum(0), x, **ROUNDS)[0], (x > 0.99).cumsum(0))
    y = torch.full((100, 8), 3, dtype=torch.uint8)
    assert torch.equal(
        values(lambda x: x.cumprod(0, dtype=torch.uint8), y, **ROUNDS)[0], y.cumprod(0, dtype=torch.uint8)
    )


def test_operations_before(values: Callable[..., Any]) -> None:
    def function(x: Tensor, y: Tensor, bias: Tensor) -> Tensor:
        return (torch.relu(x) * y + bias).cumsum(0)

    arguments = small(100, 48), small(100, 48).flip(0), small(48)
    assert torch.equal(values(function, *arguments, **ROUNDS)[0], function(*arguments))


def test_a_scan_of_what_a_scan_is_selected_from(values: Callable[..., Any]) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(torch.arange(x.shape[0])[:, None] > 4, x.cumsum(0), 0).cumsum(0)

    x = small(100, 16)
    assert torch.equal(values(function, x, **ROUNDS)[0], function(x))


@pytest.mark.parametrize("rows", [2, 63, 100, 257])
def test_any_number_of_points(program_of: Callable[..., LoopProgram], rows: int) -> None:
    """One kernel for all: as many rounds as there are."""
    typical = small(100, 64)
    torch._dynamo.mark_dynamic(typical, 0)
    kernel = CudaKernel(cuda_kernel_text(program_of(lambda x: x.cumsum(0), typical)))
    x = small(rows, 64)
    memory = [np.array(tensor.numpy().reshape(-1).view(np.uint8)) for tensor in (x, torch.zeros_like(x))]
    tensors = iter(range(2))
    kernel(memory, [next(tensors) if a["kind"] == "buffer" else rows for a in kernel.arguments])
    assert torch.equal(torch.from_numpy(memory[1]).view(torch.float32).reshape(rows, 64), x.cumsum(0))


# -- what is refused --------------------------------------------------------------------------------------------


def test_what_would_be_exchanged_in_another_loop_is_refused(program_of: Callable[..., LoopProgram]) -> None:
    program = program_of(lambda x: x.cumsum(0), torch.zeros(100, 64))
    plan = plan_kernel(program, GPU).plan
    steps = tuple(
        ComputeAt(s.func, s.consumer, "u") if isinstance(s, ComputeAt) and s.func == "scan_0_combined" else s
        for s in plan.steps
    )
    with pytest.raises(IllegalPlan, match="serial loop o"):
        plan_kernel(program, GPU, plan=type(plan)(plan.mapping, steps))
