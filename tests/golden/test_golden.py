"""Program, text and loop nest of the kernels of `golden_cases.CASES`, compared with the files beside this one.

    pytest tests/golden --update-golden        write the files anew

A change of a rule shows here as a diff of what it makes; one that only moves code changes nothing but import lines.
"""

from __future__ import annotations

import difflib
import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from captured_kernels import CapturedKernel, captured_kernels
from golden_cases import CASES, TARGETS, Case

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.inspection.loop_nests import LoopNests
from halide_backend.program.serialization import digest, from_json, to_json
from halide_backend.schedule.device import device_of
from halide_backend.schedule.knobs import Choice, Setting

FOLDER = Path(__file__).parent
PAIRS = [(target, case) for case in CASES for target in case.targets]

pytest.importorskip("halide")


def golden_file(target: str, case: Case) -> Path:
    return FOLDER / target / f"{case.name}.txt"


def section(title: str, text: str) -> str:
    return f"{f'==== {title} ':=<100}\n\n{text.strip()}\n\n"


def described(kernels: list[CapturedKernel], nests: LoopNests) -> str:
    """What a file holds: three sections for each kernel."""
    parts = []
    for number, kernel in enumerate(kernels, start=1):
        which = f" of kernel {number} of {len(kernels)}" if len(kernels) > 1 else ""
        parts.append(section(f"program{which}", f"digest {digest(kernel.program)}\n{kernel.program}"))
        parts.append(section(f"kernel text{which}", kernel.text))
        parts.append(section(f"loop nest{which}", nests.of(kernel.text)))
    return "".join(parts).rstrip() + "\n"


@pytest.fixture(scope="module")
def nests() -> Iterator[LoopNests]:
    with LoopNests() as process:
        yield process


each_golden = pytest.mark.parametrize(
    ("target", "case"), PAIRS, ids=[f"{target}-{case.name}" for target, case in PAIRS]
)


@functools.cache
def kernels_of(target: str, case: Case) -> list[CapturedKernel]:
    found = captured_kernels(case.function, case.arguments(), TARGETS[target], case.dynamic)
    assert found, "no kernel was captured"
    return found


@each_golden
def test_a_kernel_is_what_it_was(
    target: str, case: Case, nests: LoopNests, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest would print it before the difference.
    caplog.set_level(logging.WARNING, "torch.__trace")
    kernels = kernels_of(target, case)
    for kernel in kernels:
        again = from_json(json.loads(json.dumps(to_json(kernel.program))))
        assert again == kernel.program
        assert [value.axes for value in again.values] == [value.axes for value in kernel.program.values]
        assert again.sizes == kernel.program.sizes and str(again) == str(kernel.program)
    now = described(kernels, nests)
    file = golden_file(target, case)
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(now)
        return
    before = file.read_text()
    if now != before:
        name = file.relative_to(FOLDER.parents[1]).as_posix()
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), name, "now", lineterm="")
        pytest.fail("\n".join(lines), pytrace=False)


@each_golden
def test_every_setting_of_a_knob_plans_or_is_refused(target: str, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "torch.__trace")
    for kernel in kernels_of(target, case):
        usual = plan_kernel(kernel.program, device_of(kernel.target))
        assert usual.text == kernel.text
        for choice in usual.plan.choices:
            assert choice.why and "." in choice.knob.name
            for value in choice.knob.values:
                plans_or_is_refused(kernel, choice, value)


def plans_or_is_refused(kernel: CapturedKernel, choice: Choice, value: Setting) -> None:
    try:
        planned = plan_kernel(kernel.program, device_of(kernel.target), {choice.key: value})
    except IllegalPlan as refusal:
        assert value != choice.rule and refusal.what and refusal.where and refusal.cure
    else:
        found = {other.key: other.setting for other in planned.plan.choices}
        assert found[choice.key] == value and planned.text


def test_every_file_has_a_case() -> None:
    assert sorted(FOLDER.glob("*/*.txt")) == sorted(golden_file(target, case) for target, case in PAIRS)
