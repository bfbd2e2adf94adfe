"""Short lines of unknown length that a few lanes of a warp reduce and store along."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import check_values

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


@pytest.mark.parametrize(("points", "rule"), [(16, "warp_lines"), (4, "column_reductions")])
def test_lanes_share_a_short_dynamic_line_that_is_stored(points: int, rule: str) -> None:
    """A thread that has all of a line stores, and reads several times, apart from its neighbours: softmax of 16 floats
    193 us on an H200, now 47."""
    (program,) = programs_of(lambda x: x.softmax(-1), (torch.empty(1000, points),), dynamic=True)
    mapping = plan_kernel(program, device_of(TARGET)).plan.mapping
    assert mapping.rule == rule and mapping.tiling is not None
    assert (mapping.tiling.threads == 4) == (rule == "warp_lines")


def test_values_of_a_short_dynamic_line() -> None:
    check_values(
        lambda x: x.softmax(-1), torch.randn(40, 13), others=[(torch.randn(24, 16),)], dynamic=True, tolerance=1e-6
    )
