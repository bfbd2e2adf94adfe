"""The work of a measuring process: operands of one program, its kernels, and contests between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from halide_backend import loading
from halide_backend.build.entry_names import entry_name
from halide_backend.errors import KernelIndexError, KernelRuntimeError
from halide_backend.launch import launcher
from halide_backend.tune.measurement import samplers
from halide_backend.tune.measurement.agreement import disagreement
from halide_backend.tune.measurement.contest import Contest, Contestant, Measured
from halide_backend.tune.measurement.operands import Operands
from halide_backend.tune.measurement.sequential_test import LOOKS, Verdict, verdict

#: Seconds between reports, and of rest after each.
_REPORTED_S, _REST_S = 0.5, 0.005

#: Kernels that stay loaded: the rules', and those that were incumbents.
_LOADED = 32

Report = Callable[[Any], None]


class Bench:
    """Operands of the program of a contest, and what the rules' kernel makes of them."""

    def __init__(self, contest: Contest) -> None:
        self.digest = contest.digest
        self._program = contest.program
        self._device = contest.device
        self._samplers: dict[str, Callable[[], float]] = {}
        torch.set_num_threads(contest.threads)
        rules = self._load(contest.rules)
        self.operands = Operands(contest.program, contest.device)
        try:
            self._wanted = self._run(rules, contest.rules)
        except (KernelIndexError, KernelRuntimeError):
            # Indices that are sums or products of several inputs.
            self.operands = Operands(contest.program, contest.device, zero_indices=True)
            self._wanted = self._run(rules, contest.rules)
        self._sums = self.operands.read_only_sums()
        self.cold = self.operands.bytes > contest.l2_bytes if contest.cold is None else contest.cold
        self._flush = samplers.Flush() if self.cold and contest.device == "cpu" else None

    def wrong(self, candidate: Contestant) -> str:
        """What differs between the results of `candidate` and of the rules' kernel."""
        found = self._run(self._load(candidate), candidate)
        if self.operands.read_only_sums() != self._sums:
            return "it writes to memory that it may only read"
        return disagreement(self._program, found, self._wanted)

    def sampler(self, contestant: Contestant) -> Callable[[], float]:
        """What takes one sample of a kernel, in microseconds."""
        known = self._samplers.get(contestant.key)
        if known is not None:
            return known
        kernel, arguments = self._load(contestant), self._arguments(contestant)
        if self._device == "cpu":
            made = samplers.on_cpu(kernel, arguments, self.operands, self._flush)
        else:
            made = samplers.on_gpu(kernel, arguments, self.operands, cold=self.cold)
        if len(self._samplers) >= _LOADED:
            self._samplers.clear()
        self._samplers[contestant.key] = made
        return made

    def _arguments(self, contestant: Contestant) -> list[Any]:
        return self.operands.arguments(contestant.manifest["arguments"])

    def _run(self, kernel: Callable[..., Any], contestant: Contestant) -> dict[int, torch.Tensor]:
        self.operands.restore()
        if self._device == "cpu":
            kernel(*self._arguments(contestant))
        else:
            kernel(*self._arguments(contestant), torch.cuda.current_stream().cuda_stream)
            torch.cuda.synchronize()
        return self.operands.written()

    def _load(self, contestant: Contestant) -> Callable[..., Any]:
        described = contestant.manifest["arguments"]
        arity = sum(argument["kind"] != "status" for argument in described)
        entries = contestant.manifest.get("entries", ())
        names = {entry: entry_name("candidate", k) for k, entry in enumerate(entries)}
        loaded = loading.loaded(contestant.artifact, tuple(range(arity)), names)
        on_gpu = self._device != "cpu"
        made: Callable[..., Any] = launcher.make_launcher("candidate", [loaded], arity + on_gpu)
        return made


class Measuring:
    """What a worker keeps between its tasks: the bench of the last program."""

    def __init__(self) -> None:
        self._bench: Bench | None = None

    def __call__(self, contest: Contest, report: Report) -> Measured:
        """Run a contest; reports between its parts, each of which has the time limit for itself.

        Raises:
            KernelRuntimeError, LoadError: a kernel cannot be loaded or run.
        """
        if self._bench is None or self._bench.digest != contest.digest:
            self._bench = None
            self._bench = Bench(contest)
            report("operands")
        bench = self._bench
        if wrong := bench.wrong(contest.candidate):
            return Measured(wrong=wrong, cold=bench.cold)
        report("compared")
        incumbent = bench.sampler(contest.incumbent)
        # An equal text has one sampler; that of a candidate is not kept unless it becomes the incumbent.
        candidate = bench.sampler(contest.candidate)
        return self._measured(contest, incumbent, candidate, report)

    def _measured(
        self, contest: Contest, incumbent: Callable[[], float], candidate: Callable[[], float], report: Report
    ) -> Measured:
        assert self._bench is not None
        # It ends what the report before has begun, too.
        incumbent(), candidate()
        theirs: list[float] = []
        ours: list[float] = []
        said = Verdict.UNDECIDED
        reported = time.monotonic()
        while len(ours) < LOOKS[-1] and (contest.complete or said is Verdict.UNDECIDED):
            # A B B A: neither always follows the other, nor stands always first.
            if len(ours) % 2:
                ours.append(candidate() * 1e-6)
                theirs.append(incumbent() * 1e-6)
            else:
                theirs.append(incumbent() * 1e-6)
                ours.append(candidate() * 1e-6)
            if time.monotonic() - reported > _REPORTED_S:
                report(len(ours))
                # Whoever reads it may need one of the cores; a kernel whose thread waits for it is not slow.
                time.sleep(_REST_S)
                reported = time.monotonic()
            said = verdict([a / b for a, b in zip(theirs, ours)])
        return Measured(tuple(ours), tuple(theirs), said is Verdict.BETTER, self._bench.cold)
