"""Each setting of the knobs of CUDA rules gives the same result, or is refused; kernels run as numpy runs their PTX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cuda_programs import TARGET
from kernel_values import Call, CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.cuda import choose
from halide_backend.schedule.device import device_of
from halide_backend.schedule.knobs import Setting

PAGE = Path(__file__).parents[3] / "docs" / "design" / "cuda.md"
GPU = device_of(TARGET)
BFLOAT16 = torch.bfloat16
Settings = Mapping[str, Setting]


@dataclass(frozen=True)
class Case:
    """A function of small whole numbers, one kernel of which `rule` plans if `knobs` are set so."""

    rule: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    indices: int = 0
    knobs: Settings = field(default_factory=dict)
    dynamic: bool = False

    def __str__(self) -> str:
        return f"{self.rule}-{'x'.join(map(str, self.shapes[0]))}{'-dynamic' if self.dynamic else ''}"

    def arguments(self) -> list[Tensor]:
        """Numbers whose sums are exact; `indices` of them, if any, are rows of the first tensor, some of them twice."""
        random = torch.Generator().manual_seed(3)
        found = [torch.randint(-4, 5, shape, generator=random).to(self.dtype) for shape in self.shapes]
        rows = torch.randint(0, self.shapes[0][0], (self.indices,), generator=random)
        return [*found, rows] if self.indices else found

    def call(self, scan_programs: Callable[..., list[LoopProgram]]) -> Call:
        """The call of the kernel with its right results; those of scans, which a CPU leaves to aten, are eager's."""
        arguments = self.arguments()
        if self.rule not in ("scans", "column_scans"):
            calls: list[Call] = []
            check_values(self.function, *arguments, dynamic=self.dynamic, calls=calls)
            return next(call for call in calls if rule_of(call.program, self.knobs) == self.rule)
        (program,) = scan_programs(self.function, *arguments)
        results = self.function(*arguments)
        outputs = [results] if isinstance(results, Tensor) else list(results)
        before = [raw(tensor) for tensor in (*arguments, *(torch.full_like(output, 77) for output in outputs))]
        return Call(program, range(len(before)), before, [raw(tensor) for tensor in (*arguments, *outputs)])


def raw(tensor: Tensor) -> Any:
    return np.array(tensor.contiguous().view(torch.uint8).numpy().reshape(-1))


def rule_of(program: LoopProgram, knobs: Settings) -> str:
    """The rule that plans `program` with the settings `knobs`, "" if it has no such knobs."""
    try:
        return plan_kernel(program, GPU, knobs).plan.mapping.rule
    except IllegalPlan:
        return ""


def add_rows(x: Tensor, rows: Tensor, indices: Tensor) -> Tensor:
    return x.index_add(0, indices, rows)


def less_sum(x: Tensor, y: Tensor) -> Tensor:
    """Lines of `y` less sums of their products with those of `x`, which lie side by side."""
    return y - (x.mT * y).sum(-1, keepdim=True)


WALK: Settings = {"register_lines.applies": False}
SIDE_BY_SIDE: Settings = {"interleaved_lines.applies": True}
IN_REGISTERS: Settings = {"register_transposes.applies": True}

CASES = (
    Case("pointwise", lambda x: x * 2 + 1, ((1001,),)),
    Case("pointwise", lambda x, y: (x + y, x * y), ((12, 48), (12, 48)), BFLOAT16),
    Case("pointwise", lambda x: x[:-2, 1:] + x[1:-1, 1:] - x[2:, 1:], ((26, 49),)),
    Case("column_groups", lambda x: x.argmax(0), ((200, 48),)),
    Case("column_groups", lambda x: x.max(1), ((3, 130, 24),), BFLOAT16),
    Case("column_groups", lambda x: (x * x).sum(1), ((3, 130, 64),), BFLOAT16),
    Case("column_reductions", lambda x: x.sum(0), ((40, 300),)),
    Case("column_reductions", lambda x: x - x.amax(0), ((33, 48),), BFLOAT16),
    Case("column_reductions", lambda x: x.argmin(0), ((40, 24),)),
    Case("register_lines", lambda x: x - x.sum(-1, keepdim=True), ((6, 260),)),
    Case("register_lines", lambda x: x.amax(-1), ((8, 48),)),
    Case("register_lines", lambda x: x.argmax(-1), ((5, 336),), BFLOAT16),
    Case("warp_lines", lambda x: x - x.sum(-1, keepdim=True), ((7, 37),), dynamic=True),
    Case("warp_lines", lambda x: x.amax(-1), ((33, 100),), BFLOAT16, dynamic=True),
    Case("warp_lines", lambda x: x.argmax(-1), ((3, 2, 300),), dynamic=True),
    Case("block_lines", lambda x: x - x.sum(-1, keepdim=True), ((3, 1300),), knobs=WALK),
    Case("block_lines", lambda x: x.argmax(-1), ((2, 264),), BFLOAT16, knobs=WALK),
    Case("block_lines", lambda x: x - x.amax(-1, keepdim=True), ((3, 700),), dynamic=True),
    Case("interleaved_lines", less_sum, ((2, 320, 12), (2, 12, 320))),
    Case("interleaved_lines", less_sum, ((48, 20), (20, 48)), BFLOAT16, knobs=SIDE_BY_SIDE),
    Case(
        "interleaved_lines", lambda x, y: (x.mT - y).argmax(-1)[:, None] + y, ((256, 9), (9, 256)), knobs=SIDE_BY_SIDE
    ),
    Case("column_scans", lambda x: x.cumsum(0), ((70, 64),)),
    Case("column_scans", lambda x: x.cumsum(1), ((3, 50, 24),), BFLOAT16),
    Case("column_scans", lambda x: x.cummax(0), ((40, 20),)),
    Case("scans", lambda x: x.cumsum(-1), ((8, 96),)),
    Case("scans", lambda x: x.cumsum(-1), ((3, 1300),)),
    Case("scans", lambda x: x.cummax(-1), ((16, 20),)),
    Case("scatters", add_rows, ((6, 16), (50, 16)), indices=50),
    Case("scatters", add_rows, ((6, 24), (21, 24)), torch.int32, indices=21),
    Case("scatters", add_rows, ((70, 5), (140, 5)), indices=140),
    Case("shared_transposes", lambda x, y: x.t() + y, ((70, 40), (40, 70))),
    Case("shared_transposes", lambda x, y: x.t() + y, ((64, 128), (128, 64)), BFLOAT16),
    Case("shared_transposes", lambda x, y: (x.mT + y, x.mT * y), ((2, 33, 40), (2, 40, 33))),
    Case("register_transposes", lambda x, y: x.t() + y, ((64, 136), (136, 64)), BFLOAT16, knobs=IN_REGISTERS),
    Case("register_transposes", lambda x, y: x.t() + y, ((40, 36), (36, 40)), knobs=IN_REGISTERS),
    Case("register_transposes", lambda x: x.mT.contiguous() * 2, ((2, 24, 80),), BFLOAT16, knobs=IN_REGISTERS),
)


def settings_of(case: Case, program: LoopProgram) -> list[tuple[str, Setting]]:
    """Every value but the rule's of every knob that the rules ask for."""
    choices = plan_kernel(program, GPU, case.knobs).plan.choices
    assert any(choice.knob.name.startswith(f"{case.rule}.") for choice in choices)
    assert all(choice.why for choice in choices)
    wanted = [choice for choice in choices if choice.key not in case.knobs]
    return [(choice.key, value) for choice in wanted for value in choice.knob.values if value != choice.rule]


def check(case: Case, call: Call, settings: list[tuple[str, Setting]]) -> tuple[int, int]:
    """How many of the settings compute the right values and how many are refused; there is nothing else."""
    right = refused = 0
    texts: set[str] = set()
    for key, value in settings:
        knobs = {**case.knobs, key: value}
        try:
            text = plan_kernel(call.program, GPU, knobs).text
        except IllegalPlan as error:
            assert error.what and error.cure
            refused += 1
            continue
        if text not in texts:
            call.check(CudaKernel(text), f"{key} = {value!r} is wrong")
            texts.add(text)
        right += 1
    return right, refused


@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(case) for case in CASES])
def test_settings_are_right_or_refused(number: int, scan_programs: Any, needs_intrinsics: None) -> None:
    """The three kernels of a rule share the settings among themselves."""
    case = CASES[number]
    call = case.call(scan_programs)
    right, _ = check(case, call, settings_of(case, call.program)[number % 3 :: 3])
    assert right


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_setting_is_right_or_refused(case: Case, scan_programs: Any, needs_intrinsics: None) -> None:
    call = case.call(scan_programs)
    settings = settings_of(case, call.program)
    right, refused = check(case, call, settings)
    assert right + refused == len(settings) and right > len(settings) // 3


def test_every_rule_has_three_kernels() -> None:
    assert {rule.name: sum(case.rule == rule.name for case in CASES) for rule in choose.RULES} == {
        r.name: 3 for r in choose.RULES
    }


def test_every_knob_is_on_the_page_of_its_device() -> None:
    folder = Path(choose.__file__).parents[1]
    knob = re.compile(r'^\w+ = Knob\("([\w.]+)"', re.MULTILINE)
    names = {path: set(knob.findall(path.read_text())) for path in folder.rglob("*.py")}
    cuda = set().union(*(found for path, found in names.items() if path.parent.name == "cuda"))
    assert len(cuda) > 25
    page, other = PAGE.read_text(), (PAGE.parent / "schedules" / "constants.md").read_text()
    assert {name for name in cuda if f"`{name}`" not in page} == set()
    # What is chosen before the text lies in one folder for both devices.
    assert {name for name in set().union(*names.values()) if f"`{name}`" not in page + other} == set()
