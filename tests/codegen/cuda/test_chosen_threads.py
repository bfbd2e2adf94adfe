"""How much of a line, of a column or of what is stored the rules give to a thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import Tiling, TilingKind

DEVICE = device_of(TARGET)


def tiling_of(function: Callable[..., object], *arguments: Tensor) -> Tiling:
    (program,) = programs_of(function, arguments)
    tiling = plan_kernel(program, DEVICE).plan.mapping.tiling
    assert tiling is not None
    return tiling


@pytest.mark.parametrize(
    ("points", "columns", "threads"), [(1024, 4, 64), (512, 4, 64), (341, 8, 16), (130, 8, 16), (70, 8, 8), (49, 8, 8)]
)
def test_few_columns(points: int, columns: int, threads: int) -> None:
    """Long ones have more threads, and short ones fewer than eight points for each would take."""
    tiling = tiling_of(lambda x: x.sum(0), torch.zeros(points, 64))
    assert (tiling.side, tiling.threads) == (columns, threads)


@pytest.mark.parametrize(("points", "columns"), [(47, 64), (49, 8192)])
def test_a_thread_has_a_column_that_is_short_or_one_of_many(points: int, columns: int) -> None:
    assert tiling_of(lambda x: x.sum(0), torch.zeros(points, columns)).kind is TilingKind.THREAD


def test_values_of_few_short_columns(needs_intrinsics: None) -> None:
    x = torch.randn(2, 49, 40, generator=torch.Generator().manual_seed(3))
    (kernel,) = check_values(lambda x: x.mean(1), x, tolerance=1e-6)
    assert "TilingKind.COLUMNS" in kernel.text


@pytest.mark.parametrize(("columns", "is_dynamic", "threads"), [(4224, True, 16), (16384, True, 8), (16384, False, 16)])
def test_many_blocks_of_long_columns_have_fewer_threads(columns: int, is_dynamic: bool, threads: int) -> None:
    (program,) = programs_of(lambda x: x.sum(0), (torch.zeros(1024, columns),), dynamic=is_dynamic)
    tiling = plan_kernel(program, DEVICE).plan.mapping.tiling
    assert tiling is not None and (tiling.side * tiling.elements, tiling.threads) == (32, threads)


@pytest.mark.parametrize(("points", "kind"), [(197, TilingKind.COLUMNS), (24, TilingKind.THREAD)])
def test_places_in_many_long_columns_are_found_by_several_threads(points: int, kind: TilingKind) -> None:
    """A column is read twice: those of a block are in the cache then, not those of as many threads."""
    tiling = tiling_of(lambda x: x.argmax(1), torch.zeros(256, points, 768))
    assert tiling.kind is kind and tiling.threads == (8 if kind is TilingKind.COLUMNS else 1)


@pytest.mark.parametrize(("columns", "side"), [(1000, 32), (72, 8)])
def test_places_are_found_by_blocks_of_whole_lines_of_memory(columns: int, side: int) -> None:
    """Eight columns divide 1,000; but of 32 few are beyond the end."""
    assert tiling_of(lambda x: x.argmax(1), torch.zeros(256, 300, columns)).side == side


@pytest.mark.parametrize(
    ("dtype", "elements", "threads"),
    [
        (torch.bfloat16, 5, 1),
        (torch.bfloat16, 7, 2),
        (torch.float32, 7, 2),
        (torch.float32, 9, 2),
        (torch.float32, 13, 4),
    ],
    ids=str,
)
def test_threads_of_a_short_row(dtype: torch.dtype, elements: int, threads: int) -> None:
    """One more issues as many instructions as five elements take."""
    with inductor_config.patch(unroll_reductions_threshold=1):
        tiling = tiling_of(lambda x: F.normalize(x, dim=-1), torch.zeros(400_000, elements, dtype=dtype))
    assert tiling.kind is TilingKind.REGISTERS and tiling.threads == threads


def test_threads_that_share_a_column_have_the_registers_for_its_loads() -> None:
    (program,) = programs_of(lambda x: x.sum(0), (torch.zeros(341, 64),))
    assert "REGISTERS = 64\n" in plan_kernel(program, DEVICE).text


@pytest.mark.parametrize(
    ("function", "threads"),
    [
        (lambda x: x.logsumexp(-1), {torch.float32: 256, torch.bfloat16: 128}),
        (lambda x: x.softmax(-1), {torch.float32: 512, torch.bfloat16: 256}),
    ],
    ids=["reduced", "stored"],
)
def test_lines_along_which_nothing_is_stored_have_fewer_threads(
    function: Callable[[Tensor], Tensor], threads: dict[torch.dtype, int]
) -> None:
    found = {dtype: tiling_of(function, torch.zeros(512, 4096, dtype=dtype)).threads for dtype in threads}
    assert found == threads


def test_values_of_such_a_line() -> None:
    x = torch.randn(2, 4096, generator=torch.Generator().manual_seed(1))
    check_values(lambda x: x.logsumexp(-1), x, tolerance=1e-6)


def test_statistics_of_few_lines_are_a_warps() -> None:
    """A norm, which is stored along its lines, has a vector for each of 64 threads."""
    x = torch.zeros(256, 256)
    assert tiling_of(lambda x: x.var(-1), x).threads == 32
    assert tiling_of(lambda x: F.layer_norm(x, (256,)), x).threads == 64


def test_sums_of_few_long_lines_have_two_chunks_for_each_thread() -> None:
    """The sums of a batch norm's gradient took 6.5 us on an H200 with a warp for each channel, 3.3 us with a block."""

    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        shared = torch.where(x > 0, y, 0.0)
        return shared.sum(-1), (shared * x).sum(-1)

    x = torch.zeros(128, 1024)
    assert tiling_of(sums, x, x.clone()).threads == 128


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 2), (torch.bfloat16, 3)], ids=str)
def test_what_is_stored_with_steps_between(dtype: torch.dtype, factor: int, needs_intrinsics: None) -> None:
    """A thread's four elements would be four stores, in each of which a warp fills a quarter of a sector. Two of 16
    bits are a word."""
    x = torch.arange(36 * 2 * 56).reshape(1, 36, 2, 56).to(dtype)
    (program,) = programs_of(lambda x: F.pixel_shuffle(x, factor), (x,))
    plan, wanted = plan_kernel(program, DEVICE), F.pixel_shuffle(x, factor)
    assert plan.plan.mapping.tiling is not None and plan.plan.mapping.tiling.elements == 2
    found = torch.full_like(wanted, -1)
    CudaKernel(plan.text).on_tensors(x, found)
    assert torch.equal(found, wanted)


def softmax_gradient(x: Tensor, y: Tensor) -> Tensor:
    """Of each quotient, which a sum needs as well; without a maximum, so that a quotient is as exact as any."""
    e = torch.exp(x)
    quotient = e / e.sum(-1, keepdim=True)
    return y * quotient - quotient * (y * quotient).sum(-1, keepdim=True)


@pytest.mark.parametrize(("rows", "threads"), [(200, 1024), (30, 512)])
def test_blocks_read_again_what_the_cache_holds(rows: int, threads: int) -> None:
    """Gradients of a softmax of rows of 100,003 floats, each of which is read several times: 200 rows are more than an
    H200's cache, of which it reads 132 at a time by blocks of 1,024 threads."""
    x = torch.zeros(rows, 100_003)
    assert tiling_of(softmax_gradient, x, x.clone()).threads == threads


def test_a_quotient_that_is_summed_up_takes_no_branch(needs_intrinsics: None) -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(2, 50_001, generator=generator) for _ in range(2))
    (program,) = programs_of(softmax_gradient, (x, y))
    text = plan_kernel(program, DEVICE).text
    assert "TilingKind.BLOCK" in text and "divide_by_shared(" in text and "truediv(" not in text
    found = torch.full_like(x, -7)
    CudaKernel(text).on_tensors(x, y, found)
    torch.testing.assert_close(found.double(), softmax_gradient(x.double(), y.double()), rtol=1e-4, atol=1e-9)


def test_quotients_that_are_only_stored_have_one() -> None:
    (program,) = programs_of(lambda x: x / x.square().sum(-1, keepdim=True), (torch.zeros(8, 100_003),))
    assert "truediv(" in plan_kernel(program, DEVICE).text


@pytest.mark.parametrize(
    ("width", "dtype", "threads"),
    [(100, torch.bfloat16, 16), (96, torch.bfloat16, 4), (100, torch.float32, 16)],
    ids=str,
)
def test_rows_that_begin_within_sectors_have_more_threads(width: int, dtype: torch.dtype, threads: int) -> None:
    x = torch.zeros(8_000_000 // width, width, dtype=dtype)
    assert tiling_of(lambda x: x - x.mean(-1, keepdim=True), x).threads == threads


def test_elements_that_lie_apart_are_read_for_a_word(needs_intrinsics: None) -> None:
    """Averages of windows of 3 x 3 that do not overlap: neighbouring threads that have four results each read what is
    24 bytes apart, and so do all of nine loads for each result."""
    x = torch.randn(8, 12, 60).bfloat16()
    (kernel,) = check_values(lambda x: F.avg_pool2d(x, 3) * 2, x)
    assert "elements=2)" in kernel.text
    assert tiling_of(lambda x: x[:, ::3] + 1, torch.zeros(64, 120)).elements == 1
    assert tiling_of(lambda x: x[:, ::2] + 1, torch.zeros(64, 128)).elements > 1


@pytest.mark.parametrize(("pictures", "threads"), [(2, 256), (64, 128)])
def test_blocks_of_few_threads_that_store_a_word_are_large(pictures: int, threads: int) -> None:
    """As many blocks of 128 threads as of 256 start in a microsecond; threads of several steps keep them waiting."""
    (program,) = programs_of(lambda x: F.pad(x, (1, 2, 1, 2)), (torch.zeros(pictures, 64, 56, 56),))
    assert dict(plan_kernel(program, DEVICE).plan.knobs)["pointwise.threads"] == threads


def test_a_thread_that_loads_nothing_stores_several_vectors(needs_intrinsics: None) -> None:
    def filled(x: Tensor) -> Tensor:
        return torch.full((30_522, 128), 3.0, dtype=x.dtype)

    x = torch.zeros(4)
    (program,) = programs_of(filled, (x,))
    assert dict(plan_kernel(program, DEVICE).plan.knobs)["pointwise.steps@out_ptr0"] == 4
    (program,) = programs_of(lambda x: torch.arange(1003) * 2, (x,))
    found, wanted = torch.full((1003,), -1), torch.arange(1003) * 2
    CudaKernel(plan_kernel(program, DEVICE, {"pointwise.steps": 4}).text).on_tensors(found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("rows", "threads"), [(512, 128), (256, 64)])
def test_what_is_gathered_along_a_line_has_a_thread_for_each_vector(rows: int, threads: int) -> None:
    """Each thread waits for its indices before it loads: the losses of 512 rows took 7.2 us on an H200 with half as
    many threads, 5.0 us with these."""
    programs = programs_of(F.cross_entropy, (torch.zeros(rows, 1000), torch.zeros(rows, dtype=torch.int64)))
    (program,) = (each for each in programs if any(value.operation == "indirect" for value in each.values))
    tiling = plan_kernel(program, DEVICE).plan.mapping.tiling
    assert tiling is not None and (tiling.kind, tiling.threads) == (TilingKind.REGISTERS, threads)


def test_values_of_gathered_losses(needs_intrinsics: None) -> None:
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(260, 37, generator=generator), torch.randint(0, 37, (260,), generator=generator)
    check_values(F.cross_entropy, x, y, tolerance=1e-6)
