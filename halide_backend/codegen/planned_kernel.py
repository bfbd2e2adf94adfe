"""One road for every kernel: program, mapping, text and stages, steps, check, kernel text."""

from __future__ import annotations

from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, replace

from halide_backend.codegen.algorithm import Algorithm
from halide_backend.codegen.kernel_text import render, with_variant
from halide_backend.errors import IllegalPlan, OldValueLost, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.short_reductions import without_short_reductions
from halide_backend.program.short_sizes import for_sizes, short_sizes
from halide_backend.program.store_layout import with_rows_apart
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedule.knobs import Choices, Setting
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.mapping.check import check_mapping
from halide_backend.schedule.mapping.choose import choose_mapping
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.prepared import prepared
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.stage import StageGraph
from halide_backend.schedule.steps import Step


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel before it is built: its program as captured, its plan, the Funcs that the plan schedules, its text, and
    the plan of what the text has for calls with short sizes, if anything."""

    program: LoopProgram
    plan: Plan
    stages: StageGraph
    text: str
    variant: Plan | None = None


def plan_kernel(
    program: LoopProgram,
    device: Device,
    knobs: AbstractMapping[str, Setting] | None = None,
    *,
    plan: Plan | None = None,
) -> PlannedKernel:
    """Plan `program` for `device` and write its kernel text.

    The rules choose, but for the settings of `knobs` (see `schedule.knobs`); or `plan` says everything.

    Raises:
        Unsupported: something in the program has no Halide form on this device, or no rule fits it.
        IllegalPlan: what was requested would give another result, or none.
    """
    form = prepared(program, device)
    if plan is not None:
        if knobs:
            raise IllegalPlan("a whole plan leaves nothing to knobs", where="knobs", cure="pass one of both")
        return _as_planned(program, form, device, plan)
    choices = Choices(knobs)
    mapping = choose_mapping(form, device, choices)
    algorithm = _write(form, mapping)
    steps = _choose_steps(algorithm.stages, mapping, device, choices)
    choices.check_all_used()
    try:
        planned = _checked(program, algorithm, Plan(mapping, steps, choices.made, choices.settings))
        return planned if knobs else _with_variant(planned, device)
    except IllegalPlan as refusal:
        if knobs:
            raise
        # What the rules can do for this program would be wrong; its nodes are compiled separately.
        detail = f"{refusal.where}: {refusal.what}"
        if isinstance(refusal, OldValueLost):
            raise Unsupported("overwritten-memory-read-apart", detail) from refusal
        raise Unsupported("no-legal-schedule", detail) from refusal


def _with_variant(planned: PlannedKernel, device: Device) -> PlannedKernel:
    """`planned` by the rules, with a second version for the sizes of its program that are a few elements."""
    program = planned.program
    if not isinstance(device, Cpu) or not (sizes := short_sizes(program)):
        return planned
    try:
        known = without_short_reductions(for_sizes(program, sizes), interleaved=device.vector_bytes // 8)
        variant = plan_kernel(known, device)
    except Unsupported:
        return planned
    same = all(
        with_rows_apart(own, program).variables == with_rows_apart(known, variant.program).variables
        for own, known in zip(program.stores, variant.program.stores, strict=True)
    )
    text = with_variant(planned.text, sizes, variant.text)
    return replace(planned, text=text, variant=variant.plan) if same else planned


def _as_planned(program: LoopProgram, form: LoopProgram, device: Device, plan: Plan) -> PlannedKernel:
    check_mapping(form, device, plan.mapping, dict(plan.knobs))
    return _checked(program, _write(form, plan.mapping), plan)


def _checked(program: LoopProgram, algorithm: Algorithm, plan: Plan) -> PlannedKernel:
    check(algorithm.stages, plan.steps, plan.mapping.tiling)
    return PlannedKernel(program, plan, algorithm.stages, render(algorithm, plan.steps, plan.mapping.tiling))


def _write(program: LoopProgram, mapping: Mapping) -> Algorithm:
    if mapping.tiling is None:
        from halide_backend.codegen.cpu.builder import CpuKernelBuilder

        return CpuKernelBuilder(program, mapping).write()
    from halide_backend.codegen.cuda.builder import CudaKernelBuilder

    return CudaKernelBuilder(program, mapping).write()


def _choose_steps(graph: StageGraph, mapping: Mapping, device: Device, choices: Choices) -> tuple[Step, ...]:
    if isinstance(device, Cpu):
        from halide_backend.schedule.cpu.choose import cpu_steps

        return cpu_steps(graph, mapping, device, choices)
    from halide_backend.schedule.cuda.choose import cuda_steps

    return cuda_steps(graph, mapping, device, choices)
