"""One case: compiled once for each contestant, compared with eager in float32, timed in turns."""

from __future__ import annotations

import math
import statistics
import time
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

import halide_backend
from halide_backend.bench.agreement import disagreement, tensors, widened
from halide_backend.bench.case import Case
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.copy_bandwidth import CopyBandwidth
from halide_backend.bench.roofline import Roofline
from halide_backend.bench.timing import SAMPLED_S, allocations, alternate, calls, copies, replays
from halide_backend.bench.work import Operations, bytes_moved
from halide_backend.cache_key import NAME
from halide_backend.inspection.compiled import Compiled


@dataclass
class Result:
    """What is known of one case.

    Attributes:
        name, group: the case's. held_back: whether its figures are out of sight while rules are tuned.
        right: whether the results of this backend are eager's; error: what is wrong otherwise.
        kernels: contestant -> backend -> kernels in the generated code. delegated: why this backend left kernels.
        ran: contestant -> backend -> kernels that a profile of one call showed; C++ kernels are not in one.
        compile_s: seconds of the first call. samples: microseconds of one call, every one that was taken.
        allocation: microseconds of memory for the results, which a call asks for, too; on a CPU.
        bytes_moved, operations: what the kernel does at least. roofline_s: the time that takes this machine at least.
    """

    name: str
    group: str = ""
    held_back: bool = False
    right: bool = False
    error: str = ""
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)
    delegated: dict[str, int] = field(default_factory=dict)
    ran: dict[str, dict[str, int]] = field(default_factory=dict)
    compile_s: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    allocation: list[float] = field(default_factory=list)
    bytes_moved: int = 0
    operations: int = 0
    roofline_s: float = 0.0

    def fail(self) -> None:
        """Keep the exception that is being handled as what is wrong."""
        self.right, self.error = False, traceback.format_exc()[-2000:]

    def median(self, contestant: str) -> float:
        """Microseconds, NaN where nothing was measured."""
        return statistics.median(self.samples[contestant]) if contestant in self.samples else math.nan

    def ratio(self, against: str) -> float:
        """The other's median over ours: above 1 this backend is faster."""
        return self.median(against) / self.median(NAME)

    def spread(self, against: str) -> tuple[float, float]:
        """Lower and upper quartile of the ratios of samples that were taken one after the other."""
        ratios = [theirs / ours for theirs, ours in zip(self.samples[against], self.samples[NAME], strict=True)]
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        lower, _, upper = statistics.quantiles(ratios, n=4)
        return lower, upper

    def share(self, *, with_allocation: bool = True) -> float:
        """Share of the roofline that this backend reaches, NaN without one; at most about 1.

        Without allocation the time that the results' memory takes is not counted.
        """
        seconds = self.median(NAME) / 1e6
        if not with_allocation and self.allocation:
            seconds -= statistics.median(self.allocation) / 1e6
        return self.roofline_s / seconds if self.roofline_s and seconds > 0 else math.nan


def evaluate(
    case: Case,
    contestants: Contestants,
    roofline: Roofline | CopyBandwidth | None = None,
    *,
    timed: bool = True,
    ours_first: bool = True,
) -> Result:
    """Check and time one case; whatever goes wrong is in the result.

    Whoever compiles first pays for what torch computes once for a function; without timing only this backend compiles.
    """
    result = Result(case.name, case.group, case.held_back)
    try:
        arguments = arguments_of(case)
        asked = contestants if timed else replace(contestants, against=())
        compiled, made = compile_case(case, asked, arguments, result, ours_first=ours_first)
        if compiled and roofline:
            result.roofline_s = roofline.seconds(result.bytes_moved, result.operations)
        if compiled and case.device == "cuda":
            result.samples = replayed(case, compiled, arguments)
        elif compiled:
            samplers = {name: calls(each.call, arguments) for name, each in compiled.items()}
            samples = alternate({**samplers, "": allocations(made)}, seconds=SAMPLED_S)
            result.allocation = samples.pop("")
            result.samples = samples
    except Exception:
        result.fail()
    return result


def arguments_of(case: Case) -> tuple[Tensor, ...]:
    """New operands, the same numbers whenever they are asked for."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    return case.arguments()


def compile_case(
    case: Case,
    contestants: Contestants,
    arguments: tuple[Tensor, ...],
    result: Result,
    *,
    ours_first: bool = True,
) -> tuple[dict[str, Compiled], list[Tensor]]:
    """Compile a case for each contestant and compare this backend's results with eager's; what is found is in `result`.

    Returns:
        By contestant what is to be timed, nothing if the results are wrong or a time would mean nothing; and the
        tensors that this backend made.

    Raises:
        Exception: whatever goes wrong while the case is compiled and called.
    """
    halide_backend.reset_stats()
    wide = widened(arguments)
    with Operations() as counted:
        wanted = case.kernel.function(*wide)
    result.operations = counted.count
    compiled: dict[str, Compiled] = {}
    made: list[Tensor] = []
    for name in contestants.names(ours_first=ours_first):
        compiled[name] = contestants.compile(name, case.kernel.function)
        begin = time.perf_counter()
        got = compiled[name](*(a.clone(memory_format=torch.preserve_format) for a in arguments))
        _wait(case)
        result.compile_s[name] = time.perf_counter() - begin
        compiled[name].check_code()
        result.kernels[name] = dict(compiled[name].kernels())
        if name == NAME:
            stats: Any = halide_backend.stats()
            result.delegated = dict(stats["delegation_reasons"])
            result.error = disagreement(got, wanted) if case.kernel.compared else ""
            result.bytes_moved = bytes_moved(arguments, got, gathers=case.kernel.gathers)
            made = tensors(got)
    result.right = not result.error
    if not (contestants.against and case.kernel.timed and result.right):
        return {}, made
    for name, each in compiled.items():
        result.ran[name] = dict(each.check_run(lambda each=each: each.call(*arguments)))  # type: ignore[misc]
    return compiled, made


def replayed(case: Case, compiled: Mapping[str, Compiled], arguments: tuple[Tensor, ...]) -> dict[str, list[float]]:
    """Samples on a GPU of what `compile_case` returned, by contestant, in microseconds."""
    operands = copies(arguments, case.arguments)
    return alternate({name: replays(each.call, operands) for name, each in compiled.items()})


def _wait(case: Case) -> None:
    if case.device == "cuda":
        torch.cuda.synchronize()
