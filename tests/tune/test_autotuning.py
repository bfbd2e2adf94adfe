"""`mode="max-autotune"` searches within its budget and keeps what it finds; no other mode searches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import config
from halide_backend.schedule.cpu import kernel as cpu_rules
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.tune import autotuning, capture, trial_log
from halide_backend.tune.measurement.contest import Contest, Contestant, Measured
from halide_backend.tune.measurement.measurer import Failed, Measurer
from halide_backend.tune.session import Search, Session
from halide_backend.tune.tuner import Tuner

#: More than a search takes that ends when it has found what tests look for.
SECONDS = 300.0


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and rules that let threads share even what takes less time than to wake them."""
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cpu_rules, "PARALLEL_WORK", 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def sums(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x).sum(-1)


def run(mode: str | None, **options: Any) -> tuple[str, bool]:
    """Where the kernel's schedule is from, and whether threads share its loops."""
    x = torch.randn(32, 64)
    halide_backend.reset_stats()
    torch._dynamo.reset()
    with inductor_config.patch(force_disable_caches=True), config.patch(**options):
        found = torch.compile(sums, backend="halide_backend", mode=mode)(x)
    torch.testing.assert_close(found, sums(x))
    (record,) = halide_backend.records()
    return record.schedule, "    Parallel(" in record.text


def searched(tmp_path: Path) -> int:
    """Trials of all searches so far."""
    log = tmp_path / "cache" / autotuning.LOG
    return len(trial_log.read(log).trials) if log.exists() else 0


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    """What sessions were asked for, in order."""
    asked: list[Search] = []
    search = Session.run

    def noted(self: Session, kernels: Any, what: Search, *others: Any) -> Any:
        asked.append(what)
        return search(self, kernels, what, *others)

    monkeypatch.setattr(Session, "run", noted)
    return asked


def ends_with(monkeypatch: pytest.MonkeyPatch, enough: Callable[[Tuner], bool]) -> None:
    """Take a space for exhausted when `enough` was found in it."""
    exhausted = Tuner.exhausted.fget
    assert exhausted is not None
    monkeypatch.setattr(Tuner, "exhausted", property(lambda tuner: exhausted(tuner) or enough(tuner)))


@pytest.fixture
def threads_cost_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run and their results are compared, but what has threads takes ten times as long as what has none: where
    other tests kept both cores busy, a search ended with threads once."""
    hold = Measurer.hold

    def seconds(contestant: Contestant) -> float:
        return 1e-3 if b"halide_do_par_for" in contestant.object else 1e-4

    def held(self: Measurer, contest: Contest, name: str) -> Measured | Failed:
        measured = hold(self, contest, name)
        if isinstance(measured, Failed) or measured.wrong:
            return measured
        ours, theirs = seconds(contest.candidate), seconds(contest.incumbent)
        return replace(measured, samples=(ours,) * 10, incumbent=(theirs,) * 10, better=ours < theirs)

    monkeypatch.setattr(Measurer, "hold", held)


@pytest.mark.usefixtures("threads_cost_most")
def test_the_mode_searches_once_and_every_mode_uses_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searches: list[Search]
) -> None:
    ends_with(monkeypatch, lambda tuner: dict(tuner.history.best).get("parallel.threads") is False)
    assert run(None) == ("", True) and run("reduce-overhead") == ("", True)
    assert run("max-autotune", tune="never") == ("", True)
    assert run("max-autotune", tune_seconds=0.0) == ("", True)
    assert searched(tmp_path) == 0 and list(tuned_store().entries()) == []
    schedule, parallel = run("max-autotune-no-cudagraphs", tune_seconds=SECONDS)
    # `test_tuner` shows that a session keeps to its budget.
    assert len(searches) == 1 and SECONDS / 2 < searches[0].seconds <= SECONDS
    trials = searched(tmp_path)
    assert trials > 1 and schedule.startswith("tuned here") and not parallel
    (entry,) = tuned_store().entries()
    assert dict(entry.knobs)["parallel.threads"] is False
    assert torch.get_num_threads() in (entry.threads or ())
    for mode in (None, "max-autotune"):
        assert run(mode, tune_seconds=SECONDS) == (schedule, False)
    assert run(None, tune="never") == ("", True)
    assert searched(tmp_path) == trials


def test_what_was_searched_for_in_vain_is_not_searched_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, lambda tuner: len(tuner.history.trials) > 2)
    monkeypatch.setattr(Tuner, "confirmed", lambda self: None)
    schedule, parallel = run("max-autotune", tune_seconds=SECONDS)
    trials = searched(tmp_path)
    assert trials > 1 and "the rules stay after" in schedule and parallel
    (entry,) = tuned_store().entries()
    # It says nothing of knobs: rules that become better are used.
    assert entry.knobs == () and entry.steps is None
    assert run("max-autotune", tune_seconds=SECONDS) == (schedule, True)
    assert searched(tmp_path) == trials


def test_trouble_is_a_warning_and_the_rules_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Another process searches, for longer than this one waits.
    (tmp_path / "cache").mkdir()
    with trial_log.TrialLog(tmp_path / "cache" / autotuning.LOG):
        assert run("max-autotune", tune_seconds=0.5) == ("", True)
    assert "another tuner writes to it" in caplog.text

    # The disk is full while the first trial is written.
    def full(*arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(trial_log.os, "write", full)
    assert run("max-autotune", tune_seconds=SECONDS) == ("", True)
    assert "the disk is full" in caplog.text


def test_a_second_tuner_waits_for_the_first(tmp_path: Path) -> None:
    first = trial_log.TrialLog(tmp_path / "trials")
    threading.Timer(0.5, first.close).start()
    with trial_log.TrialLog(tmp_path / "trials", patience=30.0) as second:
        assert second.path == first.path


def test_a_script_that_asks_for_the_mode_is_captured_without_a_search(tmp_path: Path) -> None:
    text = 'import torch\ntorch.compile(lambda x: x.sum(-1), mode="max-autotune-no-cudagraphs")(torch.randn(32, 64))\n'
    (tmp_path / "model.py").write_text(text)
    assert len(capture.records_of("model.py", "cpu")) == 1
    assert searched(tmp_path) == 0
