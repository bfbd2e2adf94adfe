from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from halide_backend.demonstration import session_process
from halide_backend.demonstration.session import Task

TASK = Task(kind="start", row="gpt", caches={}, quick=True, audit=False, pictures="")


@pytest.fixture(autouse=True)
def odd_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_process, "SESSION", "odd_session")
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def run(ending: str, monkeypatch: pytest.MonkeyPatch, log: Path) -> tuple[object, list[str]]:
    monkeypatch.setenv("ODD_SESSION", ending)
    ticks: list[str] = []
    return session_process.run(TASK, log, ticks.append), ticks


def test_an_answer_and_its_progress_arrive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "new" / "log"
    result, ticks = run("well", monkeypatch, log)
    assert result == {"row": "gpt"}
    assert "half-way" in ticks
    assert not log.exists()


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("killed", "killed by SIGKILL: a warning, then the last line"),
        ("raises", "exit status 1: ValueError: no row gpt"),
        ("silent", "exit status 0: a warning, then the last line"),
        ("fails at exit", "exit status 3: a warning, then the last line"),
    ],
)
def test_a_session_that_fails_is_told_by_its_end_and_keeps_its_log(
    ending: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with pytest.raises(session_process.SessionFailed) as failure:
        run(ending, monkeypatch, log)
    assert str(failure.value) == f"{message} (see {log})"
    assert "a warning" in log.read_text()


@pytest.mark.parametrize(
    ("ending", "limit", "message"),
    [
        ("hangs", "LIMIT_SECONDS", "no answer after 2 s"),
        ("lingers", "END_SECONDS", "it answered but did not end"),
    ],
)
def test_a_session_that_hangs_is_ended(
    ending: str,
    limit: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(session_process, limit, 2.0)
    others = children()
    begin = time.monotonic()
    with pytest.raises(session_process.SessionFailed, match=message):
        run(ending, monkeypatch, tmp_path / "log")
    # Far below the 600 s that the session sleeps.
    assert time.monotonic() - begin < 60
    assert not children() - others


def test_a_demo_that_is_ended_ends_its_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: set[int] = set()
    others = children()
    # Ray, in a test before this one, leaves a handler of its own.
    handler = signal.getsignal(signal.SIGTERM)

    def tick(doing: str) -> None:
        seen.update(children() - others)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setenv("ODD_SESSION", "hangs")
    with pytest.raises(KeyboardInterrupt):
        session_process.run(TASK, tmp_path / "log", tick)
    assert len(seen) == 1
    assert not children() - others
    assert signal.getsignal(signal.SIGTERM) == handler


def children() -> set[int]:
    """Processes that this one started and has not waited for; a compile worker of another test may be among them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found
