"""Gathers from computed rows are functions of a row, where that is less work, and have the values that they had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import config
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.gathered_rows import with_functions_of_rows
from halide_backend.program.loop_program import Apply, LoopProgram
from halide_backend.schedule.device import device_of


def interpolation(mode: str, factor: float, corners: bool = False) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode, align_corners=corners)


def compiled(
    function: Callable[[Tensor], Any], x: Tensor, dynamic: bool | None = None
) -> tuple[Any, list[LoopProgram]]:
    """What `function` of x is, and the programs of its kernels."""
    torch._dynamo.reset()
    halide_backend.reset_stats()
    with inductor_config.patch(force_disable_caches=True), config.patch(delegate=False):
        found = torch.compile(function, backend="halide_backend", dynamic=dynamic)(x)
    records = halide_backend.records()
    return found, [record.program for record in records if record.program is not None]


def functions(programs: list[LoopProgram]) -> int:
    """How many functions of a row the programs have."""
    found = 0
    for program in programs:
        applied = [value for value in with_functions_of_rows(program).values if isinstance(value.attribute, Apply)]
        found += len({value.operands[0] for value in applied})
    return found


@pytest.mark.parametrize(
    ("function", "shape", "count"),
    [
        (interpolation("bilinear", 2), (3, 5, 20, 30), 1),
        (interpolation("bilinear", 3, corners=True), (2, 1, 17, 23), 1),
        (interpolation("bicubic", 2), (2, 3, 14, 19), 1),
        # Every row of the picture is needed by a fourth of the rows of the result, or none: gathering is less.
        (interpolation("bilinear", 0.25), (2, 3, 40, 40), 0),
    ],
    ids=["bilinear", "corners", "bicubic", "down"],
)
def test_interpolation_combines_each_row_once(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], count: int
) -> None:
    x = torch.randn(shape)
    found, programs = compiled(function, x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=1e-5, atol=1e-5)
    assert functions(programs) == count


@pytest.mark.parametrize(("factor", "count"), [(2.0, 1), (0.25, 0)])
def test_of_dynamic_pictures_typical_sizes_decide(factor: float, count: int) -> None:
    function = interpolation("bilinear", factor)
    _, programs = compiled(function, torch.randn(2, 3, 40, 40), dynamic=True)
    assert functions(programs) == count
    assert programs[0].sizes
    kernel = torch.compile(function, backend="halide_backend", dynamic=True)
    for shape in ((2, 3, 40, 40), (2, 3, 8, 8), (4, 2, 5, 33), (3, 2, 90, 16)):
        x = torch.randn(shape)
        torch.testing.assert_close(kernel(x).double(), function(x.double()), rtol=1e-5, atol=1e-5)


def test_rows_that_data_name_are_read_wherever_they_are() -> None:
    rows, columns = torch.tensor([2, 0, -1, 1, 3, 3, -4, 2, 0, 1]), torch.randint(0, 50, (33,))

    def function(x: Tensor) -> Tensor:
        picked = x[:, rows][:, :, columns]
        return torch.tanh(picked) + torch.tanh(x[:, rows.flip(0)][:, :, columns])

    x = torch.randn(6, 4, 50)
    found, _ = compiled(function, x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=1e-5, atol=1e-5)


def test_columns_that_a_row_names_are_those_of_the_row() -> None:
    """Seed 992112: the function of a row read its columns at the rows of the result, whose numbers were not defined."""
    index, rows = torch.randint(0, 3, (2, 15)), torch.randint(-2, 2, (19,))
    x = torch.randn(3, 15)
    found, programs = compiled(lambda x: x.gather(0, index)[rows], x)
    assert torch.equal(found, x.gather(0, index)[rows])
    assert functions(programs) == 1


def test_what_is_needed_at_its_row_as_well_is_another_value() -> None:
    """The function took what was gathered for a row of the result, instead of what there is in its own row."""
    rows, columns = torch.tensor([2, 0, -1, 1, 3, 3, -4, 2, 0, 1]), torch.randint(0, 50, (33,))
    weights = torch.randn(10, 1)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        picked = x[:, rows][:, :, columns]
        return picked * weights, torch.tanh(picked).exp()

    x = torch.randn(6, 4, 50)
    found, programs = compiled(function, x)
    for one, wanted in zip(found, function(x.double())):
        torch.testing.assert_close(one.double(), wanted, rtol=1e-5, atol=1e-5)
    assert functions(programs) == 1


def test_the_number_of_a_row_is_not_what_lies_there() -> None:
    """The function took the number of the row that a row of the result reads for its own."""
    rows, columns = torch.tensor([2, 0, -1, 1, 3, 3, -4, 2, 0, 1]), torch.randint(0, 50, (33,))

    def function(x: Tensor) -> Tensor:
        numbered = torch.arange(4)[None, :, None] * x.flip(1)
        return torch.tanh(numbered[:, rows][:, :, columns]).exp()

    x = torch.randn(6, 4, 50)
    found, _ = compiled(function, x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=1e-5, atol=1e-5)


def test_what_is_overwritten_is_read_at_its_place() -> None:
    def function(x: Tensor) -> Tensor:
        x.copy_(F.interpolate(x[..., ::2, ::2], scale_factor=2, mode="bilinear"))
        return x

    x = torch.randn(2, 3, 24, 36)
    wanted = function(x.double())
    found, _ = compiled(function, x.clone())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_a_plan_may_compute_it_for_each_row_again() -> None:
    _, programs = compiled(interpolation("bilinear", 2), torch.randn(3, 5, 20, 30))
    (program,) = programs
    device = device_of(Target.host())
    stored = plan_kernel(program, device)
    (key,) = (choice.key for choice in stored.plan.choices if choice.knob.name == "functions.stores")
    again = plan_kernel(program, device, {key: False})
    name = key.partition("@")[2]
    assert f"ComputeAt('{name}', 'out_ptr0', 'x0')" in stored.text
    assert f"ComputeAt('{name}'" not in again.text
