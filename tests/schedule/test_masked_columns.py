"""A few columns of computed number: accumulators in registers, and a condition of the algorithm for what is beyond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import BoundExtent, ComputeAt, Split, Step

TARGETS = ("avx2", "avx512")


def sums(x: Tensor) -> Tensor:
    return x.sum(0)


def program_of(function: Callable[..., Tensor], rows: int, columns: int, target: Target) -> LoopProgram:
    (kernel,) = captured_kernels(function, (torch.randn(rows, columns),), target, dynamic=True)
    return kernel.program


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(("columns", "narrow"), [(24, True), (300, False)])
def test_of_few_columns_a_condition_says_which_there_are(name: str, columns: int, narrow: bool) -> None:
    target = Target.named(name)
    planned = plan_kernel(program_of(sums, 3000, columns, target), device_of(target))
    assert bool(planned.plan.mapping.narrow) is narrow
    assert (".where(" in planned.text) is narrow
    assert any(isinstance(step, BoundExtent) for step in planned.plan.steps) is narrow
    assert Mapping.from_json(planned.plan.mapping.to_json()) == planned.plan.mapping


def test_not_where_a_result_needs_loads_of_its_own() -> None:
    target = Target.named("avx512")
    found = program_of(lambda x: x.sum(0) * x[0], 3000, 24, target)
    assert not plan_kernel(found, device_of(target)).plan.mapping.narrow


def test_a_plan_that_says_otherwise_is_refused() -> None:
    target = Target.named("avx512")
    found, device = program_of(sums, 3000, 24, target), device_of(target)
    plan = plan_kernel(found, device).plan
    (loaded,) = (k for k, value in enumerate(found.values) if value.operation == "load")
    stored = ((loaded, Role.SHARED),)
    refused = {"one point of the axes": replace(plan.mapping, narrow=""), "narrow": replace(plan.mapping, funcs=stored)}
    for why, mapping in refused.items():
        with pytest.raises(IllegalPlan, match=why):
            plan_kernel(found, device, plan=replace(plan, mapping=mapping))


@pytest.mark.parametrize("alone", [False, True])
def test_what_a_reduction_would_read_beyond_the_last_column_is_not_computed_alone(alone: bool) -> None:
    rows, columns = Loop("r", 1000, "r", False), Loop("x", 24, "x", False)
    operand = Stage("operand", Role.INLINE, (columns, Loop("r", 1000, "r", False)))
    total = Stage("total", Role.REDUCTION, (columns,), ("operand",), updates=(rows,), operator="sum")
    out = Stage("out", Role.OUTPUT, (columns,), ("total",))
    steps: list[Step] = [
        Split("out", "x", "x_b", "x_i", 32),
        ComputeAt("total", "out", "x_b"),
        BoundExtent("total", "x", 32),
        *([ComputeAt("operand", "total", "r")] if alone else []),
    ]
    graph = StageGraph((operand, total, out), ("x",), narrow="x")
    if alone:
        with pytest.raises(IllegalPlan, match="beyond the end of x"):
            check(graph, steps)
    else:
        check(graph, steps)
        with pytest.raises(IllegalPlan, match="one point"):
            check(replace(graph, narrow=""), steps)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": sums,
    "largest": lambda x: x.amax(0),
    "place": lambda x: x.argmax(0),
    "variance": lambda x: x.var(0),
    "made of a mean": lambda x: (x.mean(0) * 2 + 1).relu(),
    "any": lambda x: (x > 2).any(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_eagers_whatever_the_sizes_are(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = compile_for("halide_backend", function, dynamic=True)
    sizes = [(3000, 24), (33, 17), (2100, 31), (65, 64), (5, 2), (1030, 15), (64, 16), (2049, 129), (1, 7), (7, 1)]
    if name not in ("largest", "place"):  # Of no elements there is none.
        sizes.append((0, 5))
    for rows, columns in sizes:
        x = torch.randn(rows, columns)
        wanted = function(x.double())
        torch.testing.assert_close(compiled(x), wanted.to(function(x).dtype), rtol=1e-4, atol=1e-3, equal_nan=True)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
    assert any(".where(" in code for code in compiled.codes)


def test_several_results_of_columns() -> None:
    compiled = compile_for("halide_backend", lambda x: torch.var_mean(x, (0, 1)), dynamic=True)
    for shape in ((40, 90, 30), (3, 33, 21), (70, 64, 64), (1, 5, 3)):
        x = torch.randn(shape)
        for found, wanted in zip(compiled(x), torch.var_mean(x.double(), (0, 1))):
            torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-5)
    assert any(".where(" in code and "hl.Tuple([ops.stored" in code for code in compiled.codes)


def test_columns_of_pictures() -> None:
    compiled = compile_for("halide_backend", lambda x: x.sum(1), dynamic=True)
    for shape in ((3, 700, 24), (2, 33, 21), (5, 64, 40), (1, 1, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), x.double().sum(1).float(), rtol=1e-4, atol=1e-3)
    assert any(".where(" in code for code in compiled.codes)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("length", [301, 501])
def test_blocks_of_a_row_of_computed_length_are_three_or_more(name: str, length: int) -> None:
    """The last of them begins earlier: of one block, as long as the row typically is, each vector had a guard."""
    target = Target.named(name)
    (kernel,) = captured_kernels(lambda x: x.var(1), (torch.randn(33, 101, length),), target, dynamic=True)
    steps = plan_kernel(kernel.program, device_of(target)).plan.steps
    (block,) = (step for step in steps if isinstance(step, Split) and step.inner == "x1_i")
    assert block.tail == "ShiftInwards" and length <= -(-length // block.factor) * block.factor <= 9 * length // 8


@pytest.mark.parametrize("function", [lambda x: x.var(1), lambda x: x.amax(1), lambda x: x.sum(1) / x.shape[1]])
def test_the_last_block_begins_earlier_whatever_the_sizes_are(function: Callable[[Tensor], Tensor]) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    sizes = [(33, 101, 301), (32, 100, 300), (5, 150, 64), (3, 200, 63), (2, 130, 1001), (4, 2, 17), (7, 140, 2)]
    for images, rows, columns in sizes:
        x = torch.randn(images, rows, columns)
        torch.testing.assert_close(compiled(x), function(x.double()).float(), rtol=1e-4, atol=1e-4)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
