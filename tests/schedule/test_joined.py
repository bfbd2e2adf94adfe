"""Several results that are elements of one Func, so that rows of computed length have loops in two versions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from captured_kernels import captured_kernels

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.inspection.compiled import compile_for
from halide_backend.pipeline import current_target
from halide_backend.program.index import SizeSymbol
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Size, Store, Value
from halide_backend.schedule.device import device_of
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.joined import joined
from halide_backend.schedule.mapping.mapping import Mapping

DEVICE = device_of(Target.named("avx512"))


def halves(extent: int | SizeSymbol, *, steps: tuple[int, int] = (1, 1), mutated: bool = False) -> LoopProgram:
    """The negated first elements of pairs, and the second ones, stored that many elements apart."""
    axis = Axis("x0", extent, 300)
    sizes = () if isinstance(extent, int) else (Size(extent.name, extent, hint=300),)
    values: list[Value] = []
    for number in (0, 1):
        load = Load("in_ptr0", 2 * axis.symbol + number)
        values.append(Value.of("load", "float32", (), load, values))
        values.append(Value.of("neg", "float32", (len(values) - 1,), None, values))
    names = ("out_ptr0", "out_ptr1")
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 2 * extent, 0),),
        outputs=tuple(
            Buffer(name, "float32", s * extent, k + 1, mutated) for k, (name, s) in enumerate(zip(names, steps))
        ),
        values=tuple(values),
        stores=tuple(
            Store(name, s * axis.symbol, 2 * k + 1, Nest((axis,))) for k, (name, s) in enumerate(zip(names, steps))
        ),
        checks=(),
        outer=(axis,),
        sizes=sizes,
    )


def test_results_with_the_same_loops_of_computed_length_are() -> None:
    length = SizeSymbol("n0", nonnegative=True)
    assert joined(halves(length), DEVICE, Choices())
    assert joined(halves(length, steps=(1, 2)), DEVICE, Choices())
    assert not joined(halves(300), DEVICE, Choices())
    assert joined(halves(300), DEVICE, Choices({"results.joined": True}))
    assert not joined(halves(length, mutated=True), DEVICE, Choices({"results.joined": True}))
    alone = replace(halves(length), stores=halves(length).stores[:1])
    assert not joined(alone, DEVICE, Choices())


def test_a_scatter_is_not() -> None:
    program = halves(SizeSymbol("n0", nonnegative=True))
    added = replace(program.stores[1], mode="atomic_add")
    assert not joined(replace(program, stores=(program.stores[0], added)), DEVICE, Choices({"results.joined": True}))


def test_a_plan_says_so_and_no_other_does() -> None:
    device, program = device_of(Target.host()), halves(SizeSymbol("n0", nonnegative=True))
    planned = plan_kernel(program, device)
    assert "hl.Tuple([" in planned.text and "ShiftInwards" in planned.text
    assert Mapping.from_json(planned.plan.mapping.to_json()) == planned.plan.mapping
    other = replace(planned.plan, mapping=replace(planned.plan.mapping, joined=False))
    with pytest.raises(IllegalPlan, match="joined"):
        plan_kernel(program, device, plan=other)


def test_long_formulas_of_several_results_leave_each_one_register_for_a_value() -> None:
    program, device = halves(SizeSymbol("n0", nonnegative=True)), device_of(Target.named("avx512"))
    loads = [value for value in program.values if value.operation == "load"]
    values = [loads[0], Value.of("sin", "float32", (0,), None, loads), loads[1]]
    values.append(Value.of("cos", "float32", (2,), None, values))
    planned = plan_kernel(replace(program, values=tuple(values)), device)
    assert planned.plan.mapping.joined
    assert {c.key: c.setting for c in planned.plan.choices}["vectors.bytes"] == device.vector_bytes


def pooled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)


def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x[..., ::2] * 2, x[..., ::2] > 0, (x[..., ::2] * 3).to(torch.int64)


def rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.amax(-1), x.sum(-1), x.amin(-1)


@pytest.mark.parametrize("function", [pooled, parts, rows], ids=lambda f: f.__name__)
def test_values_are_eagers_for_sizes_with_and_without_a_whole_vector(function: object) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)  # type: ignore[arg-type]
    for side in (64, 30, 33, 34, 6, 4, 128):
        x = torch.randn(2, 3, side, side + 2).round()
        for found, wanted in zip(compiled(x), function(x)):  # type: ignore[operator]
            torch.testing.assert_close(found, wanted)
    assert any("hl.Tuple([" in code for code in compiled.codes)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_results_are_computed_before_any_is_stored(count: int) -> None:
    """The gradients of norms that share a sum; rows of a loop, since vectors of so many results are not few."""

    def gradients(
        weight: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *rows: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        total = torch.where(one <= 0, 0.0, other)
        return total, *(total - x * weight for x in rows)

    columns = 2 * device_of(current_target(torch.device("cpu"))).vector_bytes  # eight vectors
    arguments = [torch.randn(columns), *(torch.randn(400, columns) for _ in range(count + 1))]
    found = compile_for("halide_backend", gradients)
    for ours, truth in zip(found(*arguments), gradients(*(x.double() for x in arguments)), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=1e-6, atol=1e-5)
    (code,) = found.codes
    assert code.count("load_kernel(") == 1
    assert ("hl.Tuple(" in code) == (count >= 3)
    assert ("Unroll(" in code) == (count < 3)


@pytest.mark.parametrize(("columns", "together"), [(509, True), (512, False), (100, False)])
def test_results_of_columns_that_end_within_a_vector_are(columns: int, together: bool) -> None:
    """Of two Funcs one kept the accumulators of the last vector in memory, in all blocks."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.var_mean(x, 0)

    x = torch.randn(61, columns)
    (kernel,) = captured_kernels(function, (x,), Target.named("avx512"))
    text = plan_kernel(kernel.program, DEVICE).text
    assert ("ShiftInwards" in text) is ("hl.Tuple([ops.stored" in text) is together
    compiled = compile_for("halide_backend", function)
    for found, wanted in zip(compiled(x), function(x.double())):
        torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-6)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}


def test_results_of_rows_are_not() -> None:
    (kernel,) = captured_kernels(lambda x: torch.var_mean(x, 1), (torch.randn(509, 61),), Target.named("avx512"))
    assert not joined(kernel.program, DEVICE, Choices())
