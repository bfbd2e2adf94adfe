"""Workers that check programs; one that crashes or hangs costs one program."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from halide_backend.errors import WorkerCrashed, WorkerTimeout
from halide_backend.workers.pool import Worker, Workers
from halide_backend.workers.server import Program
from halide_backend.workers.serving import serve
from halide_backend.workers.task import Limits, Task

from .generator import program_of_seed

#: Seconds after which a program counts as hanging, and how often that long shrinking it may take.
TIME_LIMIT, SHRINKING = 300.0, 10

#: Programs after which a worker is replaced: torch keeps some memory of everything that it compiles.
LIFETIME = 500


def results(arguments: argparse.Namespace, seeds: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Results of `seeds` in the order of arrival; a worker that dies or hangs costs one program."""
    limits = Limits(TIME_LIMIT * (SHRINKING if arguments.shrink else 1))
    # Nothing here runs on a GPU, and forks of a process that has looked at one cannot use it.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    workers = Workers(Program("fuzzer", lambda: (sys.executable, "-m", __name__), lambda: environment, 600.0))

    def check(worker: Worker, seed: int) -> dict[str, Any]:
        try:
            result: dict[str, Any]
            result, _ = worker.run(Task(f"seed {seed}", (seed, vars(arguments)), limits))
            return result
        except (WorkerCrashed, WorkerTimeout) as error:
            kind, message = "hang" if isinstance(error, WorkerTimeout) else "crash", error.what
        program = str(program_of_seed(seed))
        return {"seed": seed, "kind": kind, "message": message, "delegated": {}, "program": program}

    try:
        yield from workers.stream(seeds, check, jobs=arguments.jobs, lifetime=LIFETIME)
    finally:
        workers.close()


def main() -> None:
    """The server."""
    import torch
    import torch._dynamo.guards
    import torch._inductor.compile_fx

    torch.set_num_threads(2)
    logging.disable(logging.WARNING)
    # Dynamo empties the processor's caches to time its own guards: 30 ms of each program.
    vars(torch._dynamo.guards)["profile_guard_manager"] = lambda *_: 0.0
    serve(_checked)


def _checked(task: tuple[int, dict[str, Any]], report: Callable[[Any], None]) -> dict[str, Any]:
    from .check import check
    from .kernels import keeping_texts
    from .shrinking import shrink

    seed, arguments = task
    backend, folder = str(arguments["backend"]), arguments["kernels"]
    program = program_of_seed(seed)
    with keeping_texts(Path(str(folder))) if folder else nullcontext():
        outcome = check(program, backend)
        result: dict[str, Any] = {"seed": seed, **vars(outcome)}
        if outcome.kind in ("mismatch", "error"):
            if arguments["shrink"]:
                program = shrink(program, lambda smaller: check(smaller, backend).kind == outcome.kind)
                result["message"] = check(program, backend).message
            result["cpp"] = check(program, "cpp").kind
    if outcome.kind in ("mismatch", "error", "inductor") or outcome.delegated:
        result["program"] = str(program)
    return result


if __name__ == "__main__":
    main()
