from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from halide_backend.demonstration import demo, session_process
from halide_backend.demonstration.session import CPP, OURS, Task
from halide_backend.inspection import machine


def test_the_demo_starts_no_program_but_our_own(tmp_path: Path) -> None:
    # A PATH with python and nothing else: no compiler, assembler, linker, shell.
    path = tmp_path / "path"
    path.mkdir()
    (path / "python").symlink_to(sys.executable)
    output, figures = tmp_path / "pictures", tmp_path / "figures.json"
    command = [sys.executable, "-m", "halide_backend.cli", "demo", "--quick", "--only", "image"]
    done = subprocess.run(
        [*command, "--audit", "--output", str(output), "--json", str(figures)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(figures.read_text())
    # Three sessions; one worker process for the two that compile at most.
    assert report["processes"] == {"workers": 1, "sessions": 3, "others": {}}
    (row,) = report["rows"]
    ours = row["backends"]["halide_backend"]
    assert all(check["passed"] for check in ours["checks"])
    assert len(ours["checks"]) == 4
    assert ours["cold"]["stats"]["native_kernels"] > 0
    assert ours["cold"]["stats"]["kernels_compiled"] > 0
    assert ours["cold"]["stats"]["delegated_kernels"] == 0
    assert ours["second"]["stats"]["kernels_compiled"] == 0
    assert set(row["backends"]) == {"eager", "halide_backend"}
    assert ours["run"]["samples"] >= 7
    assert {file.suffix for file in output.iterdir()} == {".png"}
    assert len(list(output.iterdir())) == 5


def fake_session(task: Task, log: Path, tick: object) -> dict[str, object]:
    """Answers like a session in which the second process with C++ dies and `loss` is wrong."""
    times = {"median": 2.0, "lower_quartile": 2.0, "upper_quartile": 2.0, "samples": 9}
    stats = {"native_kernels": 1, "delegated_kernels": 0, "kernels_compiled": 0}
    if task.kind == "start":
        if CPP in task.caches and "second" in log.name:
            raise session_process.SessionFailed("killed by SIGSEGV")
        return {"seconds": 1.0, "stats": stats, "optimizer_seconds": 0.0, "processes": {}}
    check = {"name": "loss", "error": 0.5, "passed": False}
    return {
        "summary": "a model",
        "checks": {backend: [check] for backend in task.caches},
        "times": dict.fromkeys(("eager", *task.caches), times),
        "pictures": [],
        "processes": {},
    }


def test_a_wrong_result_and_a_dead_session_are_reported_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(session_process, "run", fake_session)
    monkeypatch.setattr(machine, "cxx_compiler", lambda: "/usr/bin/g++")
    figures = tmp_path / "figures.json"
    request = demo.Request(only="gpt", output=str(tmp_path), json_file=str(figures))
    assert demo.run(request) == 1
    text = capsys.readouterr().out
    assert "[4/10] gpt inference, second process with cpp: FAILED, killed by SIGSEGV" in text
    assert "gpt inference: halide_backend differs from eager in loss: 5.0e-01" in text
    report = json.loads(figures.read_text())
    assert [row["name"] for row in report["rows"]] == ["gpt inference", "gpt training"]
    assert report["rows"][1]["backends"][OURS]["run"]["median"] == 2.0
    assert report["rows"][1]["backends"][CPP]["second"] is None


def test_without_a_compiler_the_demo_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(session_process, "run", fake_session)
    monkeypatch.setattr(machine, "cxx_compiler", lambda: "")
    demo.run(demo.Request(only="cnn", output=str(tmp_path)))
    text = capsys.readouterr().out
    assert "left out, there is no C++ compiler on PATH" in text
    assert "with cpp" not in text
