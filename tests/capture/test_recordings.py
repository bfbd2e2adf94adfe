"""A structure is recorded once; what differs in anything that recording reads is another structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from halide_backend.capture import recording

Check = Callable[..., dict[str, Any]]

_TABLES = torch.arange(30.0).reshape(3, 10), torch.arange(60.0).reshape(6, 10)


def _rows(x: Tensor) -> Tensor:
    return (x[:, 0].abs() * 2).long() % 3


#: Pairs of kernels that are equal but for one thing. Both take and give an 8 x 8 matrix or something smaller of it.
PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "zero": (lambda x: 1 / torch.where(x > 0, x, 0.0), lambda x: 1 / torch.where(x > 0, x, -0.0)),
    "constant": (lambda x: x * 2, lambda x: x * 3),
    "operation": (lambda x: x * 2, lambda x: x + 2),
    "dtype of the result": (lambda x: (x * 9).to(torch.int8), lambda x: (x * 9).to(torch.int16)),
    "operands": (lambda x: x - x.t(), lambda x: x.t() - x),
    "offset": (lambda x: x[1:] * 2, lambda x: x[:-1] * 2),
    "stride": (lambda x: x[::2, :4] + 1, lambda x: x[:4, ::2] + 1),
    "flip": (lambda x: x.flip(0) + 1, lambda x: x.flip(1) + 1),
    "shift": (lambda x: pad(x, (1, 0, 0, 0)) + 1, lambda x: pad(x, (0, 1, 0, 0)) + 1),
    "padding": (lambda x: pad(x, (1, 0), value=5.0), lambda x: pad(x, (1, 0), value=-5.0)),
    "reduction": (lambda x: x.amax(0), lambda x: x.amin(0)),
    "dimension": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "size of a table": (lambda x: _TABLES[0][_rows(x)], lambda x: _TABLES[1][_rows(x) - 6]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_one_difference_is_a_difference(check: Check, name: str) -> None:
    first, second = PAIRS[name]
    weight = torch.randn(8, 8)
    x = torch.randn(8, 8)
    x[0, :4] = -0.0

    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        # The product keeps the two in kernels of their own.
        y = x @ weight
        one, other = first(x), second(y)
        again = y @ weight
        return one, other, first(again), second(again @ weight)

    check(function, x, weight, tolerance=1e-4)


@pytest.mark.parametrize("second_is_first", [False, True])
def test_an_operand_used_twice_is_not_two_operands(check: Check, second_is_first: bool) -> None:
    def function(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        one = x * 3 - y
        product = one @ weight
        return one, product * 3 - (product if second_is_first else one @ product)

    check(function, torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8), tolerance=1e-4)


def test_a_buffer_that_is_overwritten_is_not_one_that_is_only_read(check: Check) -> None:
    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        kept = x * 2 + 1
        y = x @ weight
        x.mul_(2).add_(1)
        return kept, y

    check(function, torch.randn(8, 8), torch.randn(8, 8))


def _layers(count: int) -> Callable[[Tensor, Tensor], Tensor]:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(count):
            x = torch.nn.functional.gelu(torch.softmax(x, -1) @ weight)
        return x

    return function


def test_equal_layers_are_recorded_once(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []
    record = recording._record

    def counted(*args: Any, **kwargs: Any) -> Any:
        recorded.append(args)
        return record(*args, **kwargs)

    monkeypatch.setattr(recording, "_record", counted)
    counts = []
    for layers in (4, 12):
        recorded.clear()
        stats = check(_layers(layers), torch.randn(16, 32), torch.randn(32, 32) * 0.1, tolerance=1e-4)
        assert stats["native_kernels"] >= layers
        counts.append(len(recorded))
    assert 0 < counts[0] == counts[1]
