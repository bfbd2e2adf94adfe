"""`halide-backend tune` as a user calls it: a script in, schedules out; bad input is an error that says what to do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from halide_backend import cli
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.schedules import schedule_file
from halide_backend.tune import capture, trial_log
from halide_backend.tune.command import seconds as seconds_of

Made = Callable[..., LoopProgram]
Press = Callable[[int], None]

MODEL = """\
import torch

def run():
    function = torch.compile(lambda x: (torch.softmax(x, -1), x.sum(0)), dynamic=False)
    function(torch.randn(300, 200))

if __name__ == "__main__":
    run()
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def records(tmp_path: Path, row_sums: Made, doubled: Made) -> str:
    """A file of records of two kernels, one of them captured twice, and of one that was delegated."""
    kernels = (("sum", row_sums()), ("twice", doubled()), ("again", row_sums()))
    found = [
        {"name": name, "device": "cpu", "position": 0, "delegation": None, "program": serialization.to_json(program)}
        for name, program in kernels
    ]
    other = {"name": "other", "device": "cpu", "position": 0, "delegation": {"code": "x"}, "program": None}
    path = tmp_path / "records.json"
    path.write_text(json.dumps([*found, other]))
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints when it refuses."""
    assert cli.main(["tune", *arguments]) == 1
    printed = capsys.readouterr().err
    assert "What to do: " in printed
    return printed


def test_kernels_are_listed_once_for_each_program(records: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", records, "--list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [("sum", "2"), ("twice", "1")]


def test_records_are_tuned_and_the_search_goes_on(
    records: str, tmp_path: Path, device: Device, capsys: pytest.CaptureFixture[str], ctrl_c_after: Press
) -> None:
    command = ["tune", records, "--kernels", "s*", "--budget", "10m", "--report", "page.html", "--schedules", "s.toml"]
    ctrl_c_after(5)
    assert cli.main(command) == 0
    printed = capsys.readouterr()
    assert re.search(r"^sum +\S+ [mun]?s +100\.0 % +\d+", printed.out, re.MULTILINE)
    assert "of 1 kernels are faster" in printed.out
    first = trial_log.read(tmp_path / "halide-trials.jsonl")
    assert len(first.trials) >= 6 and {trial.device for trial in first.trials} == {device.name}
    page = (tmp_path / "page.html").read_text()
    knobs = {name for trial in first.trials if trial.samples for name, _ in trial.settings}
    assert knobs and all(name in page for name in knobs)
    assert "<svg" in page and "produce" in page and "<script" not in page
    ctrl_c_after(3)
    assert cli.main([*command[:6], "--resume"]) == 0
    second = trial_log.read(tmp_path / "halide-trials.jsonl")
    assert second.trials[: len(first.trials)] == first.trials
    # It goes on: but for the best, which has to win again, nothing is tried twice.
    tried = [trial.settings for trial in second.trials if trial.settings]
    assert len(first.trials) < len(tried) <= len(set(tried)) + 1
    if Path("s.toml").exists():
        assert all(entry.name == "sum" for entry in schedule_file.read("s.toml"))


def test_a_script_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str], ctrl_c_after: Press) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    ctrl_c_after(3)
    assert cli.main(["tune", "model.py", "--budget", "10m", "--strategy", "random"]) == 0
    assert "of 2 kernels are faster" in capsys.readouterr().out
    assert cli.main(["tune", "model:run", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("raise ValueError('broken model')", "ValueError: broken model"),
        ("import sys; sys.exit(3)", "it ended with status 3"),
        ("import os; os.abort()", "it ended with status -6"),
        ("def f(:", "SyntaxError"),
        ("print('nothing is compiled')", "no kernel of this backend on cpu"),
    ],
)
def test_a_script_that_gives_no_kernels(
    source: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(source)
    assert what in refused(capsys, "model.py")


def test_a_script_may_end_itself(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import sys; sys.exit(0)")
    assert capture.records_of("model.py", "cpu") == []


def test_sources_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no such file" in refused(capsys, "none.py")
    assert "No such file" in refused(capsys, "none.json")
    assert "No module named 'none'" in refused(capsys, "none:run")
    (tmp_path / "model.py").write_text(MODEL)
    assert "has no attribute 'walk'" in refused(capsys, "model:walk")
    (tmp_path / "records.json").write_text("{")
    assert "it is no JSON" in refused(capsys, "records.json")
    (tmp_path / "records.json").write_text('[{"name": "k", "delegation": null, "program": {"schema": 99}}]')
    assert "schema 99 of a program" in refused(capsys, "records.json")


def test_requests_that_cannot_be_met(records: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = refused(capsys, records, "--kernels", "softmax*")
    assert "no kernel matches 'softmax*'" in printed and "there are sum, twice" in printed
    assert "there is no time to tune in" in refused(capsys, records, "--budget", "0")
    assert "0 delegated" not in refused(capsys, records, "--device", "cuda", "--list")
    (tmp_path / "trials").write_text('{"schema": 2}\n')
    assert "schema 2 of a trial is not 1" in refused(capsys, records, "--output", "trials")
    with trial_log.TrialLog(tmp_path / "busy"):
        assert "another tuner writes to it" in refused(capsys, records, "--output", "busy")


def test_a_full_disk_is_told(records: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    log = []

    def full(file: int, line: bytes) -> int:
        if bytes(line).startswith(b'{"schema": 1, "trial"'):
            log.append(line)
            if len(log) > 3:
                return 0
        return write(file, line)

    monkeypatch.setattr(os, "write", full)
    printed = refused(capsys, records, "--kernels", "sum", "--budget", "10m")
    assert "the disk is full" in printed and len(log) == 4


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("0", 0.0)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(("strategy", "caches"), [("tpe", "cold"), ("model", "warm")])
def test_a_strategy_and_the_conditions_are_asked_for(
    records: str, strategy: str, caches: str, ctrl_c_after: Press
) -> None:
    command = ["tune", records, "--kernels", "sum", "--budget", "10m", "--output", "trials", "--strategy", strategy]
    ctrl_c_after(3)
    assert cli.main([*command, "--caches", caches, "--threads", "1", "--seed", "3"]) == 0
    trials = trial_log.read(Path("trials")).trials
    measured = [trial for trial in trials if trial.samples]
    assert len(measured) >= 3 and {trial.proposer for trial in trials} == {strategy}
    assert {(trial.threads, trial.cold) for trial in measured} == {(1, caches == "cold")}


@pytest.mark.parametrize("option", [["--budget", "soon"], ["--budget", "-3"], ["--strategy", "luck"], []])
def test_a_command_line_that_is_not_understood(option: list[str], records: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["tune", *([records] if option else []), *option])
    assert caught.value.code == 2


def test_ctrl_c_ends_the_search_and_keeps_what_was_found(records: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "halide_backend.cli", "tune", records, "--budget", "10m", "--kernels", "sum"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "halide-trials.jsonl"
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and (not log.exists() or len(log.read_bytes().splitlines()) < 4):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "of 1 kernels are faster" in out
    assert len(trial_log.read(log).trials) >= 3 and trial_log.read(log).torn == []
