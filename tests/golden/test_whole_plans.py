"""A plan that somebody else has made, or a text that somebody has edited, is taken if it is legal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from captured_kernels import captured_kernels
from golden_cases import CASES, TARGETS
from kernel_runs import KernelRuns

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import IllegalPlan, KernelTextError
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, device_of
from halide_backend.schedule.knobs import Setting
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import ComputeAt, FoldStorage, Parallel, Specialize, StoreRoot

pytest.importorskip("halide")
pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")


def program_of(name: str, target: str) -> LoopProgram:
    case = next(case for case in CASES if case.name == name)
    return captured_kernels(case.function, case.arguments(), TARGETS[target], case.dynamic)[0].program


def planned(name: str, target: str = "cpu") -> tuple[LoopProgram, Device, PlannedKernel]:
    program = program_of(name, target)
    device = device_of(Target.host() if target == "cpu" else TARGETS[target])
    return program, device, plan_kernel(program, device)


def test_an_edited_plan_is_used() -> None:
    program, device, kernel = planned("softmax")
    steps = tuple(step for step in kernel.plan.steps if not isinstance(step, Parallel))
    other = plan_kernel(program, device, plan=replace(kernel.plan, steps=steps))
    assert other.plan.steps == steps != kernel.plan.steps
    assert "Parallel" not in other.text
    with KernelRuns() as runs:
        found, wanted = runs.run(other.text, program).outputs, runs.run(kernel.text, program).outputs
    assert found is not None and wanted is not None
    for memory, numbers in wanted.items():
        np.testing.assert_allclose(found[memory], numbers, rtol=1e-5)


def test_a_value_may_get_a_func_by_the_plan() -> None:
    program, device, kernel = planned("add_relu")
    assert not kernel.plan.mapping.funcs
    position = next(k for k, value in enumerate(program.values) if value.operation == "add")
    mapping = Mapping(((position, Role.SHARED),))
    steps = (ComputeAt("add_0", "out_ptr0", "x0"),)
    other = plan_kernel(program, device, plan=Plan(mapping, steps))
    assert "add_0" in other.text
    with KernelRuns() as runs:
        found, wanted = runs.run(other.text, program).outputs, runs.run(kernel.text, program).outputs
    assert found is not None and wanted is not None
    assert all(np.array_equal(found[memory], numbers) for memory, numbers in wanted.items())


def without(position: int) -> Callable[[Mapping], Mapping]:
    return lambda mapping: replace(mapping, funcs=mapping.funcs[:position] + mapping.funcs[position + 1 :])


@pytest.mark.parametrize(
    ("name", "target", "edit", "where"),
    [
        ("softmax", "cpu", without(0), "value"),
        ("softmax", "cpu", lambda m: replace(m, funcs=(*m.funcs, (99, Role.INLINE))), "value 99"),
        ("softmax", "cpu", lambda m: replace(m, funcs=(*m.funcs, (0, Role.SNAPSHOT))), "value 0"),
        ("softmax", "cpu", lambda m: replace(m, funcs=(*m.funcs, (1, Role.SHARED))), "value 1"),
        ("softmax", "cpu", lambda m: replace(m, funcs=(*m.funcs, m.funcs[0])), "mapping"),
        ("update_after_read", "cpu", lambda m: replace(m, funcs=((m.funcs[0][0], Role.INLINE),)), "value"),
        ("softmax", "cuda", lambda m: replace(m, tiling=replace(m.tiling, threads=64)), "tiling"),
        ("softmax", "cuda", lambda m: replace(m, tiling=None), "tiling"),
        ("softmax", "cuda", lambda m: replace(m, loads="L3::please"), "loads"),
        ("softmax", "cuda", lambda m: replace(m, registers=1000), "registers"),
        ("softmax", "cuda", lambda m: replace(m, divisions=((5, "divide"),)), "divisions"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(
    name: str, target: str, edit: Callable[[Mapping], Mapping], where: str
) -> None:
    program, device, kernel = planned(name, target)
    with pytest.raises(IllegalPlan) as caught:
        plan_kernel(program, device, plan=replace(kernel.plan, mapping=edit(kernel.plan.mapping)))
    assert caught.value.where.startswith(where) and caught.value.cure


@pytest.mark.parametrize(
    ("name", "target", "knobs"),
    [
        ("transpose_add", "cpu", {"transposes.side": 4}),
        ("softmax", "cuda", {"register_lines.threads": 16}),
        ("column_argmax", "cuda", {"column_groups.columns": 16}),
    ],
)
def test_a_plan_with_knobs_of_its_mapping_is_used_after_a_journey_through_json(
    name: str, target: str, knobs: dict[str, Setting]
) -> None:
    program, device, rules = planned(name, target)
    kernel = plan_kernel(program, device, knobs)
    assert kernel.plan.mapping != rules.plan.mapping
    read = Plan.from_json(json.loads(json.dumps(kernel.plan.to_json())))
    assert plan_kernel(program, device, plan=read).text == kernel.text
    with pytest.raises(IllegalPlan, match="choose"):
        plan_kernel(program, device, plan=replace(read, knobs=()))


def test_knobs_and_a_plan_exclude_each_other() -> None:
    program, device, kernel = planned("add_relu")
    with pytest.raises(IllegalPlan, match="knobs"):
        plan_kernel(program, device, {"parallel.threads": False}, plan=kernel.plan)


def test_a_worker_refuses_illegal_steps_in_an_edited_text() -> None:
    _, _, kernel = planned("update_after_read")
    place = next(s for s in kernel.plan.steps if isinstance(s, ComputeAt))
    edited = kernel.text.replace(f"    {place!r},\n", "")
    assert edited != kernel.text
    with pytest.raises(IllegalPlan, match="overwritten memory is read outside") as caught:
        compile_kernel(edited, Target.host(), "edited", "edited")
    assert caught.value.where.startswith("kernel edited, ")


def test_a_worker_refuses_a_text_whose_stages_are_about_other_funcs() -> None:
    _, _, kernel = planned("softmax")
    for old, new in (
        ("    Stage('max_0', ", "    Stage('max_9', "),
        ("(Loop('x0', 64, 'x0'),)", "()"),
        ("    Stage('sub_0'", "    # Stage('sub_0'"),
    ):
        assert old in kernel.text
        with pytest.raises(KernelTextError, match="STAGES"):
            compile_kernel(kernel.text.replace(old, new), Target.host(), "edited")


def test_folded_storage_that_holds_too_little_is_refused(stencil_plan: Callable[[int], str]) -> None:
    assert compile_kernel(stencil_plan(3), Target.host(), "folded").object
    with pytest.raises(IllegalPlan, match="too few lines"):
        compile_kernel(stencil_plan(2), Target.host(), "folded")


@pytest.fixture
def stencil_plan() -> Callable[[int], str]:
    """A text that keeps so many lines of a producer of which each line needs three."""
    from halide_backend.inspection.step_examples import stencil

    def text(lines: int) -> str:
        steps = (
            ComputeAt("exp_0", "out_ptr0", "x0"),
            StoreRoot("exp_0"),
            FoldStorage("exp_0", "x0", lines),
        )
        program, device = stencil(), device_of(Target.host())
        mapping = plan_kernel(program, device).plan.mapping
        return plan_kernel(program, device, plan=Plan(mapping, steps)).text

    return text


def test_what_a_text_says_of_its_stages_does_not_depend_on_a_typical_length() -> None:
    """One text, and so one artifact, serves all lengths for which the rules choose the same."""
    case = next(case for case in CASES if case.name == "pointwise_dynamic")
    for target in ("cpu", "cuda"):
        texts = set()
        for rows in (20, 24):
            x = torch.ones(rows, 100)
            (kernel,) = captured_kernels(case.function, (x, x), TARGETS[target], dynamic=True)
            texts.add(kernel.text.partition("STAGES = ")[2].partition("SCHEDULE = ")[0])
        assert len(texts) == 1
        assert ", 0, 'x0', False)" in texts.pop()


def test_loops_are_specialized_for_arguments_alone() -> None:
    program, device, kernel = planned("softmax_dynamic")
    (chosen,) = [step for step in kernel.plan.steps if isinstance(step, Specialize)]
    steps = tuple(replace(step, size="n9") if step is chosen else step for step in kernel.plan.steps)
    text = plan_kernel(program, device, plan=replace(kernel.plan, steps=steps)).text
    with pytest.raises(KernelTextError, match="'n9' is no size"):
        compile_kernel(text, Target.host(), "edited")
