"""Columns of which a thread loads adjacent ones as a vector, and those whose moments few threads combine."""

from __future__ import annotations

import re
from collections.abc import Callable

import kernel_values
import pytest
import torch
from cuda_programs import TARGET, Ptx, cuda_kernel_text, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import Tiling


def pictures(count: int, channels: int, pixels: int, dtype: torch.dtype) -> Tensor:
    """Channels last."""
    return torch.randint(-3, 4, (count, pixels, channels)).to(dtype)


def tiling_of(function: Callable[..., object], *operands: Tensor) -> Tiling:
    (program,) = programs_of(function, operands)
    mapping = plan_kernel(program, device_of(TARGET)).plan.mapping
    assert mapping.rule == "column_groups" and mapping.tiling is not None
    return mapping.tiling


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """vectors(columns, width): what a rule chooses for more pictures than a test can have."""

    def chosen(columns: int, width: int) -> None:
        knobs = {"column_groups.columns": columns, "column_groups.width": width}
        monkeypatch.setattr(kernel_values, "cuda_kernel_text", lambda program: cuda_kernel_text(program, knobs))

    return chosen


def widths(kernels: list[CudaKernel]) -> set[int]:
    """Elements that threads of columns have at a time."""
    return {int(found) for kernel in kernels for found in re.findall(r"TilingKind.COLUMNS.*elements=(\d)", kernel.text)}


@pytest.mark.parametrize(("channels", "columns"), [(48, 16), (64, 64), (24, 8)])
@pytest.mark.parametrize(
    ("dtype", "width"),
    [(torch.float32, 4), (torch.bfloat16, 8), (torch.float16, 8), (torch.int8, 8), (torch.float64, 2)],
)
def test_sums_of_vectors_of_columns(
    dtype: torch.dtype, width: int, channels: int, columns: int, vectors: Callable[[int, int], None]
) -> None:
    def sums(x: Tensor, w: Tensor) -> Tensor:
        wide = x.double() if dtype == torch.float64 else x.float()
        return (wide * w).sum(1)

    vectors(columns, width)
    kernels = check_values(sums, pictures(3, channels, 203, dtype), pictures(1, channels, 1, dtype)[0, 0])
    assert widths(kernels) == {width}


@pytest.mark.parametrize("kind", ["sum", "amax", "any", "argmax"])
def test_any_reduction_of_vectors_of_columns(kind: str, vectors: Callable[[int, int], None]) -> None:
    def reduced(x: Tensor) -> Tensor:
        result: Tensor = getattr(x > 1 if kind == "any" else x, kind)(1)
        return result

    vectors(32, 8)
    assert widths(check_values(reduced, pictures(2, 32, 300, torch.bfloat16))) == {8}


def test_pictures_that_fill_the_gpu() -> None:
    """134 pictures fill the SMs without a knob."""
    operand = pictures(134, 32, 65, torch.bfloat16)
    assert widths(check_values(lambda x: x.float().mean(1), operand)) == {8}


@pytest.mark.parametrize(("dtype", "width"), [(torch.bfloat16, 8), (torch.float32, 4), (torch.float64, 2)])
def test_a_thread_loads_a_vector_of_adjacent_columns(
    compiled_ptx: Callable[..., Ptx], dtype: torch.dtype, width: int
) -> None:
    """Means of channels-last pictures loaded elements of 2 bytes one by one: 0.63 of Triton's speed on an H200."""
    x = torch.empty(215, 3136, 48, dtype=dtype)
    tiling = tiling_of(lambda x: x.mean(1), x)
    assert (tiling.elements, tiling.line_elements, tiling.side * width) == (width, 1, 16)
    code = compiled_ptx(lambda x: x.mean(1), x)
    assert code.wide_loads == code.loads > 0


def test_blocks_are_as_large_as_the_gpu_needs() -> None:
    """Blocks of 512 threads for each of 300 groups of columns took three rounds, the last of them half full."""
    many, few = (torch.empty(n, p, c, dtype=torch.bfloat16) for n, p, c in ((215, 3136, 48), (16, 784, 256)))
    assert [t.side * t.threads for t in (tiling_of(lambda x: x.mean(1), x) for x in (many, few))] == [64, 128]


def test_few_threads_combine_the_moments_of_a_column() -> None:
    """Each thread combines those of all: 32 threads of a column took 50.5 us where 16 take 27.4."""
    x = torch.empty(215, 3136, 48, dtype=torch.bfloat16)

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.float().sum(1) / x.shape[1]
        deviation = x.float() - mean[:, None]
        return mean, (deviation * deviation).sum(1)

    tiling = tiling_of(moments, x)
    assert (tiling.threads, tiling.side, tiling.elements) == (16, 16, 1)


def test_columns_of_weighted_values(vectors: Callable[[int, int], None]) -> None:
    """What a thread loads for its columns alone, not for each point: beside the sums, or among what is stored."""

    def scaled(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (x * w).sum(1) * b + w

    vectors(32, 4)
    w, b = (pictures(1, 32, 1, torch.float32)[0, 0] for _ in range(2))
    assert widths(check_values(scaled, pictures(2, 32, 200, torch.float32), w, b)) == {4}


def test_a_width_that_does_not_fit_is_refused() -> None:
    (program,) = programs_of(lambda x: x.mean(1), (torch.empty(215, 3136, 48),))
    for knobs in ({"column_groups.columns": 4, "column_groups.width": 8}, {"column_groups.threads": 8}):
        with pytest.raises(IllegalPlan, match=r"do not divide|whole warps"):
            plan_kernel(program, device_of(TARGET), {**knobs, "column_groups.columns": 4})
