"""What is repeated, apart from its repeats."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.index import FloorDiv, Mod
from halide_backend.program.loop_program import Load, LoopProgram
from halide_backend.program.repeats import with_repeats_apart

TARGET = Target.named("avx512")


def columns(x: Tensor) -> Tensor:
    return x.repeat(1, 3)


def both(x: Tensor) -> Tensor:
    return x.repeat(2, 3) * 2


def beside(x: Tensor) -> Tensor:
    return x.repeat(1, 3) + x.sum(1, keepdim=True).exp()[:, :1].expand(-1, 3 * x.shape[1])


def first_and_all(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.repeat(1, 2), torch.cat([x, x], 1) + 1


def short(x: Tensor) -> Tensor:
    return x[:, :9].repeat(1, 3)


def numbered(x: Tensor) -> Tensor:
    return x.repeat(1, 3) + torch.arange(3 * x.shape[1])


def of(function: Callable[..., Tensor], dynamic: bool) -> tuple[LoopProgram, LoopProgram]:
    """The last kernel's program, and what has become of it."""
    program = captured_kernels(function, (torch.empty(20, 70),), TARGET, dynamic)[-1].program
    return program, with_repeats_apart(program)


def remainders(program: LoopProgram) -> bool:
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load)]
    assert loads
    return any(load.index.has(Mod, FloorDiv) for load in loads)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [columns, both])
def test_axes_of_repeats_are_apart(function: Callable[..., Tensor], dynamic: bool) -> None:
    """Of rows of unknown length the caller passes no stride of repeated columns: these stay remainders."""
    before, after = of(function, dynamic)
    rows = function is both and not dynamic
    assert remainders(before) and remainders(after) is (function is both and dynamic)
    assert [axis.name for axis in after.axes] == [f"x{number}" for number in range(3 + rows)]
    assert [axis.hint for axis in after.axes] == [2, 20, 3, 70] if rows else [after.axes[0].hint, 3, 70]
    assert [axis.extent for axis in after.axes if axis.hint in (2, 3)] == [2, 3] if rows else [3]


def test_short_rows_stay() -> None:
    before, after = of(short, False)
    assert remainders(before) and after is before


def around(x: Tensor) -> Tensor:
    return x.repeat(1, 3).roll(1, 1)


def test_what_is_shifted_stays() -> None:
    before, after = of(around, False)
    assert remainders(before) and after is before


def test_what_else_is_linear_along_the_axis_is_so_along_both() -> None:
    before, after = of(numbered, False)
    assert remainders(before) and not remainders(after)
    assert [axis.hint for axis in after.axes] == [20, 3, 70]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("function", [columns, both, beside, first_and_all, short, numbered, around])
def test_repeats_are_those_of_eager(function: Callable[..., Tensor], dtype: torch.dtype, dynamic: bool) -> None:
    found = compile_for("halide_backend", function, dynamic=dynamic)
    before = halide_backend.stats()
    for shape in ((20, 70), (20, 16), (1, 333), (300, 17)):
        x = (torch.arange(shape[0] * shape[1]) % 5).view(shape).to(dtype)
        if function is beside:
            x = x.clamp(max=1) / max(shape) if dtype.is_floating_point else x.clamp(max=0)
        torch.testing.assert_close(found(x), function(x))
    for key in ("delegation_reasons", "unfusing_reasons"):
        assert halide_backend.stats()[key] == before[key]
