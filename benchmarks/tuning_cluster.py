"""Trials that workers of a Ray cluster make in a time, of kernels whose tuning is bound by compiling: that of
candidates alone takes two thirds of one worker's time, which is printed.

    python benchmarks/tuning_cluster.py [--seconds 30] [--workers 1 4] [--json FILE]

The workers are nodes of one core each of a cluster on this machine, each number of them in a cluster of its own. The
time begins when all have started. Kernels are two layer norms of softmaxes over rows of different lengths. Nodes share
out the cores of the machine: of four nodes on two cores, two have the first one. The machine has to be quiet.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

import halide_backend
from halide_backend.bench.provenance import provenance
from halide_backend.cache_key import NAME
from halide_backend.inspection.compiled import compile_for
from halide_backend.tune.ray_session import RaySession
from halide_backend.tune.session import Search
from halide_backend.tune.trial_log import Recorded, TrialLog, read
from halide_backend.tune.tunable_kernel import TunableKernel, kernels_of

#: Lengths of rows: as many kernels, each of which has hundreds of settings.
_LENGTHS = (200, 300, 400, 500, 600, 700, 800, 900)

#: Norms in one kernel: the least with which compiling takes two thirds of one worker's time.
_NORMS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--json", default="")
    asked = parser.parse_args()
    kernels = _kernels()
    found = {workers: _trials(workers, kernels, asked.seconds) for workers in asked.workers}
    for workers, (trials, seconds, compiling) in found.items():
        rate = f"{trials / seconds:.2f} a second, {compiling / seconds / workers:.2f} of a worker's time is compilation"
        print(f"{workers} workers: {trials} trials in {seconds:.1f} s, {rate}")
    if asked.json:
        rows = [
            {"workers": w, "trials": trials, "seconds": seconds, "compiling": compiling}
            for w, (trials, seconds, compiling) in found.items()
        ]
        Path(asked.json).write_text(json.dumps({**provenance("cpu"), "runs": rows}, indent=1) + "\n")


def _kernels() -> list[TunableKernel]:
    halide_backend.reset_stats()
    for length in _LENGTHS:
        torch._dynamo.reset()
        compile_for(NAME, _norms)(torch.randn(64, length))
    return kernels_of([record.to_json() for record in halide_backend.records()], "cpu")


def _norms(x: torch.Tensor) -> torch.Tensor:
    for _ in range(_NORMS):
        x = torch.nn.functional.layer_norm(torch.softmax(x, -1), x.shape[-1:])
    return x


def _trials(workers: int, kernels: list[TunableKernel], seconds: float) -> tuple[int, float, float]:
    """Trials, the seconds that they took, and those of compilation among them, of all workers together."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(workers - 1):
        cluster.add_node(num_cpus=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trials.jsonl")
        with TrialLog(path) as log, RaySession(cluster.address, "cpu", log, threads=1) as session:
            begins: list[float] = []
            search = Search("random", seconds)
            session.run(kernels, search, Recorded(), lambda line: begins.append(time.monotonic()), lambda *found: None)
            # The first line is said when all workers have started.
            took = time.monotonic() - begins[0]
        trials = [trial for trial in read(path).trials if trial.settings]
    ray.shutdown()
    cluster.shutdown()
    return len(trials), took, sum(trial.compile_seconds for trial in trials)


if __name__ == "__main__":
    main()
