"""Values that filters read at many places: which are stored, and that results are those of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.graph_passes import stored_values
from halide_backend.inspection.compiled import compile_for


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values of each graph are stored, in the order of their compilation."""
    counts: list[int] = []
    find = stored_values.values_to_store

    def counted(graph: Any) -> Any:
        found = find(graph)
        counts.append(len(found))
        return found

    monkeypatch.setattr(stored_values, "values_to_store", counted)
    return counts


def grey(picture: Tensor) -> Tensor:
    return 0.299 * picture[0] + 0.587 * picture[1] + 0.114 * picture[2]


def taps(x: Tensor, count: int) -> Tensor:
    extent = x.shape[-1] - count + 1
    return sum((offset + 1) * x[..., offset : offset + extent] for offset in range(count))  # type: ignore[return-value]


def filtered(picture: Tensor) -> Tensor:
    return taps(grey(picture), 5)


def padded(picture: Tensor) -> Tensor:
    return taps(F.pad(grey(picture), (2, 2)), 5)


def replicated(picture: Tensor) -> Tensor:
    return taps(F.pad(grey(picture)[None, None], (2, 2, 2, 2), mode="replicate")[0, 0], 5)


def twice(picture: Tensor) -> Tensor:
    value = taps(grey(picture), 4)
    return taps(value * value, 4)


def pointwise(picture: Tensor) -> Tensor:
    value = grey(picture)
    return value * 2 + torch.sqrt(value + 3) + value**2


def chunks(picture: Tensor) -> Tensor:
    first, second, third = grey(picture).chunk(3, -1)
    return first * second + third


def one_read(picture: Tensor) -> Tensor:
    return taps(picture[0] * 2, 5)


def two_taps(picture: Tensor) -> Tensor:
    value = picture[0] + picture[1]
    return value[:, 1:] - value[:, :-1]


@pytest.mark.parametrize(
    ("function", "count"),
    [
        *((filtered, 1), (padded, 1), (replicated, 1), (twice, 2)),
        *((pointwise, 0), (chunks, 0), (one_read, 0), (two_taps, 0)),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_costs_less_is_stored(
    function: Callable[[Tensor], Tensor], count: int, dynamic: bool, stored: list[int]
) -> None:
    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    for sizes in [(3, 21, 33), (3, 40, 48)] if dynamic else [(3, 21, 33)]:
        picture = torch.rand(*sizes, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(compiled(picture).double(), function(picture.double()), rtol=1e-5, atol=1e-5)
    assert stored == [count]


def test_gradients_of_a_filter(stored: list[int]) -> None:
    picture = torch.rand(3, 21, 33, generator=torch.Generator().manual_seed(0))
    ours, wide = picture.clone().requires_grad_(), picture.double().requires_grad_()
    compile_for("halide_backend", filtered)(ours).square().sum().backward()
    filtered(wide).square().sum().backward()
    assert ours.grad is not None and wide.grad is not None
    torch.testing.assert_close(ours.grad.double(), wide.grad, rtol=1e-5, atol=1e-5)
    assert stored[0] == 1


def test_inductors_own_backend_is_left_alone(stored: list[int]) -> None:
    picture = torch.rand(3, 21, 33)
    torch.testing.assert_close(compile_for("cpp", filtered)(picture), filtered(picture))
    assert stored == []


def test_the_operator_returns_a_copy_outside_of_graphs() -> None:
    x = torch.rand(3)
    y = stored_values.STORED(x)
    assert torch.equal(x, y) and y.data_ptr() != x.data_ptr()
