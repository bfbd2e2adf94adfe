"""One process of the demo: `python -m halide_backend.demonstration.session`.

A fresh process per figure is what makes "cold compile" and "second process" mean what they say.
The parent (`session_process.py`) writes one `Task` as JSON to stdin; lines {"progress": text} and
last {"result": ...} come back on stdout.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from halide_backend.demonstration.figures import Check
    from halide_backend.demonstration.workload import Compiler, Trial, Workload

OURS = "halide_backend"
EAGER = "eager"
CPP = "cpp"
#: Seconds of alternating rounds per row.
TIMED_SECONDS, TIMED_SECONDS_QUICK = 10.0, 1.5


@dataclass(frozen=True)
class Task:
    """What one session does.

    `kind` is "start" (compile or load with the one backend in `caches`, and time it) or "measure"
    (run eager and all of `caches`, compare and time them). `caches` maps a backend to the folder
    that holds all its caches. `pictures` is the folder for pictures, or "".
    """

    kind: str
    row: str
    caches: dict[str, str]
    quick: bool
    audit: bool
    pictures: str


def main() -> None:
    """Read a task from stdin, do it, answer on stdout; whatever else prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = Task(**json.load(sys.stdin))

    started = None
    if task.audit:
        # A CUDA build of torch asks ldconfig for libraries while it is imported; the audit is of compiling and running.
        importlib.import_module("torch")
        from halide_backend.inspection import process_audit

        started = process_audit.watch()

    from halide_backend.demonstration.catalogue import workloads

    workload = next(w for w in workloads() if w.name == task.row)
    result = _start(workload, task) if task.kind == "start" else _measure(workload, task, answers)
    result["processes"] = started.to_json() if started is not None else {}
    _answer(answers, {"result": result})


def _answer(answers: TextIO, line: dict[str, object]) -> None:
    print(json.dumps(line), file=answers, flush=True)


def _compiler(backend: str, cache: str) -> Compiler:
    from halide_backend.inspection.compiled import compile_for

    if backend != EAGER:
        _use_cache(cache)
    return lambda function: compile_for(backend, function, caches=True, dynamic=None).call


def _use_cache(cache: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(cache, "inductor"))
    os.environ["HALIDE_BACKEND_CACHE_DIR"] = str(Path(cache, "halide_backend"))


def _start(workload: Workload, task: Task) -> dict[str, object]:
    """Time the first two steps: SGD allocates its momentum in the first and compiles once more."""
    # Importing Inductor takes seconds and is the same for every backend.
    importlib.import_module("torch._inductor.compile_fx")

    ((backend, cache),) = task.caches.items()
    optimizer = _OptimizerTimer(_compiler(backend, cache))
    trial = workload.start(optimizer.compiler, task.quick)
    begin = time.perf_counter()
    trial.step()
    trial.step()
    seconds = time.perf_counter() - begin
    stats: dict[str, object] = {}
    if backend == OURS:
        import halide_backend

        stats = halide_backend.stats()
    from halide_backend.demonstration.figures import Start

    return dataclasses.asdict(Start(seconds, stats, optimizer.seconds))


class _OptimizerTimer:
    """Compiles as `compiler` does, and adds up the seconds in what it compiled of an optimizer."""

    def __init__(self, compiler: Compiler) -> None:
        self.seconds = 0.0
        self._compiler = compiler

    def compiler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from torch.optim import Optimizer

        compiled = self._compiler(function)
        if not isinstance(getattr(function, "__self__", None), Optimizer):
            return compiled

        def timed(*arguments: object) -> object:
            begin = time.perf_counter()
            try:
                return compiled(*arguments)
            finally:
                self.seconds += time.perf_counter() - begin

        return timed


def _measure(workload: Workload, task: Task, answers: TextIO) -> dict[str, object]:
    from halide_backend.demonstration import rounds

    trials: dict[str, Trial] = {}
    checks: dict[str, list[Check]] = {}
    expected = {}
    for backend, cache in {EAGER: "", **task.caches}.items():
        _answer(answers, {"progress": f"values from {backend}"})
        # The cache folder is read while compiling, so every step that may compile runs before the
        # next backend.
        trials[backend] = workload.start(_compiler(backend, cache), task.quick)
        values = trials[backend].values()
        if backend == EAGER:
            expected = values
            continue
        checks[backend] = [_check(name, value, expected[name], workload) for name, value in values.items()]
    for backend, trial in trials.items():
        _check_kernels(backend, trial)
    _answer(answers, {"progress": "alternating rounds"})
    times = rounds.alternate(
        {backend: trial.step for backend, trial in trials.items()},
        TIMED_SECONDS_QUICK if task.quick else TIMED_SECONDS,
    )
    pictures = []
    if workload.write_pictures is not None and task.pictures and OURS in trials:
        pictures = [str(f) for f in workload.write_pictures(trials[OURS], Path(task.pictures))]
    return {
        "summary": workload.quick_summary if task.quick else workload.summary,
        "checks": {name: [dataclasses.asdict(c) for c in made] for name, made in checks.items()},
        "times": {name: dataclasses.asdict(t) for name, t in times.items()},
        "pictures": pictures,
    }


def _check_kernels(backend: str, trial: Trial) -> None:
    """Make sure that a step runs kernels of this package exactly if it was compiled by it: code may come from a cache.

    Raises:
        WrongBackendError: it does not.
    """
    from halide_backend.errors import WrongBackendError
    from halide_backend.inspection.compiled import kernels_run

    ran = kernels_run(trial.step)[OURS]
    if bool(ran) != (backend == OURS):
        raise WrongBackendError(f"{ran} kernels of {OURS} ran in a step", where=f"the demo's figures of {backend}")


def _check(name: str, actual: object, expected: object, workload: Workload) -> Check:
    import torch

    from halide_backend.demonstration.figures import Check

    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        raise TypeError(f"{workload.name}: {name} is not a tensor")
    tolerance = workload.tolerances[name]
    try:
        torch.testing.assert_close(actual, expected, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
        passed = True
    except AssertionError:
        passed = False
    if actual.shape != expected.shape:
        return Check(name, float("nan"), passed)
    difference = torch.where(actual.isnan() & expected.isnan(), 0.0, (actual.double() - expected.double()).abs())
    return Check(name, difference.max().item(), passed)


if __name__ == "__main__":
    main()
