"""Memory that is read and written in one kernel: what is read must be the old value, whatever is fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

Check = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("shape", [(64, 100), (33, 65), (1000,)], ids=str)
def test_in_place_and_another_output(check: Check, shape: tuple[int, ...]) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        old = x * 3
        x.add_(y)
        return old, x * 2

    check(function, torch.randn(*shape), torch.randn(*shape))


def test_in_place_on_a_transposed_destination(check: Check) -> None:
    """pytorch#140344: a schedule that recomputes the tail of a row adds twice."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        x.t().add_(y)
        return x + 1

    for rows, columns in ((33, 65), (8, 8), (100, 17), (17, 100)):
        check(function, torch.randn(rows, columns), torch.randn(columns, rows))


def test_in_place_softmax_reads_whole_rows_before_it_writes(check: Check) -> None:
    def function(x: Tensor) -> Tensor:
        x.copy_(torch.softmax(x, -1))
        return x.sum(-1)

    check(function, torch.randn(40, 130))


def test_adam_step(check: Check) -> None:
    def step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)
        return p * 1

    check(step, *(torch.randn(70, 33) for _ in range(3)), torch.rand(70, 33))


def test_shift_within_one_tensor(check: Check) -> None:
    def function(x: Tensor) -> Tensor:
        x[1:] = x[:-1] + 1
        return x * 2

    check(function, torch.randn(50, 20))


def test_slice_assignment(check: Check) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x[:, 3:7] = y.relu()
        return x.sum(1)

    check(function, torch.randn(20, 10), torch.randn(20, 4))


def test_input_reused_for_an_output_is_not_missed_by_another(check: Check) -> None:
    """Inductor may give `a`'s memory to `b`; `c` is computed from the same old value in the same kernel."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.mm(x, x)
        b = a.exp()
        return b + 1, b.sin()

    check(function, torch.randn(64, 64) * 0.1)


def test_index_out_of_range_is_an_index_error() -> None:
    function = torch.compile(lambda i, w: torch.nn.functional.embedding(i, w) * 2, dynamic=False)
    with pytest.raises(IndexError, match=r"embedding.*index out of range"):
        function(torch.tensor([1, 7]), torch.randn(5, 4))
    torch.testing.assert_close(function(torch.tensor([1, 4]), w := torch.ones(5, 4)), w[:2] * 2)


@pytest.mark.parametrize("shape", [(7,), (17, 65), (40, 1000), (3, 5, 9)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_divisor_that_is_overwritten_is_checked_as_it_was(
    check: Check, shape: tuple[int, ...], dynamic: bool
) -> None:
    """Seed 60102: the check, whose loops come after those of the quotient, would see quotients."""

    def function(x: Tensor) -> Tensor:
        return x.floor_divide_((x & 15) - 20)

    check(function, torch.randint(-(2**62), 2**62, shape), dynamic=dynamic)
    zero = torch.ones(shape, dtype=torch.int64)
    zero[-1] = 4
    compiled = torch.compile(lambda x: x.floor_divide_(x - 4), backend="halide_backend", dynamic=dynamic)
    with pytest.raises(ZeroDivisionError, match="division"):
        compiled(zero)


def test_what_is_overwritten_may_say_where_it_is_read(check: Check) -> None:
    def function(x: Tensor) -> Tensor:
        x.copy_(x[x % 9] * 10 + 3)
        return x

    check(function, torch.randint(0, 9, (9,)))


def test_integer_division_by_zero_is_an_error() -> None:
    function = torch.compile(lambda a, b: a // b, dynamic=False)
    with pytest.raises(ZeroDivisionError, match=r"floor_divide.*division"):
        function(torch.tensor([7, -7]), torch.tensor([2, 0]))
    assert function(torch.tensor([7, -7]), torch.tensor([2, 2])).tolist() == [3, -4]
