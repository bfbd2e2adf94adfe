"""Loads at the ends of a row, whose masks are false in most of it, are no gathers there, and right for all sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend.program.loop_program import Load
from halide_backend.program.rare_masks import with_rare_masks

#: Lengths of rows: those of the first call, and such as have few steps that are no end, or none.
LENGTHS = (400, 401, 64, 47, 33, 17, 16, 15, 9, 6, 5)


def circular(x: Tensor) -> Tensor:
    return F.pad(x, (4, 3), mode="circular")


def reflected_gradient(x: Tensor) -> Tensor:
    """The gradient for `x` of the padded rows."""
    return torch.ops.aten.reflection_pad1d_backward(x, x[..., 7:], [4, 3])


def checked(function: Callable[[Tensor], Tensor], shape: tuple[int, ...], lengths: tuple[int, ...]) -> list[Load]:
    """Compare values with eager's for rows of all `lengths`; the masked loads of the kernels for the first of them."""
    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = torch.compile(function, backend="halide_backend", dynamic=True)
    with inductor_config.patch(force_disable_caches=True):
        for length in lengths:
            # Sums of such numbers are exact in bfloat16, where eager rounds each.
            x = torch.randint(-8, 9, (*shape, length), generator=torch.Generator().manual_seed(length)).float()
            for each in (x, x.bfloat16()):
                torch.testing.assert_close(compiled(each), function(each))
    stats = halide_backend.stats()
    assert stats["delegated_kernels"] == 0 and not stats["unfusing_reasons"]
    loads = []
    for record in halide_backend.records():
        assert record.program is not None
        program = with_rare_masks(record.program, "x1")
        masked = (v for v in program.values if any(program.values[o].dtype == "bool" for o in v.operands))
        loads += [value.attribute for value in masked if isinstance(value.attribute, Load)]
    return loads


def test_wrapped_rows() -> None:
    loads = checked(circular, (6, 5), LENGTHS)
    pieces = [load.main for load in loads if load.main is not None]
    assert pieces and all(str(piece.steps.first) == "4" for piece in pieces)
    assert all("likely((n2*x0 + x1 - 4))" in record.text for record in halide_backend.records())


@pytest.mark.parametrize("length", [400, 5000])
def test_gradients_of_reflected_rows(length: int) -> None:
    """Rows of which a task has several have no clamp from the second to the last but one; others read along the row."""
    loads = checked(reflected_gradient, (6, 5), tuple(length + 7 if each == 400 else each + 7 for each in LENGTHS))
    texts = [record.text for record in halide_backend.records()]
    assert loads and all(("hl.select((x0 >= 1)" if length == 400 else "hl.select((x1 >= 5)") in text for text in texts)


def test_rows_that_nothing_else_reads() -> None:
    """Where no other load lies along the row, masks are as they were."""
    loads = checked(lambda x: F.pad(x[..., :3], (0, 200)) + 1, (6,), (400, 300))
    assert all(load.main is None for load in loads)
