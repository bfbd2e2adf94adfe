"""What is measured and told: agreement with eager, ratios, spread, shares of the roofline, figures by group."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from halide_backend.bench import contestants, suite, summary
from halide_backend.bench.agreement import disagreement, widened
from halide_backend.bench.case import Case, Kernel, Selection, cases
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.copy_bandwidth import CopyBandwidth
from halide_backend.bench.kernels import GROUPS
from halide_backend.bench.measurement import Result, evaluate
from halide_backend.bench.roofline import Roofline
from halide_backend.bench.work import Operations, bytes_moved
from halide_backend.build.target import Target

NAME = "halide_backend"


def result(name: str, ours: float, *theirs: float, group: str = "g", held_back: bool = False) -> Result:
    samples = {NAME: [ours] * 3, **{backend: [time] * 3 for backend, time in zip(("cpp", "eager"), theirs)}}
    return Result(name, group, held_back, right=True, samples=samples)


def test_a_ratio_above_one_says_that_this_backend_is_faster() -> None:
    one = Result("k", samples={"eager": [3.0, 4.0, 100.0], NAME: [2.0, 2.0, 1.0]})
    assert one.ratio("eager") == 2.0
    assert one.spread("eager") == (1.5, 100.0)


def test_a_share_of_the_roofline_counts_the_memory_of_results_or_does_not() -> None:
    one = Result("k", samples={NAME: [10.0]}, allocation=[5.0], roofline_s=4e-6)
    assert one.share() == pytest.approx(0.4)
    assert one.share(with_allocation=False) == pytest.approx(0.8)
    # Memory that took longer than the call says nothing of what is computed.
    slow = Result("s", samples={NAME: [10.0]}, allocation=[12.0], roofline_s=4e-6)
    assert math.isnan(slow.share(with_allocation=False))
    assert "median 0.40, 0.80 without the allocation" in "\n".join(summary._roofline([slow, one, slow]))
    assert math.isnan(Result("k", samples={NAME: [10.0]}).share())


def test_figures_are_geometric_means_by_group_and_against_the_fastest() -> None:
    seen = [result("a", 1, 2, 1), result("b", 1, 8, 3), result("c", 1, 0.5, 3, group="h")]
    found = summary.compared(seen, ("cpp", "eager"))
    assert found["cpp"]["g"].geometric_mean == pytest.approx(4)
    assert found["cpp"][summary.ALL].geometric_mean == pytest.approx(2)
    assert (found["cpp"][summary.ALL].lowest, found["cpp"][summary.ALL].enough) == (0.5, 2)
    assert found[summary.FASTEST]["g"].geometric_mean == pytest.approx(math.sqrt(3))
    assert summary.FASTEST not in summary.compared(seen, ("cpp",))


def test_what_is_held_back_is_told_as_a_whole() -> None:
    held_back = [result("secret", 1, 3, held_back=True), result("other", 1, 12, group="h", held_back=True)]
    told = summary.text([result("a", 1, 2)], held_back, ("cpp",))
    rows = [line.split() for line in told.splitlines()]
    assert ["cpp", "g", "1", "2.000", "2.000", "100.0", "%"] in rows
    assert ["cpp", "held", "back", "2", "6.000", "3.000", "100.0", "%"] in rows
    assert "secret" not in told


def test_all_groups_together_come_last() -> None:
    seen = [result("a", 1, 2), result("b", 1, 0.5, group="h")]
    told = summary.text(seen, [], ("cpp",)).splitlines()
    assert [line.split()[1] for line in told if line.startswith("cpp")] == ["g", "h", "all"]
    assert told[-1].split() == ["cpp", "all", "2", "1.000", "0.500", "50.0", "%"]


def test_a_result_unlike_eager_is_wrong() -> None:
    calls = []

    def changing(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x + len(calls)

    kernel = Kernel("changing", torch.compiler.disable(changing), lambda make: make.matrices(1))
    found = evaluate(Case("g", kernel, "small", "float32", "cpu"), Contestants(()), timed=False)
    assert not found.right


def test_operands_that_change_are_compared_with_what_they_were() -> None:
    kernel = Kernel("in_place", lambda x: x.add_(1).mul_(2), lambda make: (make(3, 5),))
    found = evaluate(Case("g", kernel, "small", "float32", "cpu"), Contestants(()), timed=False)
    assert (found.right, found.error) == (True, "")


def test_disagreements() -> None:
    x = torch.tensor([1.0, float("nan"), 3.0])
    assert disagreement(x, x.clone()) == ""
    assert "not close" in disagreement(x, x + 0.01)
    assert "not close" in disagreement(x, x.nan_to_num(0))
    assert "shape (3,) instead of (2,)" in disagreement(x, x[:2])
    assert disagreement((x, x), x) == "2 results instead of 1"
    assert "result 1: torch.int64 results differ" in disagreement((x, torch.arange(3)), (x, torch.arange(3) + 1))
    assert disagreement(x.bfloat16(), x * 1.01) == ""
    assert "not close" in disagreement(x.half(), x * 1.02)
    (wide,) = widened((x.bfloat16(),))
    assert wide.dtype == torch.float32


def test_rounding_of_sums_is_judged_beside_what_is_not_zero() -> None:
    sums = torch.zeros(1000, 1000)
    sums[1] = torch.linspace(-8000, 8000, 1000)
    off = sums.clone()
    off[1, 500] += 0.002
    assert disagreement(off, sums) == ""
    off[1, 500] += 2
    assert "not close" in disagreement(off, sums)


def test_the_least_that_a_kernel_does() -> None:
    x, table, places = torch.ones(4, 8), torch.ones(1000, 8), torch.tensor([1, 2, 3])
    with Operations() as counted:
        y = (x.t() + 1).exp()
    assert counted.count == 64
    assert bytes_moved((x,), y, gathers=False) == 256
    assert bytes_moved((table, places), table[places], gathers=True) == 2 * 96 + 24


def test_the_roofline_is_what_loops_of_this_machine_reach() -> None:
    found = Roofline(Target.host(), 1)
    # More than a processor of 2010 has, less than any has on one core.
    assert 5e9 < found.peak < 1e12
    assert 1e9 < found.bandwidth(1 << 16) < 2e12
    assert found.bandwidth(70_000) == found.bandwidth(1 << 16)
    bytes_bound, compute_bound = found.seconds(1 << 16, 1), found.seconds(1, 1 << 30)
    assert bytes_bound == pytest.approx((1 << 16) / found.bandwidth(1 << 16))
    assert compute_bound == pytest.approx((1 << 30) / found.peak)
    assert found.to_json()["copy_gb_s"].keys() == {"16384", "65536"}


def test_smaller_vectors_have_a_lower_peak() -> None:
    """The loops use the instructions of their target: 16 bytes and no FMA against what this machine has."""
    if "avx512f" not in Target.host().requires():
        pytest.skip("the margin is that of AVX-512 over SSE")
    small, large = (Roofline(target, 1).peak for target in (Target.named("sse41"), Target.host()))
    assert large > 2 * small


@pytest.mark.parametrize("name", ["halide_backend", "itself", "cpp"])
def test_what_is_tuned_on_this_machine_is_not_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(contestants, "compile_for", lambda *_, options, **__: asked.append(options))
    Contestants(("itself", "cpp")).compile(name, torch.relu)
    assert asked == [{} if name == "cpp" else {"halide_backend.tune": "never"}]


def test_the_bound_of_a_gpu_is_the_bandwidth_of_a_copy() -> None:
    copy = CopyBandwidth()
    copy.__dict__["rate"] = 4e12  # which is measured there
    assert copy.seconds(bytes_moved=2_000_000_000, operations=10**15) == 5e-4
    assert copy.to_json() == {"copy_gb_s": 4000.0}


def test_kernels_far_below_the_bandwidth_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 10 us a copy of the same bytes would take 0.5 us, 2 us."""
    shares = iter([0.5e-6, 2e-6])

    def evaluated(case: Any, *_: Any, **__: Any) -> Result:
        return Result(case.name, right=True, samples={NAME: [10.0], "eager": [10.0]}, roofline_s=next(shares))

    monkeypatch.setattr(suite, "_check", lambda request: None)
    monkeypatch.setattr(suite, "_controls", lambda request: [])
    monkeypatch.setattr(suite, "evaluate", evaluated)
    chosen = [case for case in cases(GROUPS, "cuda", Selection()) if not case.held_back][:2]
    monkeypatch.setattr(suite, "chosen_cases", lambda request: chosen)
    assert suite.run(suite.Request("cuda", Contestants(("eager",)), Selection())) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("below 0.1"))
    assert line == f"below 0.1 of the bandwidth of a copy: {chosen[0].name} 0.050"
