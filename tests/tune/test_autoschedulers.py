"""Halide's autoschedulers: their schedules give eager's results, and trouble with one of them costs a trial."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import halide_backend
from halide_backend import cli
from halide_backend.build.target import Target
from halide_backend.errors import WorkerCrashed, WorkerTimeout
from halide_backend.inspection.compiled import compile_for
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.schedule.steps import Parallel, Split, Vectorize
from halide_backend.schedules import schedule_file
from halide_backend.schedules.planning import entry_of
from halide_backend.tune.autoscheduling import asked, estimates, made, variants
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.measurer import Failed, Measurer
from halide_backend.tune.search.hill_climb import HillClimb
from halide_backend.tune.search.names import AUTOSCHEDULERS
from halide_backend.tune.space import RULES, Space, described, steps_of, whole_schedule
from halide_backend.tune.trial import Outcome, Trial
from halide_backend.tune.trial_log import read
from halide_backend.tune.tunable_kernel import TunableKernel, kernels_of
from halide_backend.tune.tuner import Conditions, Tuner

Made = Callable[..., LoopProgram]

#: Functions of one kernel each, and shapes of their arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "pointwise": (lambda x, y: torch.relu(x * y + 1), ((70, 129), (70, 129))),
    "column sum": (lambda x: x.sum(0), ((200, 64),)),
    "two outputs": (lambda x: (torch.sigmoid(x), x.abs()), ((1000,),)),
    "average": (lambda x: torch.nn.functional.avg_pool2d(x, 2), ((2, 3, 16, 16),)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def compilation() -> Iterator[Compilation]:
    with Compilation(Target.host()) as made:
        yield made


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scheduler", AUTOSCHEDULERS)
def test_results_are_those_of_eager(
    scheduler: str, name: str, compilation: Compilation, device: Device, tmp_path: Path
) -> None:
    function, shapes = FUNCTIONS[name]
    torch.manual_seed(0)
    arguments = [torch.randn(shape) for shape in shapes]
    halide_backend.reset_stats()
    torch._dynamo.reset()
    compile_for("halide_backend", function)(*arguments)
    (kernel,) = kernels_of([record.to_json() for record in halide_backend.records()], "cpu")
    space = Space(kernel.program, device)
    rules = space.kernel(RULES)
    answer = compilation.autoschedule(scheduler, rules.text, estimates(rules), 2, name, 30.0)
    settings = made(scheduler, answer, rules)
    assert not isinstance(settings, Failed), settings
    assert space.is_possible(settings), space.refused
    steps = steps_of(settings)
    assert steps and any(isinstance(step, Vectorize) for step in steps)
    assert described(settings) == f"{len(steps)} steps of {scheduler}"
    entry = entry_of(kernel.program, device, space.kernel(settings).plan, origin=scheduler)
    schedule_file.write(str(tmp_path / "file.toml"), [entry])
    torch._dynamo.reset()
    halide_backend.reset_stats()
    options = {"halide_backend.schedule_files": (str(tmp_path / "file.toml"),)}
    got = compile_for("halide_backend", function, options=options)(*arguments)
    (record,) = halide_backend.records()
    assert scheduler in record.schedule and all(repr(step) in record.text for step in steps)
    torch.testing.assert_close(got, function(*arguments))


@pytest.mark.parametrize(
    ("trouble", "kind", "outcome"),
    [
        ("while True: pass", WorkerTimeout, Outcome.TIMEOUT),
        ("import os; os.abort()", WorkerCrashed, Outcome.CRASHED),
        ("bytearray(8 << 30)", None, Outcome.MEMORY),
        ("raise ValueError('nothing')", None, Outcome.ILLEGAL),
    ],
)
def test_trouble_ends_at_the_limit(
    trouble: str, kind: Any, outcome: Outcome, compilation: Compilation, doubled: Made, device: Device
) -> None:
    rules = Space(doubled(), device).kernel(RULES)
    text = rules.text.replace("def algorithm():\n", f"def algorithm():\n    {trouble}\n")
    assert text != rules.text
    begin = time.monotonic()
    answer = compilation.autoschedule("Mullapudi2016", text, estimates(rules), 1, "twice", 3.0)
    found = made("Mullapudi2016", answer, rules)
    assert isinstance(found, Failed) and found.outcome is outcome
    assert time.monotonic() - begin < 3.0 + 3.0
    if kind is not None:
        assert isinstance(answer.exception(), kind)


def test_an_unknown_autoscheduler_is_named(compilation: Compilation, doubled: Made, device: Device) -> None:
    rules = Space(doubled(), device).kernel(RULES)
    found = made("Nobody", compilation.autoschedule("Nobody", rules.text, estimates(rules), 1, "twice", 3.0), rules)
    assert isinstance(found, Failed) and "this Halide comes without libautoschedule_nobody.so" in found.reason


def test_schedules_are_tried_first_and_failures_recorded(doubled: Made, device: Device) -> None:
    kernel = TunableKernel("twice", doubled(100_000))
    recorded: list[Trial] = []
    with Compilation(Target.host(), workers=1) as compilation, Measurer() as measurer:
        measurer.start()
        space = Space(kernel.program, device)
        tuner = Tuner(kernel, space, HillClimb(), measurer, compilation, Conditions(device.name), recorded.append)
        ended = tuner.autoschedule(("Mullapudi2016", "Nobody"), 20.0)
        assert [trial.settings for trial in ended] == [asked("Nobody")]
        assert [trial.outcome for trial in recorded] == [Outcome.MEASURED, Outcome.ILLEGAL]
        tried = tuner.step()
        assert tried is not None and steps_of(tried.settings) and tried.measured and tried.gain > 0
        assert Trial.from_json(json.loads(json.dumps(tried.to_json()))) == tried
        again = Tuner(
            kernel, Space(kernel.program, device), HillClimb(), measurer, compilation, Conditions(device.name)
        )
        again.resume(recorded)
        assert again.autoschedule(("Nobody",), 20.0) == []
        assert again.history.trial(tried.settings) is not None


def test_factors_of_a_winner_are_tried(doubled: Made, device: Device) -> None:
    steps = (Split("out_ptr0", "x0", "x0", "i", 16), Vectorize("out_ptr0", "i"), Parallel("out_ptr0", "x0"))
    found = list(variants(whole_schedule("Li2018", steps)))
    assert found == [whole_schedule("Li2018", (replace(steps[0], factor=k), *steps[1:])) for k in (32, 8)]
    assert list(variants(RULES)) == list(variants((("parallel.threads", False),))) == []
    space = Space(doubled(), device)
    assert all(space.is_possible(settings) for settings in found)
    assert space.decisions(found[0]) == () and space.chosen(found[0]) == ()
    broken = whole_schedule("Li2018", (*steps, Vectorize("out_ptr0", "x0")))
    assert not space.is_possible(broken) and "'x0' is parallel already" in space.refused[broken]


def test_the_command_asks_autoschedulers(doubled: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"name": "twice", "device": "cpu", "position": 0, "program": serialization.to_json(doubled(100_000))}
    Path("records.json").write_text(json.dumps([{**record, "delegation": None}]))
    command = ["tune", "records.json", "--budget", "15s", "--autoschedulers", "Li2018", "Mullapudi2016"]
    assert cli.main(command) == 0
    assert "of 1 kernels are faster" in capsys.readouterr().out
    origins = {trial.settings[0][0] for trial in read(Path("halide-trials.jsonl")).trials if trial.settings}
    assert {"steps@Li2018", "steps@Mullapudi2016"} <= origins
    assert cli.main([*command, "--device", "cuda"]) == 1
    printed = capsys.readouterr().err
    assert "--autoschedulers: the text of a kernel for a GPU is written for the threads" in printed
