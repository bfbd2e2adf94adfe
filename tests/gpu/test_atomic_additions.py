"""Atomic additions of every width against sums that are exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

pytestmark = pytest.mark.gpu
Native = Callable[[], int]

FLOATS = (torch.float16, torch.bfloat16)
BYTES = (torch.int8, torch.uint8, torch.int16)


def added(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """What the compiled function returns; it has to add in memory, and in this backend."""
    torch._dynamo.reset()
    found, (code,) = run_and_get_code(torch.compile(function, dynamic=False), *operands)
    assert "memory.added(" in code
    return found


def scattered(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_add(0, index[:, None].expand_as(source), source)


@pytest.mark.parametrize("columns", [1, 2, 3, 6, 12, 31, 64, 2048])
@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES], ids=str)
def test_rows_add_every_contribution(native: Native, columns: int, dtype: torch.dtype) -> None:
    # Of so few small integers every partial sum is exact; 5001 rows leave the last block something to do.
    index = torch.randint(0, 300, (5001,), device="cuda")
    lowest = 0 if dtype is torch.uint8 else -3
    source = torch.randint(lowest, 4, (5001, columns), device="cuda").to(dtype)
    x = torch.randint(0, 5, (300, columns), device="cuda").to(dtype)
    wanted = x.long().index_add(0, index, source.long()).to(dtype)
    assert torch.equal(added(scattered, x, index, source), wanted)
    assert native() >= 1


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES], ids=str)
def test_many_additions_to_few_places(native: Native, dtype: torch.dtype) -> None:
    index = torch.randint(0, 7, (700,), device="cuda")
    ones = torch.ones(700, device="cuda", dtype=dtype)
    found = added(lambda x, i, s: x.scatter_add(0, i, s), torch.zeros(7, device="cuda", dtype=dtype), index, ones)
    assert torch.equal(found.long(), torch.bincount(index, minlength=7))
    assert native() >= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("columns", [3, 4])
def test_neighbours_keep_their_bits(native: Native, columns: int, dtype: torch.dtype) -> None:
    x = torch.full((1000, columns), -0.0, device="cuda", dtype=dtype)
    index = torch.arange(0, 1000, 3, device="cuda")
    column = torch.ones_like(index)
    source = torch.ones(index.numel(), device="cuda", dtype=dtype)
    found = added(lambda x, i, j, s: x.index_put((i, j), s, accumulate=True), x, index, column, source)
    wanted = x.clone()
    wanted[index, 1] = 1
    assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))
    assert native() >= 1


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_integers_wrap_without_a_carry_into_their_neighbours(native: Native, dtype: torch.dtype) -> None:
    largest = torch.iinfo(dtype).max
    x = torch.full((1001,), largest, device="cuda", dtype=dtype)
    index = torch.arange(0, 1001, 2, device="cuda")
    found = added(lambda x, i, s: x.scatter_add(0, i, s), x, index, torch.ones_like(index).to(dtype))
    assert (found[::2] == torch.iinfo(dtype).min).all() and (found[1::2] == largest).all()
    assert native() >= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values_are_added(native: Native, dtype: torch.dtype) -> None:
    tiny, inf, nan = torch.finfo(dtype).smallest_normal / 4, float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, tiny, inf, 1.0, inf, torch.finfo(dtype).max], device="cuda", dtype=dtype)
    source = torch.tensor([-0.0, -0.0, tiny, -inf, nan, 1.0, inf], device="cuda", dtype=dtype)
    found = added(lambda x, i, s: x.scatter_add(0, i, s), x, torch.arange(7, device="cuda"), source)
    wanted = x + source
    assert torch.equal(found.isnan(), wanted.isnan())
    there = ~wanted.isnan()
    assert torch.equal(found[there].view(torch.int16), wanted[there].view(torch.int16))
    assert native() >= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_gradient_of_an_embedding(native: Native, dtype: torch.dtype) -> None:
    weight = torch.randn(50, 64, device="cuda", dtype=dtype, requires_grad=True)
    index = torch.randint(0, 50, (200,), device="cuda")
    scale = torch.randint(-3, 4, (200, 64), device="cuda").to(dtype)
    (torch.compile(torch.nn.functional.embedding, dynamic=False)(index, weight) * scale).sum().backward()
    wanted = torch.zeros(50, 64, device="cuda").index_add(0, index, scale.float())
    torch.testing.assert_close(weight.grad.float(), wanted, rtol=0, atol=0)
    assert native() >= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_masked_sums_round_once(native: Native, dtype: torch.dtype) -> None:
    def masked(into: Tensor, mask: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return torch.ops.aten._unsafe_masked_index_put_accumulate(into, mask, [index], values)

    into = torch.zeros(3, 40, device="cuda", dtype=dtype)
    mask = torch.arange(4000, device="cuda") % 10 > 0
    index = torch.arange(4000, device="cuda") % 3
    values = torch.randn(4000, 40, device="cuda", dtype=dtype)
    found = added(masked, into, mask[:, None], index, values)
    wanted = into.double().index_add(0, index, values.double() * mask[:, None])
    torch.testing.assert_close(found, wanted.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-4)
    assert native() >= 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
@pytest.mark.parametrize(
    ("mode", "factor"), [("bilinear", 2.0), ("bilinear", 0.5), ("bilinear", 3.0), ("bicubic", 2.0)]
)
def test_the_gradient_of_an_interpolation_is_one_scatter(
    native: Native, mode: str, factor: float, layout: torch.memory_format
) -> None:
    def gradient(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = torch.func.vjp(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), x)[1](y)[0]
        return found

    x = torch.randn(3, 8, 26, 38, device="cuda").to(memory_format=layout)
    y = torch.randn_like(F.interpolate(x, scale_factor=factor, mode=mode))
    torch._dynamo.reset()
    found, (code,) = run_and_get_code(torch.compile(gradient, dynamic=False), x, y)
    assert code.count("memory.added(") == 1
    wanted = gradient(x.double(), y.double()).float()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert native() >= 1
