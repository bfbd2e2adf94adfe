from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path

import numpy as np
import pytest
from compile_servers import children, server_of, submit
from evaluation import RUNTIME, call
from kernel_texts import DOUBLED, ROW_SUMS, elementwise

from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.loader import load_object
from halide_backend.build.pool import WorkerPool
from halide_backend.errors import (
    HalideCompileError,
    KernelTextError,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerTimeout,
)
from halide_backend.workers import server as workers_server

NAME = "asked"
SLEEPING = "import time; time.sleep(100)"


@pytest.fixture
def own_pool() -> Iterator[WorkerPool]:
    """A pool that a test may harm."""
    pool = WorkerPool(2, time_limit=60, memory_limit=2 << 30)
    yield pool
    pool.close()


def good(pool: WorkerPool) -> CompiledKernel:
    return submit(pool, DOUBLED).result(60)


def eventually(condition: object) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


# --- results ------------------------------------------------------------------------------------


def test_a_kernel_comes_back_and_runs(pool: WorkerPool) -> None:
    kernel = good(pool)
    loaded = load_object(kernel.object, "k", RUNTIME)
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    call(loaded.address, a, out)
    assert (out == 2 * a).all()
    assert [argument["name"] for argument in kernel.manifest["arguments"]] == ["a", "out"]
    assert 0 < kernel.seconds < 60


def test_equal_texts_give_equal_bytes_whatever_came_before(pool: WorkerPool) -> None:
    other = WorkerPool(1, time_limit=60, memory_limit=2 << 30)
    try:
        first = submit(pool, ROW_SUMS).result(60).object
        for text in (DOUBLED, elementwise("a * a"), ROW_SUMS):
            submit(pool, text).result(60)
        assert submit(pool, ROW_SUMS).result(60).object == first
        assert submit(other, ROW_SUMS).result(60).object == first
    finally:
        other.close()
    # The names are those of the text, without a counter that other kernels moved.
    assert b"k_par_for_rows_s0_i" in first and b"rows__" not in first and b"rows$" not in first


def test_sets_are_in_the_same_order_in_every_worker(own_pool: WorkerPool, pool: WorkerPool) -> None:
    text = f"{DOUBLED}\nORDER = list(set('abcdefghijklmnop'))\nraise ValueError(''.join(ORDER))"
    orders = [str(submit(each, text).exception(60)) for each in (pool, own_pool)]
    assert "ValueError" in orders[0] and orders[0] == orders[1]


def test_many_kernels_from_many_threads(pool: WorkerPool) -> None:
    futures: list[tuple[int, Future[CompiledKernel]]] = []

    def ask(number: int) -> None:
        text = elementwise(f"a * hl.f32({number})")
        futures.append((number, submit(pool, text)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, future in futures:
        loaded = load_object(future.result(60).object, "k", RUNTIME)
        a, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
        call(loaded.address, a, out)
        assert (out == number * a).all()


def test_kernels_compile_at_the_same_time(own_pool: WorkerPool, tmp_path: Path) -> None:
    own_pool.start()
    # Each ends only when the other has begun.
    text = "import os, time\nopen({!r}, 'w')\nwhile not os.path.exists({!r}): time.sleep(0.01)"
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    pair = [submit(own_pool, text.format(*way), 20) for way in ((here, there), (there, here))]
    for future in pair:
        with pytest.raises(KernelTextError, match="does not define"):
            future.result(60)


# --- a kernel that harms only itself ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("def pipeline(:", KernelTextError, "line 1 .*SyntaxError"),
        ("ARGUMENTS = ()\ndef pipeline(): return None", KernelTextError, "did not return a pair"),
        (DOUBLED.replace("a_[i]", "a_[i, i]"), HalideCompileError, "was called with 2 arguments"),
        ("import os; os.abort()", WorkerCrashed, "was killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", WorkerCrashed, "was killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", WorkerCrashed, "was killed by SIGSEGV"),
        ("import os; os._exit(3)", WorkerCrashed, "ended with status 3"),
        ("x = bytearray(8 << 30)", WorkerCrashed, "needs more than the allowed 2048 MB"),
        (
            "import os; os.write(2, b\"terminate called: 'std::bad_alloc'\"); os.abort()",
            WorkerCrashed,
            "needs more than the allowed 2048 MB",
        ),
        (
            "import os, sys; print('last words', file=sys.stderr, flush=True); os.abort()",
            WorkerCrashed,
            "SIGABRT.*\nlast words",
        ),
    ],
)
def test_a_bad_kernel_is_a_typed_error(pool: WorkerPool, text: str, error: type[Exception], message: str) -> None:
    server = server_of(pool)
    beside = submit(pool, DOUBLED)
    with pytest.raises(error, match=message) as caught:
        submit(pool, text).result(60)
    assert f"kernel {NAME}" in caught.value.where  # type: ignore[attr-defined]
    assert caught.value.cure  # type: ignore[attr-defined]
    assert beside.result(60).object == good(pool).object
    assert server_of(pool) == server


@pytest.mark.parametrize("text", ["while True: pass", SLEEPING, "import re; re.match('(a*)*b', 'a' * 40)"])
def test_a_kernel_that_runs_for_ever_is_stopped(pool: WorkerPool, text: str) -> None:
    server = server_of(pool)
    start = time.monotonic()
    with pytest.raises(WorkerTimeout, match=f"kernel {NAME}: .*limit of 0.5 s") as caught:
        submit(pool, text, time_limit=0.5).result(60)
    assert time.monotonic() - start > 0.4
    assert server_of(pool) == server, "the limit cost the server, and other kernels with it"
    assert "compile_time_limit" in caught.value.cure
    assert eventually(lambda: not children(server))
    good(pool)


def test_what_a_kernel_prints_reaches_nobody(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    noise = [
        "import os",
        "print('garbage ' * 50)",
        "os.write(1, b'\\x00\\xff' * 9999)",
        "os.write(2, b'warned')",
    ]
    kernel = submit(pool, "\n".join([*noise, DOUBLED])).result(60)
    assert kernel.object == good(pool).object
    assert "warned" in kernel.messages and "garbage" in kernel.messages
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_halides_warnings_are_messages(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    # A reduction whose update is never reached: Halide warns about the unscheduled update.
    text = ROW_SUMS.replace(".update().vectorize(u)", "")
    assert "Warning" in submit(pool, text).result(60).messages
    assert capfd.readouterr().err == ""


def test_standard_input_is_empty(pool: WorkerPool) -> None:
    with pytest.raises(KernelTextError, match="ValueError: nothing to read: ''"):
        submit(pool, "import sys\nraise ValueError(f'nothing to read: {sys.stdin.read()!r}')").result(60)


# --- harm from outside --------------------------------------------------------------------------


def compiling(pool: WorkerPool, text: str = SLEEPING) -> tuple[Future[CompiledKernel], int]:
    """Start a long compilation; return its future and its process."""
    server = server_of(pool)
    assert eventually(lambda: not children(server))
    future = submit(pool, text)
    assert eventually(lambda: children(server))
    return future, children(server)[0]


def test_killed_mid_compile_is_an_error_that_names_the_kernel(own_pool: WorkerPool) -> None:
    future, pid = compiling(own_pool)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerCrashed, match="was killed by SIGKILL") as caught:
        future.result(20)
    assert caught.value.where == f"kernel {NAME}"
    good(own_pool)


def test_killed_worker_is_replaced_with_one_warning(own_pool: WorkerPool) -> None:
    waiting = "import time; time.sleep(1)\n" + DOUBLED
    server = server_of(own_pool)
    future, pid = compiling(own_pool, waiting)
    with pytest.warns(RuntimeWarning, match="worker died; another one was started"):
        os.kill(server, signal.SIGKILL)
        kernel = future.result(60)
    assert kernel.object == good(own_pool).object
    assert server_of(own_pool) != server
    assert eventually(lambda: not Path(f"/proc/{pid}").exists()), "an orphan compiles on"


@pytest.mark.filterwarnings("ignore:the halide_backend compile worker died")
def test_retried_only_once(own_pool: WorkerPool) -> None:
    text = "import os, time; os.kill(os.getppid(), 9); time.sleep(100)"
    with pytest.raises(WorkerCrashed, match="the compile worker was killed by SIGKILL"):
        submit(own_pool, text).result(60)
    good(own_pool)


def test_a_worker_that_stands_still_is_replaced(own_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_server, "GRACE_S", 0.2)
    server = server_of(own_pool)
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(WorkerTimeout, match=NAME):
        submit(own_pool, DOUBLED, time_limit=0.3).result(60)
    good(own_pool)
    assert server_of(own_pool) != server


def test_no_zombie_is_left(own_pool: WorkerPool) -> None:
    dead = server_of(own_pool)
    wait([submit(own_pool, "import os; os.abort()") for _ in range(4)], 60)
    assert eventually(lambda: not children(dead))  # reaped by the worker
    own_pool.close()
    assert not Path(f"/proc/{dead}").exists()  # reaped by this process


def test_close_fails_what_is_running_and_what_comes_later(own_pool: WorkerPool) -> None:
    future, _ = compiling(own_pool)
    queued = [submit(own_pool, SLEEPING) for _ in range(4)]
    own_pool.close()
    for each in (future, *queued, submit(own_pool, DOUBLED)):
        with pytest.raises(WorkerCrashed, match="closed"):
            each.result(20)


def test_a_closed_pool_starts_no_worker(own_pool: WorkerPool) -> None:
    # Other pools of this process may start theirs at any time.
    own_pool.close()
    own_pool.start()
    assert own_pool._workers._server is None


def test_a_worker_that_cannot_start_says_why(
    own_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module of that name >&2\nexit 1")
    broken.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(WorkerNotStarted, match=r"(?s)could not start.*status 1.*no module of that name"):
        submit(own_pool, DOUBLED).result(60)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_interpreter"))
    with pytest.raises(WorkerNotStarted, match=r"could not start.*no_interpreter"):
        submit(own_pool, DOUBLED).result(60)
    monkeypatch.undo()
    good(own_pool)
