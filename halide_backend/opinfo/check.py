"""Checks one operator with one data type, in this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from halide_backend.inspection.compiled import compile_for
from halide_backend.kernel_records.journal import journal
from halide_backend.opinfo import outcome, tolerances
from halide_backend.opinfo.case import Case
from halide_backend.opinfo.comparison import Comparison, as_near
from halide_backend.opinfo.database import differentiable, least_tolerance, sample_inputs
from halide_backend.opinfo.execution import Call, Forward, Watch, gradients, run, upstream
from halide_backend.opinfo.explanation import explain
from halide_backend.opinfo.outcome import Failure, Outcome
from halide_backend.opinfo.twin import can_widen, like, twin, wider


def check(info: Any, case: Case, begin: Callable[[int], None]) -> Outcome:
    """Compare every sample of `case`; `begin` gets each sample's number before it runs."""
    started = time.monotonic()
    journal.reset()
    try:
        samples = sample_inputs(info, case)
    except Exception as error:
        failure = Failure(-1, "raised", f"sample inputs: {explain(error)}")
        return Outcome(case.op, case.dtype, outcome.NOT_RUN, failures=(failure,))
    failures: list[Failure] = []
    compared = with_gradients = 0
    for number, sample in samples:
        begin(number)
        checked = _Sample(info, case, number, sample)
        found = checked.failure()
        failures += [found] if found else []
        compared += checked.comparable
        with_gradients += checked.has_gradients
    counts: Any = journal.stats()
    status = outcome.FAILED if failures else outcome.PASSED if compared else outcome.NOT_RUN
    return Outcome(
        op=case.op,
        dtype=case.dtype,
        status=status,
        samples=compared,
        gradients=with_gradients,
        not_comparable=len(samples) - compared,
        failures=tuple(failures),
        native=int(counts["native_kernels"]),
        delegated=int(counts["delegated_kernels"]),
        reasons=counts["delegation_reasons"],
        seconds=round(time.monotonic() - started, 3),
    )


class _Sample:
    """One sample input: eager once or twice, compiled once."""

    def __init__(self, info: Any, case: Case, number: int, sample: Any) -> None:
        self.case = case
        self.number = number
        self.call = Call([sample.input, *sample.args], dict(sample.kwargs))
        self.process = sample.output_process_fn_grad
        self.comparison = Comparison(least_tolerance(info, case))
        operator = info.get_op()
        self.function = lambda *args, **kwargs: operator(*args, **kwargs)
        self.asks_gradients = case.gradients and differentiable(info, getattr(torch, case.dtype), case.device)
        #: Whether eager itself could do it: forward, and backward.
        self.comparable = False
        self.has_gradients = False

    def failure(self) -> Failure | None:
        """What went wrong, or None; None as well where eager raises."""
        watch = Watch()
        eager = self._copy()
        try:
            with watch:
                result, reference = run(self.function, eager)
        except Exception:
            return None
        self.comparable = True
        expected = _Expected(reference)
        self._differentiate(result, eager, expected)
        traits = watch.traits

        torch._dynamo.reset()
        compiled = compile_for(self.case.backend, self.function, fullgraph=not traits.data_dependent)
        call = self._copy()
        try:
            actual, forward = run(compiled, call)
        except Exception as error:
            return self._failed("raised", explain(error))
        if compiled.codes:
            compiled.check_code()
        tolerance = tolerances.forward(self.case.op, self.case.dtype)
        if traits.random:
            tolerance = tolerances.Tolerance(values=False)
        message = self._compare(forward, expected, tolerance)
        if message:
            return self._failed("values", message)
        if not self.has_gradients:
            return None
        try:
            processed = self.process(actual)
            found = gradients(processed, call, upstream(processed))
        except Exception as error:
            return self._failed("gradients raised", explain(error))
        tolerance = tolerances.gradient(self.case.op, self.case.dtype)
        if traits.random:
            tolerance = tolerances.Tolerance(values=False)
        message = self._compare_gradients(found, expected, tolerance)
        return self._failed("gradients", message) if message else None

    def _failed(self, kind: str, message: str) -> Failure:
        return Failure(self.number, kind, message)

    def _copy(self) -> Call:
        args, kwargs = twin((self.call.args, self.call.kwargs))
        return Call(args, kwargs)

    def _differentiate(self, result: Any, call: Call, expected: _Expected) -> None:
        if not self.asks_gradients:
            return
        try:
            processed = self.process(result)
            given = upstream(processed)
            if given:
                expected.gradients = gradients(processed, call, given)
                self.has_gradients = any(g is not None for g in expected.gradients)
        except Exception:
            self.has_gradients = False

    def _compare(self, forward: Forward, expected: _Expected, tolerance: Any) -> str:
        """What differs from eager as it is, and from eager computed in a wider type, too."""
        reference = expected.forward
        if forward.kind is not reference.kind:
            return f"a {forward.kind.__name__} instead of a {reference.kind.__name__}"
        if len(forward.results) != len(reference.results):
            return f"{len(forward.results)} results instead of {len(reference.results)}"
        message = self.comparison.difference(forward.results, reference.results, tolerance)
        if message and tolerance.values and self._widened(expected):
            message = self._compare_wide(forward.results, reference.results, expected.wide.results, tolerance)
        if message or not tolerance.values:
            return message
        message = self.comparison.difference(forward.inputs, reference.inputs, tolerance)
        return f"changed inputs: {message}" if message else ""

    def _compare_gradients(self, found: list[torch.Tensor | None], expected: _Expected, tolerance: Any) -> str:
        message = self.comparison.difference(found, expected.gradients, tolerance)
        if message and tolerance.values and self._widened(expected) and expected.wide_gradients:
            message = self._compare_wide(found, expected.gradients, expected.wide_gradients, tolerance)
        return message

    def _compare_wide(self, actual: Any, eager: Any, wide: Any, tolerance: Any) -> str:
        """What differs from `wide`, unless eager itself is as far from it: rounding errors that a sample enlarges."""
        message = self.comparison.difference(actual, like(wide, eager), tolerance)
        return "" if message and as_near(actual, eager, wide) else message

    def _widened(self, expected: _Expected) -> bool:
        """Whether eager can do it in a wider type; fills `expected.wide`."""
        if not can_widen([self.call.args, self.call.kwargs]):
            return False
        args, kwargs = wider((self.call.args, self.call.kwargs))
        call = Call(args, kwargs)
        try:
            result, expected.wide = run(self.function, call)
            if len(expected.wide.results) != len(expected.forward.results):
                return False
            if self.has_gradients:
                processed = self.process(result)
                expected.wide_gradients = gradients(processed, call, upstream(processed))
        except Exception:
            return False
        return True


class _Expected:
    """What eager computes: as the sample says, and with wider types."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.gradients: list[torch.Tensor | None] = []
        self.wide = forward
        self.wide_gradients: list[torch.Tensor | None] = []


def tidy() -> None:
    """Let go of everything that compiled functions keep alive."""
    torch._dynamo.reset()
    gc.collect()
