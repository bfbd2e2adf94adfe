"""Transposed operands, whose tiles are turned in registers: every place, in every data type, with and without tails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend import config
from halide_backend.schedule.mapping.transposition import Transposition

Check = Callable[..., dict[str, Any]]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.bool)
SHAPES = ((8, 8), (9, 8), (8, 41), (16, 32), (61, 101), (48, 80))


def numbered(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """No two neighbours are equal, in whatever direction."""
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return ((count * 7 + count // 13) % (2 if dtype is torch.bool else 120)).to(dtype)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_copy(
    check: Check, transpositions: list[Transposition], dtype: torch.dtype, shape: tuple[int, int], dynamic: bool
) -> None:
    check(lambda x: x.t().contiguous(), numbered(shape, dtype), dynamic=dynamic)
    assert len(transpositions) == 1


@pytest.mark.parametrize("order", [o for o in permutations(range(4)) if o[3] != 3], ids=str)
def test_every_permutation_that_moves_the_last_dimension(
    check: Check, transpositions: list[Transposition], order: tuple[int, ...]
) -> None:
    check(lambda x: x.permute(order).contiguous(), numbered((9, 10, 8, 11), torch.float32))
    assert len(transpositions) == 1


def test_layouts_of_images(check: Check, transpositions: list[Transposition]) -> None:
    image = numbered((2, 24, 7, 9), torch.float32)
    check(lambda x: (x * 2).contiguous(memory_format=torch.channels_last), image)
    check(lambda x: x.contiguous(), image.contiguous(memory_format=torch.channels_last))
    assert len(transpositions) == 2


def test_operands_of_both_kinds(check: Check, transpositions: list[Transposition]) -> None:
    x, y = numbered((33, 70), torch.float32), numbered((70, 33), torch.float32)
    check(lambda x, y: (x.t() + y, x.t() * y), x, y)
    check(lambda x, y: x.t() * 2 - y + y.t().t(), x, y)
    assert len(transpositions) == 2


def test_several_transposed_operands_of_different_widths(check: Check, transpositions: list[Transposition]) -> None:
    shape = (40, 25)
    operands = [numbered(shape, dtype) for dtype in (torch.float32, torch.bfloat16, torch.int8)]
    check(lambda a, b, c, d: a.t() + b.t() + c.t() + d, *operands, numbered((25, 40), torch.float32))
    assert {found.side for found in transpositions} == {8}


def _both_ways(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.relu().contiguous()
    return y, y.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("shape", "kernels"), [((2, 32, 16, 3), 2), ((2, 12, 16, 3), 1), ((2, 32, 3, 5), 1)])
def test_results_in_two_layouts_are_a_kernel_each(
    check: Check, transpositions: list[Transposition], shape: tuple[int, ...], kernels: int
) -> None:
    """Unless an axis is short. One kernel would store one of them element by element."""
    x = numbered(shape, torch.float32).contiguous(memory_format=torch.channels_last)
    assert check(_both_ways, x)["native_kernels"] == kernels
    assert len(transpositions) == (2 if kernels == 2 else 0)


def test_what_is_stored_for_one_of_two_layouts_alone_is_not_stored(
    check: Check, transpositions: list[Transposition]
) -> None:
    x = numbered((2, 32, 16, 3), torch.float32).contiguous(memory_format=torch.channels_last)
    assert check(lambda x: _both_ways(x)[1], x)["native_kernels"] == 1
    assert not transpositions


def test_a_part_of_a_larger_tensor(check: Check) -> None:
    check(lambda x: x[3:, 5:50].t().contiguous(), numbered((64, 64), torch.float32))
    check(lambda x: F.pad(x, (1, 2, 3, 4)).t().contiguous(), numbered((30, 41), torch.float32))


def test_memory_that_is_overwritten_is_read_first(check: Check) -> None:
    def in_place(x: Tensor) -> Tensor:
        turned = x.t() + 1
        x.mul_(2)
        return turned

    check(in_place, numbered((24, 24), torch.float32))
    check(lambda x: x.copy_(x.t().clone()), numbered((24, 24), torch.float32))


def test_an_index_that_is_checked_is_not_turned(check: Check) -> None:
    """A random program (seed 300486): the check of an index needs it in a loop nest of its own."""
    index = (numbered((40, 24), torch.int64) % 30).contiguous()
    check(lambda table, i: table[i.t()] + i.t(), numbered((30,), torch.float32), index)


def test_rows_that_gather_much_are_not_unrolled(check: Check, transpositions: list[Transposition]) -> None:
    """A random program (seed 1072803): LLVM took 43 s for nine gathers in unrolled tiles of 8 x 8."""

    def function(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        count = sum(mask[:, :, i].long() for i in range(7))
        shares = (x / count).unsqueeze(2) * mask
        return (y.transpose(1, 2) + shares).permute(1, 2, 0).contiguous()

    x, y = numbered((31, 33), torch.float32), numbered((31, 7, 33), torch.float32)
    mask = numbered((31, 33, 7), torch.int64) % 3 != 0
    mask[:, :, 0] = True
    with config.patch(compile_time_limit=20.0):
        check(function, x, y, mask)
    assert [found.unrolled for found in transpositions] == [False]


IMAGES = ((2, 8, 4, 4), (3, 40, 5, 9), (2, 32, 8, 8), (1, 17, 33, 30), (4, 64, 7, 7))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_norms_of_channels_are_turned_when_they_are_stored(
    check: Check, transpositions: list[Transposition], dynamic: bool, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Statistics need the operands as they lie in memory."""
    x, w = numbered(shape, dtype) / 64, numbered((shape[1],), dtype) / 32
    # Two ways to round a sum may be one bfloat16 apart.
    tolerance = 2**-7 if dtype is torch.bfloat16 else 1e-5

    def norm(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, w + 1)

    check(norm, x, w, tolerance=tolerance, dynamic=dynamic)
    assert [found.results for found in transpositions] == [True]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("operands", [False, True], ids=["results", "operands"])
def test_several_results_that_are_turned_or_one_operand(
    check: Check, transpositions: list[Transposition], operands: bool, dynamic: bool
) -> None:
    """Results, unless an operand is adjacent along them."""

    def three(x: Tensor, *residuals: Tensor) -> tuple[Tensor, ...]:
        share = sum(residuals, x.permute(0, 2, 3, 1).softmax(-1))
        return share, share * 2, share > 1

    residuals = [numbered((3, 9, 10, 24), torch.float32) / 64] if operands else []
    check(three, numbered((3, 24, 9, 10), torch.float32) / 64, *residuals, dynamic=dynamic)
    assert [(found.results, found.reduced) for found in transpositions] == [(not operands, "rows" if operands else "")]


def test_statistics_that_are_stored_too_are_not_turned(check: Check) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        turned = x.permute(0, 2, 1)
        total = turned.sum(-1, keepdim=True)
        return turned / total, total

    check(both, numbered((3, 24, 40), torch.float32) + 1)


def test_what_is_normalised_in_place(check: Check) -> None:
    def in_place(x: Tensor, y: Tensor) -> Tensor:
        mean = y.permute(0, 2, 1).mean(-1, keepdim=True)
        return x.sub_(y.permute(0, 2, 1) - mean)

    check(in_place, numbered((3, 40, 24), torch.float32), numbered((3, 24, 40), torch.float32))


@pytest.mark.parametrize("target", ["", "avx2"], ids=["this processor", "avx2"])
@pytest.mark.parametrize("shape", [(3, 16, 5, 9), (3, 33, 5, 9), (2, 64, 8, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_images_and_channels_in_one_loop_are_turned(
    check: Check, transpositions: list[Transposition], dtype: torch.dtype, shape: tuple[int, ...], target: str
) -> None:
    """Inductor has one loop over images and channels, and divides: it becomes two. Where 16 channels are too few for a
    loop of their own, tiles pass the ends of images."""
    x = (numbered(shape, dtype) / 64).contiguous(memory_format=torch.channels_last)
    tolerance = 2**-6 if dtype is torch.bfloat16 else 1e-5
    with config.patch(target=target):
        check(lambda x: F.instance_norm(x).contiguous(), x, tolerance=tolerance)
    assert [found.results for found in transpositions] == [True]


def norms(x: Tensor) -> tuple[Tensor, Tensor]:
    """A norm over the channels of pictures, and one of that."""
    rows = F.layer_norm(x.permute(0, 2, 3, 1).contiguous(), x.shape[1:2])
    return rows, F.layer_norm(rows, x.shape[1:2])


def test_each_step_of_several_results_has_one_tile_of_each() -> None:
    """Of computed length, the tiles of the second result would be allocated, and the accumulators of each row."""
    halide_backend.reset_stats()
    compiled = torch.compile(norms, dynamic=True, fullgraph=True)
    for shape in ((2, 64, 14, 14), (3, 40, 7, 9), (5, 64, 8, 8), (2, 300, 5, 3)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        for found, wanted in zip(compiled(x), norms(x.double())):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    stats = halide_backend.stats()
    assert stats["delegated_kernels"] == 0 and not stats["unfusing_reasons"]
    text = next(record.text for record in halide_backend.records() if "out_ptr1_value_0_0" in record.text)
    for func in ("out_ptr1_value_0_0", "sum_3", "sum_3_chunks"):
        assert f"BoundExtent('{func}', 'x0', 1)" in text
