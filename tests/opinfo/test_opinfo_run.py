"""The runner: failures, crashes and hangs are recorded, the rest goes on, and a run resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from halide_backend.errors import HalideBackendError
from halide_backend.opinfo import run as runner
from halide_backend.opinfo.case import Request

SABOTAGED = (sys.executable, str(Path(__file__).with_name("sabotaged_worker.py")))

#: Fails for everything it is asked, so that a run that asks nothing passes.
USELESS = (sys.executable, "-c", "print('{}', flush=True); raise SystemExit(3)")


def outcomes(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_text())
    return {f"{item['op']} {item['dtype']}": item for item in data["outcomes"]}


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("opinfo") / "results.json"
    request = Request(
        dtypes=("float32",),
        ops=("abs", "sin", "cos", "tan", "exp", "log", "sqrt", "neg"),
        gradients=True,
        output=str(path),
        time_limit=60.0,
    )
    code = runner.run(request, SABOTAGED)
    return {"code": code, "path": path, "request": request, **outcomes(path)}


def test_a_right_operator_passes_with_its_gradient(sabotaged: dict[str, Any]) -> None:
    neg = sabotaged["neg float32"]
    assert (neg["status"], neg["samples"], neg["gradients"]) == ("passed", 1, 1)
    assert neg["native"] >= 2 and neg["delegated"] == 0


@pytest.mark.parametrize(
    ("name", "status", "kind", "words"),
    [
        ("sin", "failed", "values", "not close"),
        ("cos", "failed", "raised", "Observed exception"),
        ("tan", "crashed", "crashed", "SIGABRT"),
        ("exp", "timeout", "timeout", "in _hangs"),
        ("log", "failed", "gradients", "not close"),
        ("abs", "failed", "values", "changed inputs"),
    ],
)
def test_damage_is_recorded_as_what_it_is(
    sabotaged: dict[str, Any], name: str, status: str, kind: str, words: str
) -> None:
    found = sabotaged[f"{name} float32"]
    assert found["status"] == status
    assert [failure["kind"] for failure in found["failures"]] == [kind]
    assert words in found["failures"][0]["error"]
    assert sabotaged["code"] == 1


def test_what_eager_cannot_do_is_not_compared(sabotaged: dict[str, Any]) -> None:
    sqrt = sabotaged["sqrt float32"]
    assert (sqrt["status"], sqrt["samples"], sqrt["not_comparable"]) == ("not run", 0, 1)


def test_a_finished_run_is_resumed_without_running_anything(sabotaged: dict[str, Any]) -> None:
    request = Request(**{**vars(sabotaged["request"]), "resume": True})
    assert runner.run(request, USELESS) == 1
    assert outcomes(sabotaged["path"])["tan float32"]["status"] == "crashed"


def test_an_unfinished_run_is_resumed_with_the_rest(sabotaged: dict[str, Any], tmp_path: Path) -> None:
    data = json.loads(sabotaged["path"].read_text())
    data["outcomes"] = [item for item in data["outcomes"] if item["op"] not in ("neg", "exp")]
    path = tmp_path / "partial.json"
    path.write_text(json.dumps(data))
    request = Request(dtypes=("float32",), ops=("sin", "neg"), gradients=True, output=str(path), resume=True)
    assert runner.run(request) == 1
    found = outcomes(path)
    assert found["neg float32"]["status"] == "passed"
    # The real worker computes the right sine: this outcome is the old one.
    assert found["sin float32"]["status"] == "failed"


def test_results_of_another_kind_of_run_are_refused(sabotaged: dict[str, Any]) -> None:
    request = Request(**{**vars(sabotaged["request"]), "resume": True, "all_samples": True})
    with pytest.raises(HalideBackendError, match="all_samples=False"):
        runner.run(request, USELESS)


def test_results_of_other_code_are_refused(sabotaged: dict[str, Any], tmp_path: Path) -> None:
    data = json.loads(sabotaged["path"].read_text())
    path = tmp_path / "older.json"
    path.write_text(json.dumps({**data, "sources": "0" * 64}))
    with pytest.raises(HalideBackendError, match="other sources"):
        runner.run(Request(**{**vars(sabotaged["request"]), "output": str(path), "resume": True}), USELESS)


def test_a_worker_that_does_not_start_ends_the_run_with_what_it_said(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('broken installation')")
    with pytest.raises(HalideBackendError, match="broken installation"):
        runner.run(Request(dtypes=("float32",), ops=("sin",)), command)


def test_an_operator_that_does_not_exist_is_named() -> None:
    with pytest.raises(HalideBackendError, match="'sinus'"):
        runner.run(Request(ops=("sinus",)), USELESS)


KILLED = """
import sys
from halide_backend.opinfo import run
from halide_backend.opinfo.case import Request
run.run(Request(dtypes=("float32",), ops=("abs", "exp")), sys.argv[1:])
"""


def test_a_run_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = tmp_path / "hanging"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HANGS_WITH": str(mark)}
    running = subprocess.Popen([sys.executable, "-c", KILLED, *SABOTAGED], env=environment, start_new_session=True)
    try:
        while not mark.exists():
            assert running.poll() is None
            time.sleep(0.05)
        seen = descendants(running.pid)
    finally:
        running.kill()
        running.wait()
    # The server, its worker, and the compile worker of what that has compiled; a spare one, once the next graph begins.
    assert len(seen) in (3, 4)
    deadline = time.monotonic() + 20
    while (left := [pid for pid in seen if Path(f"/proc/{pid}/cmdline").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def descendants(pid: int) -> set[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return children.union(*map(descendants, children))
