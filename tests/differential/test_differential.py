"""90 random programs against eager, a quarter with dynamic shapes, and each of their kernels between inaccessible pages.

A failure names its seed; `python -m tests.differential --programs 1 --seed N --show --shrink` repeats it and makes it
small. The long run is `python -m tests.differential --programs 20000 --jobs 2 --record FILE --resume`.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .check import check
from .generator import generate, program_of_seed
from .kernels import keeping_texts

ROOT = Path(__file__).parents[2]

#: Programs of one test: enough to share the start of a process that guards their kernels.
CHUNK = 15
FIRST_SEED = 100_000
PROGRAMS = 90


@pytest.fixture(autouse=True)
def own_store(kernel_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(kernel_store))


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + PROGRAMS, CHUNK))
def test_random_programs(first: int, tmp_path: Path) -> None:
    problems = []
    with keeping_texts(tmp_path):
        for seed in range(first, first + CHUNK):
            program = program_of_seed(seed)
            outcome = check(program)
            if outcome.kind not in ("equal", "eager", "inductor") or outcome.delegated:
                problems.append(f"seed {seed}: {outcome.kind} {outcome.message} {outcome.delegated}\n{program}")
    assert not problems, "\n".join(problems)
    assert guarded(tmp_path)["kernels"] > CHUNK


def guarded(folder: Path) -> dict[str, int]:
    """Run the kernels in `folder` between guard pages; returns how many there were."""
    command = [sys.executable, "-m", "tests.differential.guard", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    report: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert "not built" not in report, done.stdout
    return report


class DataDraw:
    """Choices made by hypothesis, which knows how to make them smaller."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_programs_that_hypothesis_draws(data: st.DataObject) -> None:
    program = generate(DataDraw(data))
    outcome = check(program)
    assert outcome.kind in ("equal", "eager", "inductor"), f"{outcome.message}\n{program}"


def test_a_record_is_gone_on_from(tmp_path: Path) -> None:
    from .record import Record

    path = tmp_path / "record.json"
    record = Record("first", 10)
    fine = {"kind": "equal", "delegated": {}, "native": 3}
    assert not record.add({**fine, "seed": 12}) and not record.add({**fine, "seed": 10})
    assert record.add({"kind": "mismatch", "delegated": {}, "seed": 15, "native": 2})
    path.write_text(json.dumps(record.to_json()))
    again = Record.read(path, "second")
    assert list(again.remaining(8)) == [11, 13, 14, 15, 16, 17]
    assert (again.totals["programs"], again.totals["native"]) == (2, 6)
    assert ([find["seed"] for find in again.earlier], again.finds) == ([15], [])
    assert not again.add({**fine, "seed": 15})
    assert (again.totals["programs"], again.next, again.missing) == (3, 16, {11, 13, 14})
    path.write_text(json.dumps({**record.to_json(), "sources": "0" * 64}))
    with pytest.raises(ValueError, match="other sources"):
        Record.read(path, "third")


def test_a_seed_is_a_program() -> None:
    assert str(program_of_seed(7)) == str(program_of_seed(7))
    assert len({str(program_of_seed(seed)) for seed in range(20)}) == 20


def test_a_printed_program_can_be_read_back() -> None:
    from .program import parse

    for seed in range(30):
        program = program_of_seed(seed)
        again = parse(str(program))
        assert ast.dump(ast.parse(again.source())) == ast.dump(ast.parse(program.source()))
        facts = (program.inputs, program.gradients, program.dynamic)
        assert (again.inputs, again.gradients, again.dynamic) == facts


def test_a_wrong_result_is_noticed_and_made_small() -> None:
    """The comparison and the shrinker, with a program that is made wrong on purpose."""
    from .comparison import compare
    from .execution import outputs
    from .program import Program
    from .shrinking import shrink

    def fails(program: Program) -> bool:
        arguments = [tensor.make() for tensor in program.inputs]
        expected = outputs(program.function(), arguments, False)
        wrong = Program(
            program.inputs,
            tuple(
                type(line)(line.text.replace(".tanh()", ".sin()"), line.target, line.names) for line in program.lines
            ),
            program.outputs,
        )
        got = outputs(wrong.function(), [tensor.make() for tensor in program.inputs], False)
        return bool(compare(program, got, expected).problems)

    from .program import parse

    program = parse(
        """
# a0: (5, 9) float32 normal contiguous seed 3
# a1: (5, 9) float32 normal contiguous seed 4
def program(a0, a1):
    v0 = a0 + a1
    v1 = v0.tanh()
    v2 = a1.exp()
    v3 = v1 + v2
    return v3, v2
"""
    )
    assert fails(program)
    small = shrink(program, fails)
    assert [line.text for line in small.lines] == ["v0.tanh()"]


@pytest.mark.parametrize("error, found", [(0.0, False), (4e-3, True)])
def test_rounding_explains_no_more_than_rounding(error: float, found: bool) -> None:
    """A float16 value that is not rounded in one place and is in another (seed 41), and one that is simply wrong."""
    from .comparison import compare
    from .program import parse

    program = parse(
        """
# a0: (15, 1) float16 normal contiguous seed 3
def program(a0):
    v0 = a0.square()
    v1 = v0 - v0.mean(1, keepdim=True)
    return v1,
"""
    )
    x = program.inputs[0].make()
    exact = x.double().square()
    got = (exact * (1 + error) - exact.half().double()).half()
    assert not torch.equal(got, torch.zeros_like(got))
    assert bool(compare(program, [got, x], [torch.zeros_like(got), x]).problems) == found


def test_rounding_explains_the_largest_rounding() -> None:
    """Rows as far from eager's as half a unit in the last place of the mean allows (seed 10378)."""
    from .comparison import compare
    from .program import parse

    program = parse(
        """
# a0: (1000, 1) bfloat16 normal contiguous seed 3
def program(a0):
    v0 = a0 + a0 * 2
    v1 = v0 - v0.mean(1, keepdim=True)
    return v1,
"""
    )
    x = program.inputs[0].make()
    got = (3 * x.float() - (3 * x.float()).bfloat16().float()).bfloat16()
    comparison = compare(program, [got, x], [torch.zeros_like(got), x])
    assert comparison.problems == []
    assert comparison.unproved > 400


@pytest.mark.parametrize("times, found", [(1, False), (6, True)])
def test_rounding_of_differences(times: float, found: bool) -> None:
    """Equal rows less their rounded mean, which few draws move all the same way (seed 1021121), and six times that."""
    from .comparison import compare
    from .program import parse

    program = parse(
        """
# a0: (17, 9000) bfloat16 normal expanded seed 3
def program(a0):
    v0 = a0.abs() + a0.abs() * 2
    v1 = v0 - v0.mean(0, keepdim=True)
    return v1,
"""
    )
    x = program.inputs[0].make()
    exact = 3 * x.float().abs()
    got = (times * (exact - exact.bfloat16().float())).bfloat16()
    assert bool(compare(program, [got, x], [torch.zeros_like(got), x]).problems) == found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("error, found", [(1.4e-5, False), (1e-2, True)])
def test_rounding_of_a_sum_that_cancels(error: float, found: bool, dtype: str) -> None:
    """The sum of all rows of layer_norm is 0 but for rounding, in any order of its 527 terms (seed 1030034); as the only
    floating-point type of a program, and beside another one."""
    from .comparison import compare
    from .program import parse

    program = parse(
        f"""
# a0: (31, 17) float32 normal contiguous seed 1418295099
# a1: (3,) {dtype} normal contiguous seed 5
def program(a0, a1):
    v0 = F.layer_norm(a0 + a0.sum(dim=(0,)), (17,))
    v1 = v0.sum(dim=(0, 1), keepdim=True)
    v2 = a1 + 1
    return v1, v2,
"""
    )
    arguments = [tensor.make() for tensor in program.inputs]
    expected = [*program.function()(*arguments), *arguments]
    got = [expected[0] + error, *expected[1:]]
    assert bool(compare(program, got, expected).problems) == found


@pytest.mark.parametrize("error, found", [(1e-5, False), (1e-4, True)])
def test_rounding_in_gradients(error: float, found: bool) -> None:
    """Element 99 of a gradient whose terms cancel (seed 942683), as far off as the mean of 65 rows explains, and more."""
    from .comparison import compare
    from .execution import outputs
    from .program import parse

    program = parse(
        """
# a0: (255,) float32 normal permuted seed 1154305314
# a1: (65, 255) bool whole contiguous seed 916306155
# with gradients
def program(a0, a1):
    v0 = torch.where(a1, F.hardswish(a0), a0)
    v1 = torch.std(v0.abs().sqrt(), dim=(0,), keepdim=True)
    return v1,
"""
    )
    expected = outputs(program.function(), [tensor.make() for tensor in program.inputs], gradients=True)
    got = [result.clone() for result in expected]
    got[1][99] *= 1 + error
    assert bool(compare(program, got, expected).problems) == found


def test_partial_sums_of_vectors_that_overflow_are_told_apart() -> None:
    """Seed 7785: a sum of 63 numbers, with infinity in one partial sum and -infinity from -3.3e38 twice in another."""
    from .check import check
    from .program import Given, Line, Program

    values = torch.ones(63, 1)
    values[38], values[51], values[55] = float("inf"), -3.3e38, -3.3e38
    program = Program((Given("a0", values),), (Line("a0.sum(dim=(0,))", "v0", ("a0",)),), ("v0",))
    outcome = check(program)
    assert outcome.kind in ("equal", "inductor"), outcome.message


def test_what_runs_too_late_without_fusion_is_inductors() -> None:
    """Seed 97138: a3 is set from a concatenation's first part after index_add has changed it, unless they are fused."""
    from .check import check
    from .program import parse

    outcome = check(
        parse(
            """
# a1: (1, 1) int32 whole contiguous seed 116632065
# a3: (17,) int64 index:1 contiguous seed 202653996
# a4: (14,) int64 index:51 contiguous seed 1547394956
# a5: (14,) int64 whole permuted seed 1207296828
def program(a1, a3, a4, a5):
    v4 = a1[a3 - 1]
    v5 = torch.maximum(a3, a3)
    a3.add_(v5)
    v9 = torch.cat([a3, a3, v5], 0)
    v10 = v9.index_add(0, a4, a5, alpha=2)
    return v4, v10,
"""
        )
    )
    assert outcome.kind in ("equal", "inductor"), outcome.message
