"""Each step of the page of steps does what the page shows: its result stays, and its loops or statements change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernel_runs import KernelRuns

from halide_backend.inspection import steps_page
from halide_backend.inspection.loop_nests import LoopNests
from halide_backend.inspection.step_examples import (
    COLUMNS,
    EXAMPLES,
    ROWS,
    dynamic_row_sums,
    row_maxima,
    row_sums,
    squashed,
    stencil,
    two_outputs,
)
from halide_backend.schedule import steps
from halide_backend.schedule.steps import Step

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "schedule-steps.md"

pytest.importorskip("halide")

#: Steps that change how a loop is compiled, and no loop.
SILENT = {
    steps.BoundStorage,
    steps.NeverPartition,
    steps.StoreIn,
    steps.FoldStorage,
    steps.Prefetch,
    steps.ReorderStorage,
}

#: Steps of kernels for a GPU, which are legal only together (tests/golden has kernels with them).
OF_A_GPU = {steps.Bound, steps.BoundExtent, steps.GpuBlocks, steps.GpuThreads, steps.AllowRaceConditions}
OF_A_GPU |= {steps.AlignStorage}


@pytest.fixture(scope="module")
def nests() -> Iterator[LoopNests]:
    with LoopNests() as process:
        yield process


@pytest.fixture(scope="module")
def runs() -> Iterator[KernelRuns]:
    with KernelRuns() as process:
        yield process


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == steps_page.page(), "run `make reference`"


def test_every_step_is_on_the_page() -> None:
    kinds = set(Step.kinds.values())
    assert set(steps_page.LEGAL) == kinds
    assert kinds - set(EXAMPLES) == OF_A_GPU


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_step_takes_effect(kind: type[Step], nests: LoopNests) -> None:
    example = EXAMPLES[kind]
    before, after = example.text(example.before), example.text()
    if kind is steps.ComputeInline:
        # It is what Halide does without a step, and undoes a ComputeAt only by taking its place.
        assert nests.of(after) == nests.of(before) != nests.of(EXAMPLES[steps.ComputeAt].text())
    elif kind in SILENT:
        assert nests.of(after) == nests.of(before)
        statements = nests.of(before, lowered=True), nests.of(after, lowered=True)
        assert statements[0] != statements[1]
        assert example.sign not in statements[0] or not example.sign
        assert example.sign in statements[1]
    else:
        assert nests.of(after) != nests.of(before)


def expected(x: np.ndarray, program: object) -> dict[int, np.ndarray]:
    """What a program of the examples stores, by the number of its output's memory."""
    first = x[:ROWS]
    if program == row_sums():
        return {1: np.exp(first).sum(1)}
    if program == dynamic_row_sums():
        return {1: first.sum(1)}
    if program == row_maxima():
        return {1: first.max(1)}
    if program == two_outputs():
        return {1: np.exp(first), 2: -first}
    if program == squashed():
        return {1: np.tanh(np.exp(first))}
    if program == stencil():
        return {1: np.exp(first) + np.exp(x[2 : ROWS + 2])}
    return {1: np.exp(first)}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_step_changes_no_result(kind: type[Step], runs: KernelRuns) -> None:
    program = EXAMPLES[kind].program
    outcome = runs.run(EXAMPLES[kind].text(), program)
    assert outcome.outputs is not None, outcome.error
    assert outcome.inputs is not None
    x = outcome.inputs[0].reshape(-1, COLUMNS)
    assert {memory: array.shape for memory, array in outcome.outputs.items()}
    for memory, wanted in expected(x, program).items():
        np.testing.assert_allclose(outcome.outputs[memory], wanted.reshape(-1), rtol=1e-5)
