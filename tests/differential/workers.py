"""Processes that check programs; one that crashes or hangs costs one program."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import queue
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

#: Seconds after which a program counts as hanging.
TIME_LIMIT = 300.0


def results(arguments: argparse.Namespace, seeds: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Results of `seeds` in the order of arrival; a worker that dies or hangs costs one program."""
    context = multiprocessing.get_context("spawn")
    workers = [_Worker(context, arguments) for _ in range(arguments.jobs)]
    for worker in workers:
        worker.give(next(seeds, None))
    while any(worker.seed is not None for worker in workers):
        time.sleep(0.02)
        for worker in workers:
            if worker.seed is None:
                continue
            result = worker.take()
            if result is not None:
                yield result
                worker.give(next(seeds, None))
    for worker in workers:
        worker.stop()


class _Worker:
    def __init__(self, context, arguments: argparse.Namespace) -> None:  # type: ignore[no-untyped-def]
        self.context = context
        self.arguments = arguments
        self.seed: int | None = None
        self._start()

    def _start(self) -> None:
        self.seeds = self.context.Queue()
        self.results = self.context.Queue()
        self.process = self.context.Process(target=_work, args=(self.seeds, self.results, vars(self.arguments)))
        self.process.start()

    def give(self, seed: int | None) -> None:
        self.seed = seed
        self.since = time.time()
        if seed is not None:
            self.seeds.put(seed)

    def take(self) -> dict[str, object] | None:
        try:
            return self.results.get_nowait()  # type: ignore[no-any-return]
        except queue.Empty:
            pass
        if not self.process.is_alive():
            kind = f"crash (exit code {self.process.exitcode})"
        elif time.time() - self.since > TIME_LIMIT * (10 if self.arguments.shrink else 1):
            self.process.kill()
            kind = "hang"
        else:
            return None
        self.process.join()
        from .generator import program_of_seed

        program = str(program_of_seed(self.seed or 0))
        result = {"seed": self.seed, "kind": kind, "message": "", "delegated": {}, "program": program}
        self._start()
        return result

    def stop(self) -> None:
        self.seeds.put(None)
        self.process.join(10)


def _work(seeds, results, arguments: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    import torch
    import torch._dynamo.guards

    torch.set_num_threads(2)
    logging.disable(logging.WARNING)
    # Dynamo empties the processor's caches to time its own guards: 30 ms of each program.
    vars(torch._dynamo.guards)["profile_guard_manager"] = lambda *_: 0.0
    from .kernels import keeping_texts

    folder = arguments["kernels"]
    with keeping_texts(Path(str(folder))) if folder else nullcontext():
        while (seed := _next(seeds)) is not None:
            results.put(_checked(seed, arguments))


def _next(seeds) -> int | None:  # type: ignore[no-untyped-def]
    """The next seed, None as well when the run has been killed: its workers would wait for ever."""
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        with suppress(queue.Empty):
            seed: int | None = seeds.get(timeout=5)
            return seed
    return None


def _checked(seed: int, arguments: dict[str, object]) -> dict[str, object]:
    from .check import check
    from .generator import program_of_seed
    from .shrinking import shrink

    backend = str(arguments["backend"])
    program = program_of_seed(seed)
    outcome = check(program, backend)
    result: dict[str, object] = {"seed": seed, **vars(outcome)}
    if outcome.kind in ("mismatch", "error"):
        if arguments["shrink"]:
            program = shrink(program, lambda smaller: check(smaller, backend).kind == outcome.kind)
            result["message"] = check(program, backend).message
        result["cpp"] = check(program, "cpp").kind
    if outcome.kind in ("mismatch", "error", "inductor") or outcome.delegated:
        result["program"] = str(program)
    return result
