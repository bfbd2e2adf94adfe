"""All cases of a benchmark, and what is told of them: a line for each, a summary, JSON, a plot."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from halide_backend import terminal
from halide_backend.bench import recorded, summary
from halide_backend.bench.case import Case, Selection, cases
from halide_backend.bench.contestants import ITSELF, Contestants
from halide_backend.bench.control import LEAST, Control, control
from halide_backend.bench.copy_bandwidth import SLOW, CopyBandwidth
from halide_backend.bench.kernels import GROUPS
from halide_backend.bench.measurement import Result, evaluate
from halide_backend.bench.plot import plot
from halide_backend.bench.provenance import provenance
from halide_backend.bench.roofline import Roofline
from halide_backend.build.target import Target
from halide_backend.cache_key import NAME
from halide_backend.errors import HalideBackendError, WrongBackendError
from halide_backend.inspection.compiled import EAGER


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        seconds: time after which no case begins. threads: of kernels on a CPU; torch's default if 0.
        held_back: whether the figures of held-back cases are shown one by one.
        json_file, plot_file: where to write; nowhere if empty.
        recorded: a file of recorded kernels, which are run instead of the suite's; the suite's if empty.
    """

    device: str
    contestants: Contestants
    selection: Selection
    timing: bool = True
    seconds: float = math.inf
    threads: int = 0
    held_back: bool = False
    json_file: str = ""
    plot_file: str = ""
    recorded: str = ""


def show(request: Request) -> int:
    """Print the cases of a request, with their groups."""
    chosen = chosen_cases(request)
    rows = [(case.group, case.name, "held back" if case.held_back else "") for case in chosen]
    print(terminal.table(("group", "case", ""), rows, "lll"))
    kernels = {case.kernel.name for case in chosen}
    print(f"{len(chosen)} cases of {len(kernels)} kernels, {sum(case.held_back for case in chosen)} held back")
    return 0


def run(request: Request) -> int:
    """Run the cases, telling of each as it is done; 1 if a result was wrong.

    Raises:
        HalideBackendError: the device is not there, or has no such other backend.
        WrongBackendError: a backend that was deliberately slowed is as fast as without: the figures would mean nothing.
    """
    _check(request)
    chosen = chosen_cases(request)
    if request.threads:
        torch.set_num_threads(request.threads)
    begin = time.perf_counter()
    roofline: Roofline | CopyBandwidth | None = None
    controls = []
    if request.timing:
        controls = _controls(request)
        if request.device == "cpu":
            roofline = Roofline(Target.named(request.contestants.target), torch.get_num_threads())
        else:
            roofline = CopyBandwidth()
    results: list[Result] = []
    for case in chosen:
        if time.perf_counter() - begin > request.seconds:
            print(f"{len(chosen) - len(results)} cases left out after {request.seconds:g} s")
            break
        results.append(_told(case, request, roofline, ours_first=len(results) % 2 == 0))
    seen, held_back = ([r for r in results if r.held_back == hidden] for hidden in (False, True))
    against = request.contestants.against
    print(summary.text(seen, held_back, against))
    if slow := [result for result in seen if result.share() < SLOW] if request.device == "cuda" else []:
        names = ", ".join(f"{result.name} {result.share():.3f}" for result in slow)
        print(f"below {SLOW} of the bandwidth of a copy: {names}")
    if request.json_file:
        document = to_document(request, results, [each.to_json() for each in controls], roofline)
        Path(request.json_file).write_text(json.dumps(document, indent=1) + "\n")
    if request.plot_file:
        plot(results if request.held_back else seen, against[0], request.plot_file)
    return 0 if all(result.right for result in results) else 1


def to_document(
    request: Request,
    results: Sequence[Result],
    controls: Sequence[dict[str, Any]],
    roofline: Roofline | CopyBandwidth | None,
) -> dict[str, Any]:
    """What a file says of a run, as benchmarks/results/README.md explains it."""
    seen, held_back = ([r for r in results if r.held_back == hidden] for hidden in (False, True))
    against = request.contestants.against
    return {
        "machine": provenance(request.device, request.contestants.target),
        "against": list(against),
        "controls": list(controls),
        "roofline": roofline.to_json() if roofline else {},
        "figures": summary.to_json(seen, against),
        "held_back_figures": summary.to_json(held_back, against),
        "results": list(map(asdict, seen)),
        "held_back_results": list(map(asdict, held_back)),
    }


def chosen_cases(request: Request) -> list[Case]:
    """The cases of a request, in the order in which they run.

    Raises:
        HalideBackendError: there are none, or the file of recorded kernels cannot be read.
    """
    groups = recorded.groups(recorded.read(Path(request.recorded)), request.device) if request.recorded else GROUPS
    if chosen := list(cases(groups, request.device, request.selection)):
        return chosen
    raise HalideBackendError("no case is selected", where="bench", cure="`halide-backend bench --list` shows all.")


def _check(request: Request) -> None:
    if request.device == "cuda" and not torch.cuda.is_available():
        raise HalideBackendError("there is no CUDA device", where="bench --device cuda", cure="Use --device cpu.")
    request.contestants.check(request.device)
    if request.contestants.target:
        Target.named(request.contestants.target).check_runs_here()


def _controls(request: Request) -> list[Control]:
    """One for every backend that is timed, which takes care of what is slow in a process at first, too."""
    backends = dict.fromkeys(
        NAME if name == ITSELF else name for name in (NAME, *request.contestants.against) if name != EAGER
    )
    found = []
    for backend in backends:
        each = control(backend, request.device)
        print(
            f"control: {backend} against itself {each.alike:.3f}, against itself slowed {each.slowed:.1f}", flush=True
        )
        if each.slowed < LEAST:
            raise WrongBackendError(
                f"a kernel with ten times the work takes {each.slowed:.2f} of the time",
                where=f"bench, control of {backend}",
                cure="Report it: callables run each other's code, and no figure would mean anything.",
            )
        found.append(each)
    return found


def _told(case: Case, request: Request, roofline: Roofline | CopyBandwidth | None, *, ours_first: bool) -> Result:
    result = evaluate(case, request.contestants, roofline, timed=request.timing, ours_first=ours_first)
    state = "right" if result.right else "WRONG"
    reasons = f" {result.delegated}" if result.delegated else ""
    kernels = result.kernels.get(NAME, {}).get(NAME, 0)
    print(f"{result.name:44} {state} native {kernels}{reasons}{_times(result, request)}", flush=True)
    if result.error:
        print("    " + result.error.replace("\n", "\n    "), flush=True)
    return result


def _times(result: Result, request: Request) -> str:
    if not result.samples:
        return ""
    if result.held_back and not request.held_back:
        return "  held back"
    parts = [f"  {result.median(NAME):10.1f} us"]
    for name in request.contestants.against:
        low, high = result.spread(name)
        parts.append(f"{name} {result.ratio(name):.3f} [{low:.2f} {high:.2f}]")
    if not math.isnan(result.share()):
        parts.append(f"roofline {result.share():.2f} ({result.share(with_allocation=False):.2f})")
    return "  ".join(parts)
