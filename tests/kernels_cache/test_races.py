"""K1, K2, K13, K14: many processes, one directory."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario

Figure = Callable[[str, str, str], None]
LONG = pytest.mark.long


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=LONG)])
def test_one_build_a_round(root: Path, figure: Figure, rounds: int) -> None:
    answers = scenario("races", "single_flight", root=str(root), processes=32, rounds=rounds)
    for answer in answers:
        assert answer == {"builds": 1, "contents": 1, "hits": 31}
    figure(
        "K1",
        f"32 processes ask for one missing key, {rounds} rounds",
        f"{sum(answer['builds'] for answer in answers)} builds, {32 * rounds} equal results",
    )


def test_one_build_among_threads_of_several_processes(root: Path) -> None:
    answer = scenario("races", "threads_and_processes", root=str(root), threads=8, processes=2)
    assert answer == {"builds": 1, "answers": 16, "contents": 1}


@pytest.mark.parametrize("operations", [60, pytest.param(500, marks=LONG)])
def test_mixed_operations_never_overlap(root: Path, figure: Figure, operations: int) -> None:
    total = scenario("races", "mixed", root=str(root), processes=8, operations=operations, keys=50)
    assert total["operations"] == 8 * operations
    assert total["builds"] > 0
    assert total["overlaps"] == 0
    assert total["counted"] == total["builds"]
    assert total["partial"] == 0
    assert total["troubles"] == 0
    figure(
        "K2",
        f"8 processes x {operations} gets, puts, builds, discards on 50 keys",
        f"{total['builds']} builds, {total['overlaps']} overlaps, "
        f"{total['builds'] - total['counted']} lost increments, {total['partial']} partial reads",
    )


@pytest.mark.parametrize("puts", [100, pytest.param(2500, marks=LONG)])
def test_equal_pids_do_not_collide(root: Path, figure: Figure, puts: int) -> None:
    counts = scenario("races", "same_names", root=str(root), containers=2, threads=2, puts=puts)
    assert counts == {"names": 4 * puts, "distinct": 4 * puts}
    figure(
        "K13",
        f"{4 * puts} temporary files by writers of equal pid and thread id",
        f"{counts['names'] - counts['distinct']} equal names",
    )


def test_a_killed_holder_frees_its_lock(root: Path, figure: Figure) -> None:
    answer = scenario("races", "holder", root=str(root), stop=False, timeout_s=30.0)
    assert answer["status"] == -9
    assert answer["content"] == "mine"
    assert answer["waited_s"] < 1.0
    figure(
        "K14.1",
        "holder killed while it builds",
        f"next has the lock after {answer['waited_s']:.2f} s",
    )


def test_a_suspended_holder_is_named(root: Path, figure: Figure) -> None:
    answer = scenario("races", "holder", root=str(root), stop=True, timeout_s=0.5)
    assert answer["holder"] == answer["pid"]
    assert answer["host"] == socket.gethostname()
    assert 0.4 < answer["age_s"] < 20.0
    assert str(answer["pid"]) in answer["message"]
    assert answer["host"] in answer["message"]
    assert 0.5 <= answer["waited_s"] < 3.0
    # Outside strict mode the caller builds, uncached, with one warning.
    assert answer["content"] == "mine"
    assert (answer["warnings"], answer["stored"]) == (1, 0)
    figure(
        "K14.2",
        "holder suspended, limit 0.5 s",
        f"time-out after {answer['waited_s']:.2f} s names pid, host and age; caller built uncached",
    )
