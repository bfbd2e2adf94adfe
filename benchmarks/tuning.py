"""What tuning gains on the suite of `halide-backend bench`.

    python benchmarks/tuning.py capture RECORDS.json [--device cpu] [--only TEXT ...] [--sizes SIZE ...]
    python benchmarks/tuning.py tune RECORDS.json SCHEDULES.toml --budget 30m [--threads 2] [--device cpu]
    python benchmarks/tuning.py evaluate SCHEDULES.toml [--json FILE] [--threads 2] [--device cpu] [--only TEXT ...]

`capture` compiles every case once and writes the records of its kernels. `tune` searches, all kernels counting alike,
with operands in the caches where they fit, as the suite times them, and prints what `halide-backend tune` does; trials
go to SCHEDULES.toml.trials.jsonl, and the same command goes on where they end. `evaluate` compiles every case twice in
a fresh process, with the rules and with the schedules, times both in turns, and prints the geometric means of the
gains: of all cases, and of the ten that are furthest from their roofline with the rules. Cases without a kernel of this
backend, such as scans on a CPU, which Inductor leaves to ATen, have no schedule and are left out. The machine has to be
quiet.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import halide_backend
from halide_backend.bench.agreement import disagreement, widened
from halide_backend.bench.case import Case, Selection, cases
from halide_backend.bench.kernels import GROUPS
from halide_backend.bench.provenance import provenance
from halide_backend.bench.roofline import Roofline
from halide_backend.bench.timing import SAMPLED_S, alternate, calls, copies, replays
from halide_backend.bench.work import Operations, bytes_moved
from halide_backend.build.target import Target
from halide_backend.cache_key import NAME
from halide_backend.inspection.compiled import compile_for

#: Cases that are furthest from their roofline.
FURTHEST = 10

#: Samples of either.
_ROUNDS = 21

#: A gain below which a case counts as slower.
SLOWER = 0.97


@dataclass(frozen=True)
class Gain:
    """Of one case: microseconds of a call with the rules and with schedules, and its share of the roofline with the
    rules, 0 on a GPU."""

    case: str
    rules: float
    tuned: float
    share: float

    @property
    def gain(self) -> float:
        """The rules' time over the new one."""
        return self.rules / self.tuned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function, files in (
        ("capture", capture, ("records",)),
        ("tune", tune, ("records", "schedules")),
        ("evaluate", evaluate, ("schedules",)),
    ):
        command = commands.add_parser(name)
        for file in files:
            command.add_argument(file)
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        command.add_argument("--threads", type=int, default=0)
        command.add_argument("--only", nargs="+", default=[])
        command.add_argument("--sizes", nargs="+", default=[])
        command.add_argument("--dtypes", nargs="+", default=[])
        command.add_argument("--budget", default="30m")
        command.add_argument("--strategy", default="model")
        command.add_argument("--json", default="")
        command.set_defaults(run=function)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    asked.run(asked)


def capture(asked: argparse.Namespace) -> None:
    """Write the records of all cases; each has the name of its case."""
    documents: list[dict[str, Any]] = []
    for case in _cases(asked):
        halide_backend.reset_stats()
        torch._dynamo.reset()
        try:
            compile_for(NAME, case.kernel.function, options={"halide_backend.tune": "never"})(*_arguments(case))
        except Exception as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        found = [record.to_json() for record in halide_backend.records()]
        documents += [{**record, "name": case.name} for record in found if record["delegation"] is None]
    Path(asked.records).write_text(json.dumps(documents))
    print(f"{len(documents)} kernels")


def tune(asked: argparse.Namespace) -> None:
    """Search, and write the schedules of the kernels that became faster."""
    from halide_backend.tune import run
    from halide_backend.tune.command import seconds
    from halide_backend.tune.tunable_kernel import kernels_of

    request = run.Request(
        source=asked.records,
        budget=seconds(asked.budget),
        device=asked.device,
        strategy=asked.strategy,
        threads=asked.threads,
        cold=asked.device == "cuda",
        output=f"{asked.schedules}.trials.jsonl",
        schedules=asked.schedules,
        equally=True,
        resume=True,
    )
    kernels = kernels_of(json.loads(Path(asked.records).read_text()), asked.device)
    found = run.tuned(request, kernels)
    print(run.summary(found))
    left = sum(not each.complete for each in found)
    print(
        f"{left} of {len(found)} kernels have settings that were not tried" + "; the same command goes on" * bool(left)
    )


def evaluate(asked: argparse.Namespace) -> None:
    """Time all cases with the rules and with the schedules, in turns."""
    roofline = Roofline(Target.host(), torch.get_num_threads()) if asked.device == "cpu" else None
    found: list[Gain] = []
    for case in _cases(asked):
        if case.kernel.timed:
            gain = _gain(case, asked.schedules, roofline)
            if gain is None:
                print(f"{case.name}: no kernel", flush=True)
                continue
            found.append(gain)
            print(f"{gain.case}: {gain.rules:.1f} us, {gain.tuned:.1f} us, {gain.gain:.3f}", flush=True)
    furthest = sorted(found, key=lambda each: each.share)[:FURTHEST]
    figures = {
        "cases": len(found),
        "geometric_mean": _mean(found),
        "furthest_geometric_mean": _mean(furthest),
        "furthest": [each.case for each in furthest],
        "slower": [each.case for each in found if each.gain < SLOWER],
        "lowest": min(each.gain for each in found),
    }
    print(json.dumps(figures, indent=1))
    if asked.json:
        rows = [{**asdict(each), "gain": each.gain} for each in found]
        document = {**provenance(asked.device), **figures, "threads": torch.get_num_threads(), "gains": rows}
        Path(asked.json).write_text(json.dumps(document, indent=1) + "\n")


def _gain(case: Case, schedules: str, roofline: Roofline | None) -> Gain | None:
    """Of one case; None if there is no kernel of this backend."""
    arguments = _arguments(case)
    with Operations() as counted:
        wanted = case.kernel.function(*widened(arguments))
    options = {
        "rules": {"halide_backend.tune": "never", "halide_backend.schedule_files": ()},
        "tuned": {"halide_backend.tune": "never", "halide_backend.schedule_files": (schedules,)},
    }
    compiled = {name: compile_for(NAME, case.kernel.function, options=given) for name, given in options.items()}
    share = 0.0
    halide_backend.reset_stats()
    for name, each in compiled.items():
        got = each(*(a.clone(memory_format=torch.preserve_format) for a in arguments))
        if case.kernel.compared and (difference := disagreement(got, wanted)):
            raise SystemExit(f"{case.name} is wrong with {name}: {difference}")
        share = float(bytes_moved(arguments, got, gathers=case.kernel.gathers))
    if all(record.delegation for record in halide_backend.records()):
        return None
    if case.device == "cuda":
        operands = copies(arguments, case.arguments)
        samples = alternate({name: replays(each.call, operands) for name, each in compiled.items()}, _ROUNDS)
    else:
        samplers = {name: calls(each.call, arguments) for name, each in compiled.items()}
        samples = alternate(samplers, _ROUNDS, SAMPLED_S)
    rules, tuned = (statistics.median(samples[name]) for name in options)
    least = roofline.seconds(int(share), counted.count) if roofline else 0.0
    return Gain(case.name, rules, tuned, least * 1e6 / rules)


def _cases(asked: argparse.Namespace) -> list[Case]:
    return list(cases(GROUPS, asked.device, Selection(tuple(asked.only), tuple(asked.sizes), tuple(asked.dtypes))))


def _arguments(case: Case) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(zlib.crc32(case.name.encode()))
    return case.arguments()


def _mean(found: Sequence[Gain]) -> float:
    return math.exp(statistics.fmean(math.log(each.gain) for each in found))


if __name__ == "__main__":
    main()
