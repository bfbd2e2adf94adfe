"""Entries make the plans that they were made from, and say what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captured_kernels import captured_kernels
from golden_cases import CASES, TARGETS

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, device_of
from halide_backend.schedule.knobs import Setting
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import ComputeAt, Parallel
from halide_backend.schedules.planning import entry_of, plan_entry
from halide_backend.schedules.schedule_file import parse, text_of
from halide_backend.schedules.size_class import SizeRange, fits, size_class

pytest.importorskip("halide")
pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")


def planned(name: str, target: str = "cpu") -> tuple[LoopProgram, Device, PlannedKernel]:
    case = next(case for case in CASES if case.name == name)
    program = captured_kernels(case.function, case.arguments(), TARGETS[target], case.dynamic)[0].program
    device = device_of(TARGETS[target])
    return program, device, plan_kernel(program, device)


PAIRS = [(target, case.name) for case in CASES for target in case.targets if target != "cpu-avx2"]


@pytest.mark.parametrize(("target", "name"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_the_plan_of_the_rules_is_made_again_from_the_text_of_its_entry(target: str, name: str) -> None:
    program, device, kernel = planned(name, target)
    for with_steps in (False, True):
        entry = entry_of(program, device, kernel.plan, with_steps=with_steps)
        assert (entry.steps is not None) is with_steps
        (read,) = parse(text_of([entry]).encode(), "f")
        assert read == entry
        text, _, _ = kernel.text.partition("\n\n#: The same for calls with these sizes.\n")
        assert plan_entry(program, device, read).text == text


@pytest.mark.parametrize(
    ("name", "target", "knobs"),
    [
        ("transpose_add", "cpu", {"transposes.side": 4}),
        ("softmax", "cpu", {"parallel.threads": False}),
        ("softmax", "cuda", {"register_lines.threads": 16}),
    ],
)
def test_knobs_of_an_entry_are_used(name: str, target: str, knobs: dict[str, Setting]) -> None:
    program, device, rules = planned(name, target)
    kernel = plan_kernel(program, device, knobs)
    assert kernel.text != rules.text
    for with_steps in (False, True):
        entry = entry_of(program, device, kernel.plan, with_steps=with_steps)
        assert plan_entry(program, device, entry).text == kernel.text
    alone = replace(entry_of(program, device, rules.plan), knobs=tuple(knobs.items()))
    assert plan_entry(program, device, alone).text == kernel.text


def test_steps_that_no_knob_makes_are_written_as_steps() -> None:
    program, device, kernel = planned("softmax")
    steps = tuple(step for step in kernel.plan.steps if not isinstance(step, Parallel))
    entry = entry_of(program, device, replace(kernel.plan, steps=steps))
    assert entry.steps == steps and not entry.funcs
    assert plan_entry(program, device, entry).plan.steps == steps


def test_a_value_may_get_a_func() -> None:
    program, device, _ = planned("add_relu")
    position = next(k for k, value in enumerate(program.values) if value.operation == "add")
    plan = Plan(Mapping(((position, Role.SHARED),)), (ComputeAt("add_0", "out_ptr0", "x0"),))
    entry = entry_of(program, device, plan)
    assert entry.funcs == ((position, Role.SHARED),)
    (read,) = parse(text_of([entry]).encode(), "f")
    assert "add_0" in plan_entry(program, device, read).text


def test_a_knob_of_steps_beside_steps_is_refused() -> None:
    """It would change nothing."""
    program, device, kernel = planned("softmax")
    entry = entry_of(program, device, kernel.plan, with_steps=True)
    with pytest.raises(IllegalPlan, match="chooses steps") as caught:
        plan_entry(program, device, replace(entry, knobs=(("parallel.threads", False),)))
    assert caught.value.where == "parallel.threads"


def test_a_knob_that_is_gone_is_refused() -> None:
    program, device, kernel = planned("softmax")
    entry = replace(entry_of(program, device, kernel.plan), knobs=(("rule.gone", 4),))
    with pytest.raises(IllegalPlan, match="no rule of this kernel") as caught:
        plan_entry(program, device, entry)
    assert caught.value.where == "rule.gone"


def test_knobs_that_another_one_makes_needless_may_stay_as_the_rules_set_them() -> None:
    """A file lists all knobs; who switches threads off in it need not remove how much one of them does."""
    program, device, kernel = planned("softmax")
    entry = entry_of(program, device, kernel.plan)
    settings = dict(entry.knobs)
    assert settings["parallel.threads"] is True and "parallel.task_work" in settings
    alone = replace(entry, knobs=tuple({**settings, "parallel.threads": False}.items()))
    assert plan_entry(program, device, alone).text == plan_kernel(program, device, {"parallel.threads": False}).text
    # What somebody has changed shall not be without effect.
    edited = replace(entry, knobs=tuple({**settings, "parallel.threads": False, "parallel.task_work": 1000}.items()))
    with pytest.raises(IllegalPlan, match="no rule") as caught:
        plan_entry(program, device, edited)
    assert caught.value.where == "parallel.task_work"


def test_an_entry_of_another_program_device_or_size_is_refused() -> None:
    program, device, kernel = planned("softmax")
    entry = entry_of(program, device, kernel.plan)
    for other, where in (
        (replace(entry, program="0" * 64), "program"),
        (replace(entry, device="sm_90"), "device"),
        (replace(entry, sizes=(SizeRange("x0", 1, 2),)), "sizes"),
    ):
        with pytest.raises(IllegalPlan) as caught:
            plan_entry(program, device, other)
        assert caught.value.where == where and caught.value.cure


@pytest.mark.parametrize(("hint", "least", "most"), [(0, 0, 3), (1, 1, 3), (3, 1, 3), (4, 4, 15), (1000, 256, 1023)])
def test_lengths_are_classed_by_powers_of_four(hint: int, least: int, most: int) -> None:
    program, device, kernel = planned("pointwise_dynamic")
    dynamic = [axis for axis in program.axes if not isinstance(axis.extent, int)]
    assert dynamic and [each.axis for each in size_class(program)] == [axis.name for axis in dynamic]
    stores = tuple(
        replace(s, nest=replace(s.nest, iteration=tuple(replace(axis, hint=hint) for axis in s.nest.iteration)))
        for s in program.stores
    )
    resized = replace(program, stores=stores, outer=tuple(replace(axis, hint=hint) for axis in program.outer))
    found = size_class(resized)
    assert {(each.least, each.most) for each in found} == {(least, most)}
    assert fits(found, resized) and fits((), resized)
    assert fits(found, program) is (size_class(program) == found)
    assert entry_of(program, device, kernel.plan).sizes == size_class(program)
