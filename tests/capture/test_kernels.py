"""Typical kernels, forward and backward, against eager: values, gradients, what happened to the arguments, and how
many pipelines it took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor
from torch._inductor import metrics

Check = Callable[..., dict[str, Any]]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_masked_softmax_is_one_pipeline(check: Check) -> None:
    mask = torch.rand(2, 1, 1, 40) > 0.6
    mask[0] = True  # a row of minus infinities gives NaN in eager, too

    def masked(x: Tensor, m: Tensor) -> Tensor:
        return torch.softmax(x.masked_fill(m, float("-inf")), -1)

    assert check(masked, torch.randn(2, 4, 16, 40), mask)["native_kernels"] == 1


def test_inductor_counts_each_pipeline_once() -> None:
    torch._dynamo.reset()
    metrics.reset()
    x = torch.randn(16, 16)
    with inductor.patch(force_disable_caches=True):
        compiled = torch.compile(lambda x: torch.relu(torch.sin(x) @ x), backend="halide_backend")
        torch.testing.assert_close(compiled(x), torch.relu(torch.sin(x) @ x))
    assert metrics.generated_kernel_count == 2


def test_layer_norm_with_statistics_is_one_pipeline(check: Check) -> None:
    statistics = check(
        lambda x, w, b: torch.native_layer_norm(x, (256,), w, b, 1e-5),
        torch.randn(64, 256),
        torch.randn(256),
        torch.randn(256),
    )
    assert statistics["native_kernels"] == 1


@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (7, 33)], ids=str)
def test_layer_norm_backward(check: Check, shape: tuple[int, int]) -> None:
    # The square one: an equal extent must not make a row of a column.
    columns = shape[1]
    check(
        lambda x, w, b: F.layer_norm(x, (columns,), w, b),
        leaf(*shape),
        leaf(columns),
        leaf(columns),
        tolerance=2e-5,
    )


def test_elementwise_outputs_and_row_reductions_are_one_pipeline(check: Check) -> None:
    def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x + y, x * y, (x + y).sum(-1), (x * y).amax(-1)

    assert check(several, torch.randn(40, 130), torch.randn(40, 130))["native_kernels"] == 1


def test_residual_layer_norm(check: Check) -> None:
    def block(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return total, F.layer_norm(total, (96,), w)

    assert check(block, torch.randn(2, 9, 96), torch.randn(2, 9, 96), torch.randn(96))["native_kernels"] == 1


@pytest.mark.parametrize("shape", [(300, 100), (100, 300), (2000, 3), (64, 64)], ids=str)
def test_column_sums(check: Check, shape: tuple[int, int]) -> None:
    check(lambda x: (x.sum(0), x.amax(0), x.argmax(0)), torch.randn(*shape))


def test_full_reductions(check: Check) -> None:
    check(lambda x: (x.sum(), x.amax(), x.mean(), x.var(), x.argmin()), torch.randn(300, 100))


def test_middle_axis(check: Check) -> None:
    check(lambda x: (x.sum(1), x.softmax(1)), torch.randn(5, 33, 40))


def test_batch_norm_training(check: Check) -> None:
    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, w, b, training=True).relu()

    check(norm, leaf(4, 8, 10, 10), leaf(8), leaf(8), tolerance=5e-5)


def test_cross_entropy(check: Check) -> None:
    check(F.cross_entropy, leaf(32, 100), torch.randint(0, 100, (32,)))


def test_embedding_and_its_gradient(check: Check) -> None:
    check(lambda i, w: F.embedding(i, w) * 2 + 1, torch.randint(0, 50, (4, 7)), leaf(50, 32))


@pytest.mark.parametrize("shape", [(48, 80), (33, 65), (8, 8), (100, 17)], ids=str)
def test_transposed_operand(check: Check, shape: tuple[int, int]) -> None:
    check(lambda x, y: x.t().contiguous() + y, torch.randn(*shape), torch.randn(*reversed(shape)))


def test_permute_and_views(check: Check) -> None:
    check(lambda x: x.permute(2, 0, 1).contiguous() + 1, torch.randn(8, 12, 20))
    check(lambda x: (x.view(4, 3, 10).transpose(0, 1).reshape(-1, 8) * 2).softmax(-1), torch.randn(12, 10))
    check(lambda x: torch.roll(x, 3, 1) + 1, torch.randn(12, 30))


def test_concatenation_and_padding(check: Check) -> None:
    check(lambda x, y: torch.cat([x.relu(), y * 2], 1), torch.randn(16, 20), torch.randn(16, 33))
    check(lambda x: F.pad(x, (2, 3, 1, 1)).relu(), torch.randn(10, 37))
    check(lambda x: F.pad(x, (2, 3, 1, 1), mode="reflect"), torch.randn(1, 2, 7, 9))


def test_pooling(check: Check) -> None:
    check(lambda x: F.max_pool2d(x, 3, 2, 1), torch.randn(2, 4, 17, 17))
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), leaf(2, 4, 17, 17))


@pytest.mark.parametrize("shape", [(1, 2, 3, 6, 5), (1, 2, 3, 6, 6), (2, 3, 9, 9, 9)], ids=str)
@pytest.mark.parametrize("ceil", [False, True])
def test_places_of_maxima_in_padded_windows(check: Check, shape: tuple[int, ...], ceil: bool) -> None:
    # A position of int32 was one that Halide's loops left out where the window begins in the padding.
    check(lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=ceil, return_indices=True), torch.randn(*shape))


def test_scatters(check: Check) -> None:
    rows, values = torch.randint(0, 10, (40,)), torch.randn(40, 16)
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), torch.zeros(10, 16), rows, values)
    check(lambda x, i, v: x.scatter_add(0, i, v), torch.zeros(5, 6), torch.randint(0, 5, (8, 6)), torch.randn(8, 6))
    one_row = torch.arange(5.0).reshape(1, 5)
    check(lambda x, v: x.index_put((torch.tensor([2]),), v), torch.zeros(5, 5), one_row)


def test_reduction_of_a_reduction(check: Check) -> None:
    """Fuzzer seed 10072: the sum of minima added up their order keys."""
    check(lambda x: x.amin(3) - x.amin(3).sum(2, keepdim=True), torch.randn(3, 2, 15, 257))
    check(lambda x: F.layer_norm(x.amax(3), (15,)), torch.randn(3, 2, 15, 257))
    check(lambda x: x.sum(3).argmax(2) + x.any(3).sum(2), torch.randn(3, 2, 15, 33))


def test_negative_floats_become_integers_that_wrap(check: Check) -> None:
    """Fuzzer seed 100112: Halide made one cast to uint32 of a cast to int32 and the reinterpretation for wrapping."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        whole = x.to(torch.int32)
        bytes_ = x.to(torch.int64).to(torch.uint8)
        return whole * 3 + 1, whole.sum(), -whole, whole << 1, x.to(torch.int8), x.to(torch.int16) * 2, bytes_

    check(function, torch.randn(1, 37) * 30)


def test_reduction_over_a_broadcast_axis(check: Check) -> None:
    def spread(x: Tensor) -> tuple[Tensor, ...]:
        wide = x.expand(5, 33)
        return wide.sum(1), wide.prod(1), wide.amax(1), wide.argmax(1)

    check(spread, torch.randn(5, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_precisions(check: Check, dtype: torch.dtype) -> None:
    x = torch.randn(9, 65).to(dtype)
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7}[dtype]
    check(lambda x: (x.softmax(-1), (x * 2).relu(), x.sum(0), x.amax(1)), x, tolerance=tolerance)


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (0, 4)], ids=str)
def test_extents_of_zero_and_one(shape: tuple[int, int]) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (x + 1).relu(), x.sum(1), x.sum(0), x.t() * 2

    x = torch.randn(*shape)
    for actual, expected in zip(torch.compile(function, dynamic=False)(x), function(x)):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_shift_by_a_coordinate(check: Check, dtype: torch.dtype) -> None:
    """Asked for the bounds of 1 << x, Halide never came to an end where x is a loop's coordinate (opinfo, bicubic)."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        distance = torch.arange(22).to(dtype)
        ones = torch.ones_like(x)
        return ones << distance, x << distance, x >> distance, (x > (ones << distance)).sum()

    check(function, torch.randint(-100, 100, (22,)).to(dtype))


def test_reduction_over_five_loops(check: Check) -> None:
    """The gradient of overlapping patches adds up along every axis of them."""

    def patches(x: Tensor) -> Tensor:
        return F.unfold(x, kernel_size=(2, 3), dilation=2, padding=1, stride=1)

    x = torch.randn(2, 3, 9, 10)
    gradient = torch.randn_like(patches(x))
    check(lambda x, g: torch.ops.aten.col2im(g * 2, x.shape[2:], (2, 3), (2, 2), (1, 1), (1, 1)), x, gradient)


def test_maximum_of_many_values(check: Check) -> None:
    """A chain of maxima, each of which looks at the one before it three times (opinfo, fractional_max_pool3d)."""
    start = torch.randint(0, 30, (5,))

    def largest(x: Tensor, start: Tensor) -> Tensor:
        values = [x[start + k] for k in range(64)]
        found = values[0]
        for value in values[1:]:
            found = torch.maximum(found, value)
        return found

    x = torch.randn(100)
    x[20] = float("nan")
    check(largest, x, start)
