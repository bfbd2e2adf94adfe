"""A few columns are reduced side by side with those of adjacent rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.schedule.cpu.column_blocks import COLUMNS
from halide_backend.schedule.cpu.narrow_columns import ROWS
from halide_backend.schedule.plan import Plan

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(0),
    "maximum": lambda x: x.amax(0),
    "variance": lambda x: x.var(0),
    "of each picture": lambda x: x.reshape(3, -1, x.shape[-1]).sum(1),
    "two axes": lambda x: x.reshape(3, -1, x.shape[-1]).sum((0, 1)),
    "centred": lambda x: x - x.mean(0),
    "of products": lambda x: (x * x.sigmoid()).sum(0),
}


def rows_side_by_side(plans: list[Plan]) -> list[int]:
    return [int(choice.setting) for plan in plans for choice in plan.choices if choice.knob is ROWS]


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [(2, torch.float32), (5, torch.float32), (13, torch.float32), (29, torch.float32), (13, torch.bfloat16)],
)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_values(plans: list[Plan], function: Callable[[Tensor], Tensor], columns: int, dtype: torch.dtype) -> None:
    x = torch.randn(3 * 1537, columns, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.compile(function, fullgraph=True)(x)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), function(x.double()), rtol=tolerance, atol=30 * tolerance)
    assert halide_backend.stats()["delegated_kernels"] == 0
    assert max(rows_side_by_side(plans)) > 1


def test_the_first_of_equal_elements(plans: list[Plan]) -> None:
    x = torch.randint(0, 3, (5003, 13), generator=torch.Generator().manual_seed(3)).float()
    values, places = torch.compile(lambda x: x.min(0), fullgraph=True)(x)
    assert torch.equal(values, x.amin(0))
    assert torch.equal(places, (x == 0).byte().argmax(0))
    assert rows_side_by_side(plans)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_has_all_columns_of_such_rows(plans: list[Plan], dtype: torch.dtype) -> None:
    """Blocks that threads share would part the rows that lie side by side."""
    x = torch.randn(400, 20, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.compile(lambda x: torch.var_mean(x, 0), fullgraph=True)(x)
    torch.testing.assert_close(found, torch.var_mean(x.double(), 0), rtol=1e-2, atol=1e-3, check_dtype=False)
    assert halide_backend.stats()["delegated_kernels"] == 0 and not halide_backend.stats()["unfusing_reasons"]
    assert max(rows_side_by_side(plans)) > 1
    (columns,) = [int(choice.setting) for plan in plans for choice in plan.choices if choice.knob is COLUMNS]
    assert columns >= x.shape[1]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.sum(0), (4099, 64)),  # whole vectors, as many as registers hold
        (lambda x: x.sum(0), (100, 13)),  # few rows
        (lambda x: x[:, :13].sum(0), (4099, 20)),  # rows apart in memory
        (lambda x: (x * x[:, :1]).sum(0), (4099, 13)),  # what a row has in common would be gathered
    ],
    ids=["wide", "short", "apart", "scaled"],
)
def test_not_of(plans: list[Plan], function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    found = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=2e-5, atol=1e-3)
    assert not rows_side_by_side(plans)


@pytest.mark.parametrize("reduced", [lambda x: x.sum(1), lambda x: x.amax(1), lambda x: x.var(1)])
def test_a_number_of_rows_that_is_not_known(reduced: Callable[[Tensor], Tensor]) -> None:
    """Within the loop over pictures a vector of several rows lies in memory, and no guard is in the loop over rows."""
    halide_backend.reset_stats()
    compiled = torch.compile(reduced, dynamic=True, fullgraph=True)
    for shape in ((4, 801, 13), (3, 2, 13), (5, 16, 13), (2, 17, 13), (2, 300, 12), (3, 40, 70), (2, 1000, 2)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(compiled(x).double(), reduced(x.double()), rtol=2e-5, atol=1e-4)
    assert halide_backend.stats()["delegated_kernels"] == 0
    variant = halide_backend.records()[0].text.partition("VARIANT")[2]
    assert re.search(r"NeverPartition\('\w+_several', 'x1_beside_o', update=0\)", variant)


@pytest.mark.parametrize("function", [FUNCTIONS["sum"], FUNCTIONS["maximum"], FUNCTIONS["variance"]])
def test_rows_of_any_number(function: Callable[[Tensor], Tensor]) -> None:
    """In the version for a few columns, and for the columns of any other number."""
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for shape in ((4611, 13), (3, 13), (17, 13), (999, 13), (4611, 12), (5, 70)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(compiled(x).double(), function(x.double()), rtol=2e-5, atol=1e-3)
    assert halide_backend.stats()["delegated_kernels"] == 0
