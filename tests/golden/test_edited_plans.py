"""Plans with mistakes in them are refused, or have the result of the plan that they were made from.

    pytest -m long tests/golden/test_edited_plans.py        forty edits of each kernel instead of a few

Kernels are those of `golden_cases`. On a CPU they are run; for CUDA small ones are run as PTX, and others compiled.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from captured_kernels import captured_kernels
from edited_steps import EditedSteps
from golden_cases import CASES, TARGETS, Case
from kernel_runs import KernelRuns, Outcome

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.plan import Plan

pytest.importorskip("halide")
pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")

#: Edits that are looked at for each kernel, and legal ones that are compiled and run, in the short and the long test.
SHORT, LONG = (60, 1), (1500, 40)

#: Points of the loops of a kernel that numpy can run as PTX in a second.
SMALL = 9000

#: Kernels whose PTX has instructions that the interpreter does not know, or that end with an error on random numbers.
NOT_RUN = {
    "adam",
    "average_pool",
    "bucketize",
    "bytes",
    "dropout",
    "float8",
    "integer_quotients",
    "pointwise_dynamic",
    "reshape_dynamic",
}

PAIRS = [(target, case) for case in CASES for target in case.targets if target != "cpu-avx2"]
each_case = pytest.mark.parametrize(("target", "case"), PAIRS, ids=[f"{t}-{case.name}" for t, case in PAIRS])


@dataclass(frozen=True)
class Edit:
    """A legal edit of a plan, and what it changed."""

    text: str
    changed: str


@pytest.fixture(scope="module")
def runs() -> Iterator[KernelRuns]:
    with KernelRuns() as process:
        yield process


def planned(target: str, case: Case) -> list[PlannedKernel]:
    """The kernels of a case; those for a CPU are planned for this one, which runs them."""
    machine = Target.host() if target == "cpu" else TARGETS[target]
    captured = captured_kernels(case.function, case.arguments(), TARGETS[target], case.dynamic)
    return [plan_kernel(kernel.program, device_of(machine)) for kernel in captured]


def legal_edits(kernel: PlannedKernel, target: str, seed: str, looked_at: int, wanted: int) -> Iterator[Edit]:
    """Up to so many legal edits of a kernel's steps; fails where the check itself does."""
    steps = kernel.plan.steps
    edits, found = EditedSteps(steps, kernel.stages, seed), 0
    machine = device_of(Target.host() if target == "cpu" else TARGETS[target])
    for _ in range(looked_at):
        edited = edits.next()
        if edited == steps:
            continue
        try:
            check(kernel.stages, edited, kernel.plan.mapping.tiling)
        except IllegalPlan as refusal:
            assert refusal.where and refusal.what and refusal.cure
            continue
        text = plan_kernel(kernel.program, machine, plan=Plan(kernel.plan.mapping, edited)).text
        left, came = [s for s in steps if s not in edited], [s for s in edited if s not in steps]
        yield Edit(text, f"without {left}, with {came}")
        found += 1
        if found == wanted:
            return


def check_edits(runs: KernelRuns, target: str, case: Case, looked_at: int, wanted: int) -> None:
    for number, kernel in enumerate(planned(target, case)):
        seed = f"{target} {case.name} {number} {wanted}"
        points = math.prod(axis.hint for axis in kernel.program.axes)
        small = target == "cpu" or (points < SMALL and case.name not in NOT_RUN)
        on_gpu = target == "cuda"
        right: Outcome | None = None
        for edit in legal_edits(kernel, target, seed, looked_at, wanted):
            if right is None and small:
                right = runs.run(kernel.text, kernel.program, on_gpu)
                assert right.outputs is not None, right.error
            found = runs.run(edit.text, kernel.program, on_gpu, compile_only=not small)
            assert found.typed, f"{edit.changed}\n{found.error}"
            if right is not None and right.outputs is not None and found.outputs is not None:
                compare(found.outputs, right.outputs, kernel.program, edit.changed)


def compare(found: dict[int, np.ndarray], right: dict[int, np.ndarray], program: LoopProgram, changed: str) -> None:
    """Equal but for what another order of additions makes of a result."""
    narrow = any("float16" in buffer.dtype or "bfloat16" in buffer.dtype for buffer in program.outputs)
    tolerance = 2e-2 if narrow else 1e-4
    for memory, wanted in right.items():
        np.testing.assert_allclose(found[memory], wanted, rtol=tolerance, atol=tolerance, err_msg=changed)


@each_case
def test_steps_that_rules_choose_are_legal(target: str, case: Case) -> None:
    for kernel in planned(target, case):
        check(kernel.stages, kernel.plan.steps, kernel.plan.mapping.tiling)
        document = json.loads(json.dumps(kernel.plan.to_json()))
        machine = device_of(Target.host() if target == "cpu" else TARGETS[target])
        again = plan_kernel(kernel.program, machine, plan=Plan.from_json(document))
        # A plan is for all sizes; what the rules add for short ones comes after that.
        assert again.text == kernel.text if kernel.variant is None else kernel.text.startswith(again.text)


#: One case in four has its edits run in the short test; which ones is decided by their names.
CHOSEN = [(target, case) for target, case in PAIRS if zlib.crc32(f"{target} {case.name}".encode()) % 4 == 0]


@pytest.mark.parametrize(("target", "case"), CHOSEN, ids=[f"{t}-{case.name}" for t, case in CHOSEN])
def test_an_edited_plan_is_refused_or_right(target: str, case: Case, runs: KernelRuns) -> None:
    check_edits(runs, target, case, *SHORT)


@pytest.mark.long
@each_case
def test_many_edited_plans_are_refused_or_right(target: str, case: Case, runs: KernelRuns) -> None:
    check_edits(runs, target, case, *LONG)
