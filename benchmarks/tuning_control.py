"""Kernels measured against themselves: how often the tuner would see a winner where there is none.

    python benchmarks/tuning_control.py --runs 200 --json benchmarks/results/tuning-control.json

Each run compiles the rules' kernel of one program twice, as two texts, and holds a sequential test between them.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from halide_backend.build.target import Target
from halide_backend.inspection import machine
from halide_backend.schedule.device import device_of
from halide_backend.tune.capture import records_of
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.contest import Contest
from halide_backend.tune.measurement.measurer import Failed, Measurer
from halide_backend.tune.measurement.sequential_test import Interval
from halide_backend.tune.space import RULES, Space
from halide_backend.tune.tunable_kernel import kernels_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--source", default=str(Path(__file__).with_name("tuning_model.py")))
    parser.add_argument("--json", default="")
    asked = parser.parse_args()
    target = Target.host()
    device = device_of(target)
    kernels = kernels_of(records_of(asked.source, "cpu"), "cpu")
    found = []
    with (
        Compilation(target) as compilation,
        Measurer(cores=sorted(os.sched_getaffinity(0))[: asked.threads]) as measurer,
    ):
        for number in range(asked.runs):
            kernel = kernels[number % len(kernels)]
            text = Space(kernel.program, device).kernel(RULES).text
            built = [compilation.begin(f"{text}\n# {number} {side}\n", kernel.name).wait() for side in "ab"]
            one, other = (each[0] for each in built if not isinstance(each, Failed))
            cold = bool(number // len(kernels) % 2)
            contest = Contest(
                kernel.program,
                kernel.digest,
                one,
                one,
                other,
                threads=asked.threads,
                cold=cold,
                l2_bytes=device.l2_bytes,
            )
            measured = measurer.hold(contest, kernel.name)
            if isinstance(measured, Failed) or measured.wrong:
                raise SystemExit(f"{kernel.name}: {measured}")
            ratio = Interval.of(measured.ratios).median
            found.append(
                {
                    "kernel": kernel.name,
                    "cold": cold,
                    "pairs": len(measured.samples),
                    "ratio": ratio,
                    "won": measured.better,
                }
            )
    wins, pairs = sum(bool(each["won"]) for each in found), sum(int(str(each["pairs"])) for each in found)
    print(f"{wins} false winners in {len(found)} runs, {pairs / len(found):.1f} pairs a run")
    if asked.json:
        Path(asked.json).write_text(
            json.dumps({**machine.facts(), "threads": asked.threads, "wins": wins, "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
