"""Gradients of max pooling that are read from windows: values against eager, and which graphs scatter none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.graph_passes import max_pool_gradients
from halide_backend.inspection.compiled import compile_for

LAST, FIRST = torch.channels_last, torch.contiguous_format


def check(
    picture: Tensor, kernel: Any, stride: Any, padding: Any = 0, dilation: int = 1, ceil: bool = False, **options: Any
) -> str:
    """The code of the gradient, which is compared with eager's: of small integers sums are exact in any order."""

    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil)

    before = halide_backend.stats()["unfusing_reasons"]
    compiled = compile_for("halide_backend", pool, **options)
    slope = torch.randint(-8, 9, pool(picture).shape, generator=torch.Generator().manual_seed(1)).to(picture.dtype)
    leaves = [picture.detach().clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2)]
    for function, leaf in zip((compiled.call, pool), leaves, strict=True):
        function(leaf).backward(slope)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, atol=0, rtol=0)
    assert leaves[0].grad.stride() == leaves[1].grad.stride()
    assert halide_backend.stats()["unfusing_reasons"] == before
    return compiled.codes[-1]


def scatters(code: str) -> bool:
    """Whether a kernel of this backend scatters, or ATen, as Inductor has it with several threads."""
    lines = [line for line in code.splitlines() if not line.lstrip().startswith("#")]
    return any("Role.SCATTER" in line or "aten.scatter" in line for line in lines)


def random(*sizes: int, layout: torch.memory_format = LAST, dtype: torch.dtype = torch.float32) -> Tensor:
    """Of so few values that a window has several maxima."""
    values = torch.randint(0, 20, sizes, generator=torch.Generator().manual_seed(sum(sizes)))
    return values.to(dtype).contiguous(memory_format=layout)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("layout", [LAST, FIRST])
@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding", "ceil"),
    [
        ((16, 16), 2, 2, 0, False),
        ((17, 19), 2, 2, 0, False),
        ((17, 19), 2, 2, 0, True),
        ((17, 19), 2, 2, 1, False),
        ((16, 18), 3, 2, 1, False),
        ((17, 19), 3, 2, 1, True),
        ((17, 19), 3, 2, 0, False),
        ((15, 20), 3, 1, 1, False),
        ((15, 20), (2, 3), (1, 2), (1, 0), False),
        ((15, 20), (3, 1), (2, 1), 0, True),
        ((15, 20), 2, 3, 0, False),
        ((9, 40), (1, 4), (1, 3), (0, 2), True),
    ],
)
def test_windows(
    sizes: tuple[int, int], kernel: Any, stride: Any, padding: Any, ceil: bool, layout: torch.memory_format
) -> None:
    code = check(random(2, 5, *sizes, layout=layout), kernel, stride, padding, ceil=ceil)
    assert not scatters(code)


@pytest.mark.parametrize("layout", [LAST, FIRST])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types(dtype: torch.dtype, layout: torch.memory_format) -> None:
    assert not scatters(check(random(2, 18, 16, 15, layout=layout, dtype=dtype), 3, 2, 1))


def test_a_picture_without_a_batch_is_scattered() -> None:
    assert scatters(check(random(2, 18, 16, 15)[0].contiguous(), 3, 2, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """torch does not decompose the operator then."""
    replaced, replace = [], max_pool_gradients._replace
    monkeypatch.setattr(
        max_pool_gradients, "_replace", lambda node, arguments: (replaced.append(node.target), replace(node, arguments))
    )
    torch.use_deterministic_algorithms(True)
    try:
        check(random(2, 18, 16, 15, dtype=dtype), 3, 2, 1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert replaced == [torch.ops.aten.max_pool2d_with_indices_backward.default]


def test_not_a_number_is_a_maximum() -> None:
    picture = random(2, 5, 16, 15)
    picture[0, 0, 3, 4] = torch.nan
    assert not scatters(check(picture, 3, 2, 1))


@pytest.mark.parametrize("layout", [LAST, FIRST])
@pytest.mark.parametrize(
    "pictures", [((2, 5, 16, 15), (3, 6, 21, 40), (5, 4, 9, 8)), ((16, 5, 16, 16), (9, 6, 9, 9), (4, 4, 4, 4))]
)
def test_dynamic_sizes(pictures: tuple[tuple[int, ...], ...], layout: torch.memory_format) -> None:
    """Pictures and lines of one number share a symbol."""

    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x, 3, 2, 1)

    compiled = compile_for("halide_backend", pool, dynamic=True)
    for sizes in pictures:
        leaves = [random(*sizes, layout=layout).requires_grad_() for _ in range(2)]
        for function, leaf in zip((compiled.call, pool), leaves, strict=True):
            function(leaf).square().sum().backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    assert len(compiled.codes) == 2, "the graphs were compiled again"
    assert not scatters(compiled.codes[-1])


@pytest.mark.parametrize("layout", [LAST, FIRST])
def test_one_dynamic_graph_with_its_forward_step(layout: torch.memory_format) -> None:
    """Where the sizes of the gradient are symbols of their own, which a guard says are halves of the picture's."""

    def gradient(picture: Tensor, slope: Tensor) -> Tensor:
        return torch.func.vjp(lambda x: F.max_pool2d(x, 2), picture)[1](slope)[0]

    compiled = compile_for("halide_backend", gradient, dynamic=True)
    for sizes in ((2, 5, 16, 18), (3, 6, 22, 40)):
        picture, slope = random(*sizes, layout=layout), random(*sizes[:2], sizes[2] // 2, sizes[3] // 2, layout=layout)
        torch.testing.assert_close(compiled(picture, slope), gradient(picture, slope), atol=0, rtol=0)
    assert len(compiled.codes) == 1, "the graph was compiled again"
    assert not scatters(compiled.codes[0])


def test_a_window_of_unknown_size_is_scattered() -> None:
    def gradient(picture: Tensor, stride: int) -> Tensor:
        leaf = picture.detach().requires_grad_()
        return torch.autograd.grad(F.max_pool2d(leaf, 3, stride).square().sum(), leaf)[0]

    compiled = compile_for("halide_backend", gradient, dynamic=True)
    for stride in (2, 3):
        picture = random(2, 5, 16, 15)
        torch.testing.assert_close(compiled(picture, stride), gradient(picture, stride))


def test_many_windows_of_channels_last_alone() -> None:
    assert not scatters(check(random(2, 18, 16, 15), 5, 1, 2))
    assert scatters(check(random(2, 18, 16, 15, layout=FIRST), 5, 1, 2))
    assert scatters(check(random(2, 18, 16, 15), 6, 1, 3))


def test_windows_with_gaps_are_scattered() -> None:
    assert scatters(check(random(2, 18, 16, 15), 2, 2, dilation=2))


def test_a_scatter_that_adds_to_something() -> None:
    """What the decomposition of max pooling's gradient is but for the zeros."""
    offsets = torch.randint(0, 4, (2, 3, 4, 5), dtype=torch.int8)
    slope, start = torch.randn(2, 3, 4, 5), torch.randn(6, 80)

    def add(offsets: Tensor, slope: Tensor, start: Tensor) -> Tensor:
        positions = max_pool_gradients._POSITIONS(offsets, [2, 2], [8, 10], [2, 2], [0, 0], [1, 1])
        return start.scatter_add(1, positions.reshape(6, 20), slope.reshape(6, 20)).reshape(2, 3, 8, 10)

    compiled = compile_for("halide_backend", add)
    torch.testing.assert_close(compiled(offsets, slope, start), add(offsets, slope, start))
    assert scatters(compiled.codes[0])


def test_the_operator_by_itself() -> None:
    offsets, slope = torch.randint(0, 9, (2, 3, 4, 5), dtype=torch.int8), torch.randn(2, 3, 4, 5)
    got = max_pool_gradients.MAX_POOL_GRADIENT(
        offsets=offsets,
        gradient=slope,
        dtype=torch.float32,
        sizes=[12, 15],
        kernel=[3, 3],
        stride=[3, 3],
        padding=[0, 0],
    )
    rows, columns = torch.arange(4)[:, None] * 3 + offsets // 3, torch.arange(5) * 3 + offsets % 3
    wanted = torch.zeros(2, 3, 12, 15)
    outer = torch.arange(2)[:, None, None, None], torch.arange(3)[:, None, None]
    wanted[(*outer, rows.long(), columns.long())] = slope
    torch.testing.assert_close(got, wanted, atol=0, rtol=0)
