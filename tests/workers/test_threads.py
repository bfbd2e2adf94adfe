from __future__ import annotations

import threading
import time

import pytest

from halide_backend.workers.threads import DaemonThreads


def test_results_and_exceptions_arrive() -> None:
    threads = DaemonThreads(2, "test")
    assert threads.submit(lambda: 6 * 7).result(10) == 42
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(10)
    assert threads.submit(lambda: 1).result(10) == 1


def test_as_many_at_a_time_as_there_are_threads() -> None:
    threads = DaemonThreads(3, "test")
    meeting = threading.Barrier(3)
    futures = [threads.submit(lambda: meeting.wait(10)) for _ in range(9)]
    assert sorted(future.result(10) for future in futures) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_largest_of_those_that_wait_comes_first_and_equal_ones_in_order() -> None:
    threads = DaemonThreads(1, "sizes")
    begin, ran = threading.Event(), []
    first = threads.submit(lambda: begin.wait(10))
    futures = [threads.submit(lambda name=name: ran.append(name), size) for name, size in zip("abcde", (1, 3, 2, 3, 0))]
    begin.set()
    assert first.result(10) and [future.result(10) for future in futures] == [None] * 5
    assert ran == ["b", "d", "c", "a", "e"]


def test_nothing_is_started_before_it_is_needed() -> None:
    threads = DaemonThreads(3, "lazy")
    assert _running("lazy") == []
    threads.submit(lambda: None).result(10)
    assert _running("lazy") == ["lazy 1"]


def test_threads_end_with_their_owner() -> None:
    threads = DaemonThreads(2, "ending")
    for _ in range(4):
        threads.submit(lambda: None).result(10)
    del threads
    deadline = time.monotonic() + 10
    while _running("ending") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _running("ending") == []


def _running(title: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(title)]
