"""Workers survive nothing and lose nothing else: what a task does, ends, prints and starts, seen from its parent."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halide_backend import errors
from halide_backend.errors import HalideBackendError, WorkerCrashed, WorkerNotStarted, WorkerTimeout
from halide_backend.workers import server as server_module
from halide_backend.workers.pool import Worker, Workers
from halide_backend.workers.server import Program
from halide_backend.workers.task import Limits, Task

HERE = Path(__file__).parent
ODD = Program(
    "odd worker",
    lambda: (sys.executable, str(HERE / "odd_work.py")),
    lambda: {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    crash_cure="no crash",
    timeout_cure="more time",
)
MB = 1 << 20


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    shared = Workers(ODD)
    yield shared
    shared.close()


@pytest.fixture
def own_workers() -> Iterator[Workers]:
    """Workers whose server a test may harm."""
    own = Workers(ODD)
    yield own
    own.close()


def task(*content: Any, seconds: float = 60.0, memory: int = 0, cores: tuple[int, ...] = ()) -> Task:
    return Task(f"task {content[0]}", content, Limits(seconds, memory, cores))


def run(workers: Workers, *content: Any, **limits: Any) -> Any:
    return Worker(workers).run(task(*content, **limits))[0]


def gone(*pids: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # without a parent, who collects it depends on the machine


# --- answers ------------------------------------------------------------------------------------


def test_answer_reports_and_output_arrive(workers: Workers) -> None:
    heard: list[int] = []
    assert Worker(workers).run(task("reports", 3, 0.0), heard.append) == ("done", "")
    assert heard == [0, 1, 2]
    worker = Worker(workers, lifetime=2)
    assert worker.run(task("prints", "first")) == (None, "first\nfirst")
    assert worker.run(task("prints", "second")) == (None, "second\nsecond")


def test_contents_and_answers_larger_than_a_socket_holds(workers: Workers) -> None:
    content = os.urandom(5 * MB)
    assert run(workers, "echo", content) == content


def test_what_is_printed_is_cut_from_its_beginning(workers: Workers) -> None:
    _, output = Worker(workers).run(task("prints", "x" * 100_000 + "end"))
    assert output.endswith("xend") and len(output) < 20_000


def test_tasks_of_a_worker_share_a_process_until_it_is_old(workers: Workers) -> None:
    worker = Worker(workers, lifetime=3)
    told = [worker.run(task("count"))[0] for _ in range(7)]
    worker.close()
    assert [done for _, done in told] == [1, 2, 3, 1, 2, 3, 1]
    assert len({pid for pid, _ in told}) == 3
    assert gone(*(pid for pid, _ in told))


def test_a_task_runs_on_the_cores_it_is_given(workers: Workers) -> None:
    core = max(os.sched_getaffinity(0))
    assert run(workers, "cores", cores=(core,)) == {core}
    assert run(workers, "cores") == os.sched_getaffinity(0)


# --- bad tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (("aborts",), r"was killed by SIGABRT, at \d+ MB(?s:.*)odd_work.py.* in aborts"),
        (("reads_null",), r"was killed by SIGSEGV(?s:.*) in reads_null"),
        (("kills_itself",), "was killed by SIGKILL"),
        (("ends", 3), "ended with status 3"),
        (("ends", 0), "ended with status 0"),
        (("has_a_mistake",), "ended with status 1(?s:.*)ZeroDivisionError: a mistake"),
        (("breaks_off",), "was killed by SIGKILL"),
        (("allocates", 8 << 30), "needs more than the allowed 512 MB"),
        (("allocates_in_c", 8 << 30), "needs more than the allowed 512 MB"),
    ],
)
def test_a_bad_end_is_an_error_that_names_the_task(workers: Workers, content: tuple[Any, ...], message: str) -> None:
    server = run(workers, "server")
    beside = Worker(workers, lifetime=2)
    other = beside.run(task("count"))[0]
    with pytest.raises(WorkerCrashed, match=message) as caught:
        run(workers, *content, memory=512 * MB)
    assert (caught.value.where, caught.value.cure) == (f"task {content[0]}", "no crash")
    assert beside.run(task("count"))[0] == (other[0], 2), "it was not its worker"
    assert run(workers, "server") == server


@pytest.mark.parametrize("content", ["loops", "sleeps", "loops_in_c", "ignores_terminate"])
def test_a_task_without_end_is_stopped_in_time(workers: Workers, content: str) -> None:
    server = run(workers, "server")
    late = []
    for _ in range(3):  # the best of three: other processes use the machine, too
        begin = time.monotonic()
        with pytest.raises(WorkerTimeout, match=rf"limit of 0.4 s(?s:.*) in {content}") as caught:
            run(workers, content, seconds=0.4)
        late.append(time.monotonic() - begin - 0.4)
        assert (caught.value.where, caught.value.cure) == (f"task {content}", "more time")
    assert 0 <= min(late) < 1
    assert run(workers, "server") == server


def test_a_late_task_says_where_it_was_however_deep(workers: Workers) -> None:
    with pytest.raises(WorkerTimeout, match=r" in sleeps\n(?s:.*) in sleeps_deep_down\n"):
        run(workers, "sleeps_deep_down", seconds=0.4)


def test_each_report_restarts_the_clock(workers: Workers) -> None:
    assert run(workers, "reports", 5, 0.4, seconds=1.5) == "done"
    with pytest.raises(WorkerTimeout):
        run(workers, "reports", 5, 1.6, seconds=1.5)


def test_memory_is_refused_as_soon_as_there_is_too_much(workers: Workers) -> None:
    heard: list[int] = []
    begin = time.monotonic()
    with pytest.raises(WorkerCrashed, match="more than the allowed 256 MB"):
        Worker(workers).run(task("grows", memory=256 * MB), heard.append)
    assert 100 < heard[-1] < 256
    assert time.monotonic() - begin < 10


def test_limits_are_those_of_the_task_not_of_the_one_before(workers: Workers) -> None:
    worker = Worker(workers, lifetime=9)
    worker.run(task("allocates", 10 * MB, seconds=1.0, memory=256 * MB))
    time.sleep(1.2)
    worker.run(task("allocates", 900 * MB, memory=2048 * MB))
    assert worker.run(task("count"))[0][1] == 3, "the first one's time is over"
    with pytest.raises(WorkerCrashed, match="allowed 256 MB"):
        worker.run(task("allocates", 900 * MB, memory=256 * MB))
    assert worker.run(task("count"))[0][1] == 1


def test_a_worker_collects_garbage(workers: Workers) -> None:
    assert run(workers, "collects")


def test_what_a_task_raises_is_raised_here(workers: Workers) -> None:
    with pytest.raises(errors.KernelTextError) as caught:
        run(workers, "refuses")
    assert (caught.value.what, caught.value.where, caught.value.cure) == ("not this one", "line 1", "another one")


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [("stands_still", WorkerTimeout, "limit of 0.3 s"), ("hangs_up", WorkerCrashed, "was killed by SIGKILL")],
)
def test_a_worker_that_no_limit_reaches_is_killed_from_here(
    own_workers: Workers, content: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "GRACE_S", 3.0)
    server = run(own_workers, "server")
    begin = time.monotonic()
    with pytest.raises(error, match=message):
        run(own_workers, content, seconds=0.3 if error is WorkerTimeout else 60.0)
    assert 2.9 < time.monotonic() - begin < 5.9
    assert run(own_workers, "server") == server


# --- ends ---------------------------------------------------------------------------------------


def started(workers: Workers, then: str, **limits: Any) -> tuple[list[int], HalideBackendError]:
    """Processes of a task that starts a program and then comes to a bad end, and its error."""
    told: list[tuple[int, int]] = []
    with pytest.raises(HalideBackendError) as caught:
        Worker(workers).run(task("starts", then, **limits), told.append)
    return [*told[0]], caught.value


@pytest.mark.parametrize("then", ["aborts", "loops", "has_a_mistake", "refuses"])
def test_what_a_task_has_started_ends_with_it(workers: Workers, then: str) -> None:
    pids, _ = started(workers, then, seconds=1.0)
    assert gone(*pids)


def test_a_server_that_dies_is_replaced_and_its_task_run_again(own_workers: Workers) -> None:
    server = run(own_workers, "server")
    worker = Worker(own_workers, lifetime=2)
    (pid, _), _ = worker.run(task("count"))
    os.kill(server, signal.SIGKILL)
    assert gone(server, pid)
    with pytest.warns(RuntimeWarning, match="halide_backend odd worker died; another one was started"):
        assert worker.run(task("count"))[0][1] == 1
    assert run(own_workers, "server") != server


def test_a_start_forks_a_worker_for_the_first_task(own_workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[int] = []
    fork = server_module.Server.fork
    monkeypatch.setattr(server_module.Server, "fork", lambda server: forked.append(len(forked)) or fork(server))
    own_workers.start()
    own_workers.start()
    assert forked == [0]
    first, _ = run(own_workers, "count")
    assert forked == [0]
    second, _ = run(own_workers, "count")
    assert forked == [0, 1] and first != second


def test_what_a_dead_server_has_forked_gets_no_task(own_workers: Workers) -> None:
    server = run(own_workers, "server")
    own_workers.start()
    os.kill(server, signal.SIGKILL)
    assert gone(server)
    with pytest.warns(RuntimeWarning, match="died"):
        assert run(own_workers, "echo", 1) == 1
    own_workers.start()
    assert run(own_workers, "server") != server


def test_a_task_that_kills_servers_gets_two_of_them(own_workers: Workers) -> None:
    with (
        pytest.warns(RuntimeWarning, match="died"),
        pytest.raises(WorkerCrashed, match="the odd worker was killed by SIGKILL"),
    ):
        run(own_workers, "kills_its_server")


def test_closing_ends_everything(own_workers: Workers) -> None:
    told: list[tuple[int, int]] = []
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            Worker(own_workers).run(task("starts", "sleeps"), told.append)
        except HalideBackendError as error:
            failed.append(error)

    server = run(own_workers, "server")
    thread = threading.Thread(target=wait)
    thread.start()
    while not told:
        time.sleep(0.01)
    own_workers.close()
    thread.join(20)
    assert isinstance(failed[0], WorkerCrashed)
    assert gone(server, *told[0])
    with pytest.raises(WorkerCrashed, match="are closed"):
        run(own_workers, "echo", 1)


def test_a_program_that_is_no_server_is_not_started() -> None:
    environment = lambda: dict(os.environ)  # noqa: E731
    silent = Program("silent worker", lambda: ("sleep", "1000"), environment, start_limit=0.3)
    broken = Program("broken worker", lambda: ("sh", "-c", "echo what is missing; exit 4"), environment)
    absent = Program("absent worker", lambda: ("/nowhere/python",), environment)
    for program, message in [
        (silent, "silent worker could not start: it was killed by SIGKILL"),
        (broken, "broken worker could not start: it ended with status 4\nwhat is missing"),
        (absent, "absent worker could not start: .*/nowhere/python"),
    ]:
        with pytest.raises(WorkerNotStarted, match=message):
            run(Workers(program), "echo", 1)


def test_workers_that_end_while_they_are_killed_do_the_server_no_harm(workers: Workers) -> None:
    server = run(workers, "server")
    items = [("echo", number) for number in range(200)]
    assert sorted(workers.stream(items, outcome, jobs=8, lifetime=1)) == [*range(200)]
    assert run(workers, "server") == server


def test_a_worker_that_was_killed_takes_no_task(workers: Workers) -> None:
    worker = Worker(workers)
    worker.kill()
    with pytest.raises(WorkerCrashed, match="was killed by SIGKILL"):
        worker.run(task("sleeps"))


# --- many tasks ---------------------------------------------------------------------------------


def outcome(worker: Worker, content: tuple[Any, ...]) -> Any:
    """The answer, or the kind of error."""
    try:
        return worker.run(task(*content, seconds=1.0, memory=512 * MB))[0]
    except (WorkerCrashed, WorkerTimeout) as error:
        return type(error)


def test_results_and_failures_come_as_they_are_ready(workers: Workers) -> None:
    bad = [("loops",), ("aborts",), ("allocates", 8 << 30), ("has_a_mistake",)]
    items = [item for pair in zip(bad, (("echo", n) for n in range(4)), strict=True) for item in pair]
    found = list(workers.stream(items, outcome, jobs=3, lifetime=5))
    assert sorted(result for result in found if isinstance(result, int)) == [0, 1, 2, 3]
    assert sorted(each.__name__ for each in found if not isinstance(each, int)) == [
        *["WorkerCrashed"] * 2,
        "WorkerOutOfMemory",
        "WorkerTimeout",
    ]
    assert found[-1] is WorkerTimeout, "the one that took longest"


def test_items_are_taken_when_a_worker_is_free(workers: Workers) -> None:
    taken = itertools.count()
    stream = workers.stream((("echo", n) for n in taken), outcome, jobs=2, lifetime=100)
    assert len({next(stream) for _ in range(20)}) == 20
    stream.close()
    after = next(taken)
    time.sleep(0.3)
    assert next(taken) == after + 1, "it goes on"


def test_a_consumer_that_stops_ends_the_workers(workers: Workers) -> None:
    told: list[tuple[int, int]] = []

    def endless(worker: Worker, number: int) -> Any:
        return number if not number else worker.run(task("starts", "loops"), told.append)

    stream = workers.stream(range(3), endless, jobs=3, lifetime=1)
    assert next(stream) == 0
    while len(told) < 2:
        time.sleep(0.01)
    stream.close()
    assert gone(*itertools.chain(*told))


def test_what_the_function_raises_ends_the_stream(workers: Workers) -> None:
    def mistaken(worker: Worker, number: int) -> Any:
        return 1 // number if number < 2 else worker.run(task("sleeps"))

    with pytest.raises(ZeroDivisionError):
        list(workers.stream([2, 1, 0], mistaken, jobs=2, lifetime=1))


# --- the end of the parent ----------------------------------------------------------------------

PRELUDE = f"""
import os, signal, sys
sys.path[:0] = [{str(HERE)!r}]
from test_workers import *
workers = Workers(ODD)
"""

ENDLESS = """
signal.signal(signal.SIGINT, signal.default_int_handler)
def tell(pids):
    print(run(workers, "server"), *pids, flush=True)
def endless(worker, number):
    if number:
        return number
    worker.run(task("starts", "sleeps"), lambda told: tell(told) if isinstance(told, tuple) else None)
try:
    for result in workers.stream(range(3), endless, jobs=2, lifetime=9):
        print(result, file=sys.stderr, flush=True)
except KeyboardInterrupt:
    print("interrupted", run(workers, "echo", 1))
"""


def script(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_parent_that_is_ended_leaves_nothing_behind(number: signal.Signals) -> None:
    running = script(ENDLESS)
    assert running.stdout is not None and running.stderr is not None
    pids = [int(word) for word in running.stdout.readline().split()]
    assert {running.stderr.readline(), running.stderr.readline()} == {"1\n", "2\n"}
    assert len(pids) == 3 and all(map(alive, pids))
    os.killpg(running.pid, number)  # as a terminal does
    out, _ = running.communicate(timeout=60)
    assert gone(*pids)
    if number == signal.SIGINT:
        assert (out, running.returncode) == ("interrupted 1\n", 0)
    else:
        assert running.returncode == -number


FORKING = """
def tell(told):
    if isinstance(told, tuple):
        child = os.fork()
        if child == 0:
            time.sleep(60)
        print(child, *told, flush=True)
        raise KeyboardInterrupt
try:
    Worker(workers).run(task("starts", "sleeps"), tell)
except KeyboardInterrupt:
    sys.stdin.read()
"""


def test_a_forked_child_of_the_parent_keeps_no_worker_alive() -> None:
    running = script(FORKING)
    assert running.stdout is not None
    child, *pids = map(int, running.stdout.readline().split())
    try:
        assert gone(*pids) and len(pids) == 2
        assert alive(child) and running.poll() is None
    finally:
        os.kill(child, signal.SIGKILL)
        running.communicate("", timeout=60)
