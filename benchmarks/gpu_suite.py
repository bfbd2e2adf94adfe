"""The benchmark's cases on a GPU in minutes: many processes compile them, then one after another is timed, in rounds.

    python benchmarks/gpu_suite.py [--dynamic] [--recorded FILE] [--jobs 15] [--rounds 3] [--sizes large] [--only ...]
                                   [--dtypes ...] [--seconds 500] [--out PREFIX]

`halide-backend bench` compiles and times case by case, half an hour for a suite. Here each of `--jobs` processes takes
the next case, compiles it for this backend and for Triton, in turns which is first, and compares it with eager. When no
case is left, the cases are timed as `bench` times them, on new operands, while all other processes wait. There are no
controls. Round N is written to PREFIX-N.json when it is complete, in `bench`'s format, with some more fields:

    processes   the names of each process's cases, in the order of their compilation
    warmed_up   what each process had compiled before its first case, so that no case pays torch's start or ours
    missing     why there is nothing of a case -> names: its process ended, or the clock did not allow it

Figures that are printed are of each case's median ratio of all rounds. Of held-back cases there are only the figures of
all, and how many of a group and a type are low. Exit code 1 when a result is wrong or a case is missing.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from halide_backend import terminal
from halide_backend.bench import suite, summary
from halide_backend.bench.case import DTYPES, SIZES, Case, Selection
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.copy_bandwidth import CopyBandwidth
from halide_backend.bench.measurement import Result, arguments_of, compile_case, replayed
from halide_backend.cache_key import NAME
from halide_backend.inspection.compiled import Compiled

AGAINST = "triton"

#: What each process compiles before its first case.
WARM_UP = "x + 1 of 1024 float32, for either backend"

#: The share of the time after which no case is compiled any more, and seconds that an order may take beyond the end.
COMPILING, GRACE_S = 0.6, 20.0

#: Seconds in which a case is timed: most take 0.03.
TIMING_S = 30.0

#: Bytes that a process keeps for its next case: 15 of them and the operands of one fit into an H200's 139 GiB.
KEPT = 4 << 30

#: Ratios below which the project wants none: of known sizes, and of dynamic ones.
LOW = (0.93, 0.9)


@dataclass
class Worker:
    """A process, the connection to it, and the numbers of the cases that it has compiled; None while it starts."""

    connection: Connection
    process: BaseProcess | None = None
    cases: list[int] = field(default_factory=list)
    asked: int | None = None

    def ask(self, order: str, number: int) -> bool:
        """Send an order; False if there is nobody."""
        self.asked = number
        try:
            self.connection.send((order, number))
        except OSError:
            return False
        return True

    def answer(self) -> Any:
        """The answer that has arrived.

        Raises:
            EOFError: the process has ended.
        """
        try:
            return self.connection.recv()
        except OSError as error:
            raise EOFError from error

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.connection.close()
        if self.process:
            self.process.kill()


class Crew:
    """Processes that compile and time the cases of a list. What goes wrong with one concerns its cases alone."""

    def __init__(self, workers: Iterable[Worker], count: int, clock: Callable[[], float] = time.monotonic):
        self.workers = list(workers)
        self.results: dict[int, Result] = {}
        self.missing: dict[int, str] = {}
        self._waiting = deque(range(count))
        self._clock = clock

    def compile(self, until: float, grace: float = GRACE_S) -> None:
        """Have all cases compiled: none begins after the time `until`, and who takes `grace` longer is stopped."""
        busy: dict[Any, Worker] = {worker.connection: worker for worker in self.workers}
        while busy and (ready := wait(list(busy), max(0.0, until + grace - self._clock()))):
            for connection in ready:
                worker = busy.pop(connection)
                try:
                    answer = worker.answer()
                except EOFError:
                    self._lose(worker, "its process ended")
                    continue
                if worker.asked is not None:
                    self.results[worker.asked] = answer
                    worker.cases.append(worker.asked)
                worker.asked = None
                if not self._waiting or self._clock() > until:
                    continue
                if worker.ask("compile", self._waiting.popleft()):
                    busy[worker.connection] = worker
                else:
                    self._lose(worker, "its process ended")
        for worker in busy.values():
            self._lose(worker, "its process did not end in time")
        self.missing |= dict.fromkeys(self._waiting, "not compiled: no time or no process was left")

    def call(self, order: str, until: float) -> Any:
        """The answer of whichever process gives one to an order that belongs to no case, None if nobody does."""
        for worker in list(self.workers):
            if (answer := self._answered(worker, order, -1, until)) is not None:
                return answer
        return None

    def time(self, until: float) -> dict[int, dict[str, list[float]]]:
        """Samples of each case that can be timed, by its number; those that are not reached until then have none."""
        owners = {number: worker for worker in self.workers for number in worker.cases}
        samples = {}
        for number in sorted(owners):
            timed = self.results[number].right and self.results[number].ran
            if not timed or owners[number] not in self.workers or self._clock() > until:
                continue
            answer = self._answered(owners[number], "time", number, self._clock() + TIMING_S)
            if isinstance(answer, str):
                self.results[number].right, self.results[number].error = False, answer
            elif answer:
                samples[number] = answer
        return samples

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.stop()

    def _answered(self, worker: Worker, order: str, number: int, until: float) -> Any:
        if worker.ask(order, number) and wait([worker.connection], max(0.0, until - self._clock())):
            try:
                return worker.answer()
            except EOFError:
                self._lose(worker, "its process ended")
        else:
            self._lose(worker, "its process did not answer")
        return None

    def _lose(self, worker: Worker, why: str) -> None:
        lost = {*worker.cases, *([worker.asked] if worker.asked is not None and worker.asked >= 0 else [])}
        self.missing |= dict.fromkeys(lost, why)
        self.workers.remove(worker)
        worker.stop()


def serve(connection: Connection, request: suite.Request) -> None:
    """A process of a crew: say when it has started, then answer orders until the connection is closed."""
    torch.set_num_threads(1)
    chosen = suite.chosen_cases(request)
    compiled: dict[int, dict[str, Compiled]] = {}
    settled = False
    # As `replays` calls: with gradients, whatever is compiled would be compiled once more.
    with torch.no_grad():
        for name in request.contestants.names(ours_first=True):
            request.contestants.compile(name, lambda x: x + 1)(torch.zeros(1024, device=request.device))
        connection.send(None)
        while True:
            try:
                order, number = connection.recv()
            except EOFError:
                return
            answer: Any
            if order == "compile":
                answer, compiled[number] = one_compiled(chosen[number], request.contestants, ours_first=number % 2 == 0)
            elif order == "bandwidth":
                answer = CopyBandwidth().rate
            else:
                if not settled:
                    # `replays` collects garbage, 0.1 s among the objects of forty graphs.
                    gc.collect()
                    gc.freeze()
                    settled = True
                answer = one_timed(chosen[number], compiled[number])
            if torch.cuda.memory_reserved() > KEPT:
                torch.cuda.empty_cache()
            connection.send(answer)


def one_compiled(case: Case, contestants: Contestants, *, ours_first: bool) -> tuple[Result, dict[str, Compiled]]:
    """What is known of a case but for its times, and what is to be timed."""
    result = Result(case.name, case.group, case.held_back)
    compiled: dict[str, Compiled] = {}
    try:
        compiled, _ = compile_case(case, contestants, arguments_of(case), result, ours_first=ours_first)
    except Exception:
        result.fail()
    return result, compiled


def one_timed(case: Case, compiled: Mapping[str, Compiled]) -> dict[str, list[float]] | str:
    """Samples by contestant, or what went wrong."""
    try:
        return replayed(case, compiled, arguments_of(case))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def document(
    request: suite.Request, crew: Crew, chosen: Sequence[Case], samples: Mapping[int, dict[str, list[float]]], rate: Any
) -> dict[str, Any]:
    """A round as a file says it. Cases that can be timed and have not been in this round are missing."""
    missing: dict[str, list[str]] = {}
    results = []
    for number, case in enumerate(chosen):
        found = crew.results.get(number)
        untimed = found is not None and found.right and bool(found.ran) and number not in samples
        if found is None or untimed:
            missing.setdefault(crew.missing.get(number, "not timed: no time was left"), []).append(case.name)
            continue
        found.samples = samples.get(number, {})
        found.roofline_s = found.bytes_moved / rate if rate and found.samples else 0.0
        results.append(found)
    return {
        **suite.to_document(request, results, [], None),
        "roofline": {"copy_gb_s": round(rate / 1e9, 1)} if rate else {},
        "processes": [[chosen[number].name for number in worker.cases] for worker in crew.workers],
        "warmed_up": WARM_UP,
        "missing": missing,
    }


def told(rounds: Sequence[Mapping[str, Any]], against: str = AGAINST) -> str:
    """What is printed of the files of all rounds."""
    lines, rows = [], []
    last = rounds[-1]
    both = [*last["results"], *last["held_back_results"]]
    wrong = [case for case in both if not case["right"]]
    lines.append(f"{len(both) - len(wrong)} of {len(both)} right")
    lines += [f"WRONG {case['name']}: {case['error'][:600]}" for case in wrong]
    for why, names in last["missing"].items():
        lines.append(f"{len(names)} cases MISSING: {why}")
    for half, title in ("results", "shown"), ("held_back_results", "held back"):
        ratios = medians(rounds, half, against)
        groups: dict[str, list[float]] = {}
        low: Counter[str] = Counter()
        for (group, name), ratio in ratios.items():
            for each in (group, summary.ALL) if title == "shown" else (summary.ALL,):
                groups.setdefault(each, []).append(ratio)
            low[f"{group} {name.rpartition('_')[2]}"] += ratio < summary.ENOUGH
        for group in sorted(groups, key=summary.ALL.__eq__):
            found = groups[group]
            below = (str(sum(ratio < bound for ratio in found)) for bound in LOW)
            rows.append((title, group, *summary.Figures.of(found).cells(), *below))
        counts = ", ".join(f"{group} {count}" for group, count in low.most_common() if count)
        lines.append(f"{title}, below {summary.ENOUGH}: {counts or 'none'}")
        if title == "shown":
            few = sorted((ratio, name) for (_, name), ratio in ratios.items() if ratio < summary.ENOUGH)
            lines += [f"  {name} {ratio:.3f}" for ratio, name in few]
    headings = ("", "group", "cases", "geometric\nmean", "\nlowest", f"at least\n{summary.ENOUGH}")
    lines.append(terminal.table((*headings, *(f"below\n{bound}" for bound in LOW)), rows, "llrrrrrr"))
    first = {names[0] for names in last["processes"] if names}
    for cases, which in (both, "first calls"), ([c for c in both if c["name"] not in first], "without each process's"):
        seconds = [(c["compile_s"][NAME], c["compile_s"][against]) for c in cases if len(c["compile_s"]) > 1]
        ours, theirs = map(sum, zip(*seconds)) if seconds else (0.0, 0.0)
        lines.append(f"{which}: ours {ours:.1f} s, {against} {theirs:.1f} s: {ours / max(theirs, 1e-9):.3f}")
    return "\n".join(lines)


def medians(rounds: Sequence[Mapping[str, Any]], half: str, against: str) -> dict[tuple[str, str], float]:
    """(Group, name) of each case that was timed -> its median ratio of all rounds."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for each in rounds:
        for case in each[half]:
            if case["samples"]:
                theirs, ours = (statistics.median(case["samples"][who]) for who in (against, NAME))
                ratios.setdefault((case["group"], case["name"]), []).append(theirs / ours)
    return {case: statistics.median(found) for case, found in ratios.items()}


def started(request: suite.Request, jobs: int) -> list[Worker]:
    """Processes that begin to start."""
    context = multiprocessing.get_context("spawn")
    workers = []
    for _ in range(jobs):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, request), daemon=True)
        process.start()
        theirs.close()  # so that ours ends with the process
        workers.append(Worker(ours, process))
    return workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dynamic", action="store_true", help="compile with every size dynamic")
    parser.add_argument("--recorded", default="", metavar="FILE", help="kernels of FILE instead of the suite's")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="groups, or parts of names")
    parser.add_argument("--sizes", nargs="+", choices=SIZES["cuda"], default=["large"])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=[])
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=500.0, help="in which all has to be done")
    parser.add_argument("--out", default="gpu-suite", metavar="PREFIX")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("it needs a GPU, and a torch with CUDA")
    begin = time.monotonic()
    # As many processes as cores compile already; torch's profiler, which shows what ran, would print two lines a time.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    selection = Selection(tuple(asked.only), () if asked.recorded else tuple(asked.sizes), tuple(asked.dtypes))
    request = suite.Request("cuda", Contestants((AGAINST,), asked.dynamic), selection, recorded=asked.recorded)
    chosen = suite.chosen_cases(request)
    crew = Crew(started(request, min(asked.jobs, len(chosen))), len(chosen))
    crew.compile(begin + COMPILING * asked.seconds)
    print(f"{len(crew.results)} of {len(chosen)} compiled after {time.monotonic() - begin:.0f} s", flush=True)
    rate = crew.call("bandwidth", time.monotonic() + TIMING_S)
    rounds = []
    for number in range(1, asked.rounds + 1):
        samples = crew.time(begin + asked.seconds)
        rounds.append(document(request, crew, chosen, samples, rate))
        Path(f"{asked.out}-{number}.json").write_text(json.dumps(rounds[-1], indent=1) + "\n")
        print(f"round {number}: {len(samples)} timed after {time.monotonic() - begin:.0f} s", flush=True)
    crew.stop()
    print(told(rounds))
    sys.exit(any(each["missing"] for each in rounds) or not all(each.right for each in crew.results.values()))


if __name__ == "__main__":
    main()
