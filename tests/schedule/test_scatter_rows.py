"""Scatters within rows of memory that never meet: threads share the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.store_layout import with_rows_apart

TARGET = Target.named("avx512")


def moved(x: Tensor, places: Tensor) -> Tensor:
    return torch.full((x.shape[0], 50), 3, dtype=x.dtype).scatter(1, places, x)


def copied(x: Tensor, places: Tensor) -> Tensor:
    return torch.full((x.shape[0], 50), 3, dtype=x.dtype).index_copy(1, places[0], x)


def filled(x: Tensor, places: Tensor) -> Tensor:
    return x.index_fill(1, places[0] % x.shape[1], 0.5)


def in_planes(x: Tensor, places: Tensor) -> Tensor:
    """Rows around the places, and columns within them."""
    planes = x[:, :, None].expand(-1, -1, 7).roll(1, 0)
    return torch.zeros(x.shape[0], 50, 7, dtype=x.dtype).index_copy(1, places[0], planes)


def stored_rows(function: Callable[..., Any], arguments: tuple[Any, ...], dynamic: bool = False) -> list[Any]:
    """The variables and dimensions of what a scatter stores, and the step that shares its rows out."""
    found = []
    for kernel in captured_kernels(function, arguments, TARGET, dynamic):
        for store in kernel.program.stores:
            layout = with_rows_apart(store, kernel.program)
            if layout.scattered:
                parallel = [line.strip() for line in kernel.text.splitlines() if "    Parallel('out_ptr" in line]
                found.append((layout.variables, layout.dims, parallel))
    return found


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("function", [moved, copied, filled, in_planes])
def test_rows_are_right(function: Callable[..., Tensor], dtype: torch.dtype, dynamic: bool) -> None:
    """With places that several elements of a row go to, of which the last one stays."""
    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    for rows, columns in ((301, 30), (64, 41), (5, 2)) if dynamic else ((301, 30),):
        x = (torch.randn(rows, columns) * 4).to(dtype)
        apart = function in (copied, in_planes)
        places = torch.rand(rows, 50).argsort(1)[:, :columns] if apart else torch.randint(0, 50, (rows, columns))
        if function is moved:
            # The order of elements that meet is not defined, but here they are equal.
            x = x[:, :1].expand(-1, columns).contiguous()
        assert torch.equal(compiled.call(x, places), function(x, places))
    compiled.check_code()
    assert not compiled.delegated


@pytest.mark.parametrize("function", [moved, copied])
def test_threads_share_rows(function: Callable[..., Tensor]) -> None:
    arguments = (torch.empty(3000, 30), torch.zeros(3000, 30, dtype=torch.int64))
    ((variables, dims, parallel),) = stored_rows(function, arguments)
    assert variables == ("p", "x0") and dims == ((50, 1), (3000, 50))
    assert parallel == ["Parallel('out_ptr0', 'x0_t', update=0),"]


def test_columns_lie_within_rows() -> None:
    arguments = (torch.empty(3000, 30), torch.zeros(3000, 30, dtype=torch.int64))
    ((variables, dims, parallel),) = stored_rows(in_planes, arguments)
    assert variables == ("x2", "p", "x0") and dims == ((7, 1), (50, 7), (3000, 350))
    assert parallel == ["Parallel('out_ptr0', 'x0_t', update=0),"]


def test_rows_of_computed_length() -> None:
    arguments = (torch.empty(3000, 30), torch.zeros(3000, 30, dtype=torch.int64))
    ((variables, ((length, _), (_, stride)), parallel),) = stored_rows(filled, arguments, dynamic=True)
    assert variables == ("p", "x0") and length == stride and not isinstance(stride, int)
    assert set(parallel) == {"Parallel('out_ptr0', 'x0_t', update=0),"}


def test_windows_that_overlap_are_not_apart() -> None:
    """Those of one line; lines are."""

    def gradient(x: Tensor) -> Tensor:
        return torch.ops.aten.unfold_backward(x, [6, 1600], 1, 25, 10)

    ((variables, dims, _),) = stored_rows(gradient, (torch.empty(6, 158, 25),))
    assert variables == ("p", "x0") and dims == ((1600, 1), (6, 1600))


def test_rows_that_data_choose_are_not_apart() -> None:
    def added(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return x.index_put((rows, columns), torch.ones(40), accumulate=True)

    places = torch.zeros(40, dtype=torch.int64)
    ((variables, _, _),) = stored_rows(added, (torch.empty(9, 50), places, places))
    assert variables == ("p",)


@pytest.mark.usefixtures("two_threads")
def test_a_place_out_of_range_is_an_error() -> None:
    compiled = compile_for("halide_backend", moved)
    x, places = torch.randn(301, 30), torch.randint(0, 50, (301, 30))
    places[300, 29] = 50
    with pytest.raises(IndexError, match="a dimension of size 50"):
        compiled.call(x, places)
    places[300, 29] = 0
    torch.testing.assert_close(compiled.call(x, places)[:300], moved(x, places)[:300])
