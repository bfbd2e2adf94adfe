"""Values that are read at other rows are stored in whole vectors where rows are of computed length: what is beyond the
end of a row is its last element once more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.errors import IllegalPlan
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import ComputeAt, Split


def bicubic(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=1.5, mode="bicubic")


def enlarged(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=True) + 1


@pytest.mark.parametrize("function", [bicubic, enlarged], ids=lambda f: f.__name__)
def test_rows_of_any_length_are_eagers(function: Callable[[Tensor], Tensor]) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    for rows, columns in ((37, 41), (64, 64), (20, 33), (9, 17), (4, 5), (3, 16)):
        x = torch.randn(2, 3, rows, columns)
        torch.testing.assert_close(compiled(x), function(x.double()).float(), rtol=1e-4, atol=1e-4)
    code = "\n".join(compiled.codes)
    assert "tail='RoundUp'" in code and "hl.min(hl.likely(x2)" in code
    assert not compiled.delegated


def test_beyond_the_end_only_where_loads_read_no_further() -> None:
    loops = (Loop("x1", 40, "x1", fixed=False), Loop("x0", 40, "x0", fixed=False))
    stages = (
        Stage("row", Role.SHARED, loops, shifted=("x0",)),
        Stage("out_ptr0", Role.OUTPUT, loops, calls=("row",)),
    )
    steps = (ComputeAt("row", "out_ptr0", "x0"), Split("row", "x1", "x1_o", "x1_v", 16, tail="RoundUp"))
    check(StageGraph(stages, ("x0", "x1"), clamped=("x1",)), steps)
    with pytest.raises(IllegalPlan, match="outside of memory"):
        check(StageGraph(stages, ("x0", "x1")), steps)
